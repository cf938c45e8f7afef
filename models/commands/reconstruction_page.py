"""What `--mode reconstruct` says of a scene before the training and of the result after it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data.errors import UserError, one_line
from data.io.files import read_regular
from models.pages.markdown import escaped
from models.results.figure_table import lines
from models.scores.witness import MISSING

MOST_BYTES = 1 << 24
SOME_MISSING, MOST_MISSING = 0.2, 0.5  # share of the points without a surface: parts, or most of it, are made up
# Held-out views in dB: below the first the views do not fit one shape, below the second fine detail is no detail.
LEAST_PSNR, FAIR_PSNR = 16.0, 20.0
LEAST_EPIPOLAR = 1.5  # pixels that matches lie off: as inspect has it, the cameras are others


def read_figures(path: Path) -> dict[str, Any]:
    """A JSON object of figures; {} where there is none, or it is damaged."""
    try:
        value = json.loads(read_regular(path, MOST_BYTES)) if path.is_file() else {}
    except (OSError, ValueError, RecursionError, UserError):
        return {}
    return value if isinstance(value, dict) else {}


def warnings(health: Mapping[str, Any]) -> list[str]:
    """A sentence for each finding of `inspect` that is not good, the worst first."""
    found = [entry for entry in health.get("findings", ()) if entry["verdict"] != "good"]
    found.sort(key=lambda entry: entry["verdict"] != "bad")
    return [
        one_line(f"{entry['check']} ({entry['verdict']}): {entry['figure']}; {entry['consequence']}") for entry in found
    ]


def trust(figures: Mapping[str, Any]) -> list[str]:
    """How far the result can be trusted, by its figures: at least a sentence."""
    found = []
    missing, psnr, epipolar = (figures.get(name) for name in ("points_missing", "psnr", "epipolar_px"))
    if figures.get("counts_first") == "psnr_mask":
        psnr = figures.get("psnr_mask")
    if missing is not None:
        near = f"{1 - missing:.0%} of the points of structure from motion have a surface within {MISSING:g} radii"
        if missing > MOST_MISSING:
            found.append(f"only {near}: most of the mesh is made up, do not measure on it")
        elif missing > SOME_MISSING:
            found.append(f"{near}: parts of the mesh are made up, compare it with the photographs")
        else:
            found.append(f"{near}: the mesh can be trusted where photographs show it")
    if psnr is not None:
        met = f"photographs that were held out are met to {psnr:.1f} dB"
        if psnr < LEAST_PSNR:
            found.append(f"{met}: the views do not fit one shape")
        elif psnr < FAIR_PSNR:
            found.append(f"{met}: fine detail is not to be trusted")
        elif missing is None:
            found.append(f"{met}, which says nothing of hidden depths: there are no points to witness the shape")
        else:
            found.append(met)
    if epipolar is not None and epipolar > LEAST_EPIPOLAR:
        found.append(f"matches lie {epipolar:.1f} pixels off: the cameras are wrong, and so is the mesh")
    return found or ["nothing says how good the mesh is: compare it with the photographs"]


def page(
    title: str,
    health: Mapping[str, Any],
    figures: Mapping[str, Any],
    commands: Sequence[str],
    notes: Sequence[str] = (),
    has_mesh: bool = True,
) -> str:
    """The results on a page of Markdown; `notes` say what is missing, and come first."""
    text = [f"# {escaped(title)}", ""]
    for note in notes:
        text += [f"**{escaped(note)}**", ""]
    text += ["![rendering, photograph, normals, mesh](report.png)", ""]
    if has_mesh:
        text += ["mesh.ply: the coloured mesh", ""]
        text += ["## How far to trust it", "", *(f"- {escaped(line)}" for line in trust(figures)), ""]
    risks = warnings(health)
    if risks:
        text += ["## What inspect found", "", *(f"- {escaped(line)}" for line in risks), ""]
    text += ["## Figures", "", "```text", *lines([("", figures)]), "```", ""]
    text += ["## Commands", "", "```bash", *commands, "```", "", "![cameras and photographs](overview.png)"]
    return "\n".join(text) + "\n"
