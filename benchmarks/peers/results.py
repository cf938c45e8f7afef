"""Run the programs, measure their results, and show them as a table and a picture."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from benchmarks.peers.photographs import Task
from benchmarks.peers.programs import Program, Result, environment
from benchmarks.quality.surfaces import from_points, from_points_to_cloud
from benchmarks.report import MIB
from data.errors import UserError
from data.io.files import write_result
from data.io.images import to_uint8
from models.results.shading import shade_mesh

CLOCK = Path(__file__).with_name("clock.py")
JOB, LOG, USED = "job.json", "output.log", "used.json"
LETTERS = 1 / 800  # scale of OpenCV's font for each pixel of the width
MARGIN = 6  # pixels


@dataclass(frozen=True)
class Row:
    """A reconstruction in figures; None: not measured."""

    program: str
    note: str
    wall: float  # seconds of all commands
    processor: float
    peak_mib: float  # of the largest process
    triangles: int | None = None
    points: int | None = None  # of the cloud
    mesh_median: float | None = None  # radii, of the held-out points to the mesh
    mesh_p90: float | None = None
    cloud_median: float | None = None  # radii, of the held-out points to the nearest point of the cloud
    cloud_p90: float | None = None


def run(program: Program, folder: Path, task: Task, threads: int) -> tuple[Row, Result | None]:
    """Run a program in its folder and measure its result; a failure is told in the note of the row."""
    used = execute(program, folder, threads)
    spent = (used["wall"], used["processor"], used["peak_bytes"] / MIB)
    if used["status"] != 0:
        words = (folder / LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["no output"]
        name = Path(used["command"][0]).name
        return Row(program.name, f"{name} ended with status {used['status']}: {words[-1]}", *spent), None
    try:
        result = program.read(folder)
    except UserError as error:
        return Row(program.name, f"no result: {error}", *spent), None
    return Row(program.name, result.note, *spent, **distances(result, task.witness)), result


def execute(program: Program, folder: Path, threads: int) -> dict[str, object]:
    """Run the commands in `folder`; returns what `clock.py` wrote. Raises UserError if that is nothing."""
    job = {
        "commands": program.commands,
        "folder": str(folder),
        "log": str(folder / LOG),
        "environment": environment(os.environ, threads),
        "used": str(folder / USED),
    }
    write_result(folder / JOB, json.dumps(job).encode())
    subprocess.run([sys.executable, "-I", "-S", str(CLOCK), str(folder / JOB)], check=False)
    try:
        return json.loads((folder / USED).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{program.name}: was ended from outside; repeat the command") from error


def distances(result: Result, witness: np.ndarray) -> dict[str, float | int]:
    """The figures of a row that tell of its result; witness: [W, 3]."""
    own = from_points(result.mesh, witness)
    found = {"mesh_median": own["points_median"], "mesh_p90": own["points_p90"], "triangles": len(result.mesh.faces)}
    if result.cloud is not None:
        own = from_points_to_cloud(result.cloud, witness)
        found |= {"points": len(result.cloud), "cloud_median": own["points_median"], "cloud_p90": own["points_p90"]}
    return found


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| program | held-out points to the mesh, median and 90 %, radii | to its nearest points | processor s "
        "| wall s | peak memory, MiB | triangles | note |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = (
            row.program,
            _pair(row.mesh_median, row.mesh_p90),
            _pair(row.cloud_median, row.cloud_p90),
            f"{row.processor:.0f}",
            f"{row.wall:.0f}",
            f"{row.peak_mib:.0f}",
            "-" if row.triangles is None else f"{row.triangles:,}",
            row.note.replace("|", "/") or "-",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def picture(task: Task, view: int, results: Sequence[tuple[str, Result]]) -> np.ndarray:
    """uint8 [h, w, 3]: a photograph, and the mesh of each program from the same camera."""
    width, height = task.scene.size(view)
    camera = (task.scene.intrinsics[view], task.scene.c2w[view], height, width)
    shown = [_titled("photograph", task.scene.images[view])]
    shown += [_titled(name, to_uint8(shade_mesh(result.mesh, *camera))) for name, result in results]
    return np.concatenate(shown, axis=1)


def _titled(title: str, image: np.ndarray) -> np.ndarray:
    """A copy with a title in the corner."""
    image = np.ascontiguousarray(image)
    height, width = image.shape[:2]
    for colour, thickness in (((255, 255, 255), 4), ((0, 0, 0), 1)):
        cv2.putText(
            image,
            title,
            (MARGIN, height - MARGIN),
            cv2.FONT_HERSHEY_SIMPLEX,
            LETTERS * width,
            colour,
            thickness,
            cv2.LINE_AA,
        )
    return image


def _pair(median: float | None, p90: float | None) -> str:
    return "-" if median is None or p90 is None else f"{median:.4f}, {p90:.4f}"
