"""Decides from log and metrics whether a training collapsed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import cv2
import numpy as np

from data.scenes.scene import Scene
from models.evaluation.collapse import BLUR, FALL, JUDGED_FROM
from models.evaluation.image_metrics import compare, mean
from models.results.render import RenderedView

SCORE = re.compile(r"INFO step (\d+): PSNR of \d+ (?:held-out|training) views (-?[\d.]+) dB")
SKIPPED = re.compile(r"WARNING step \d+ skipped:")
WENT_BACK = re.compile(r"WARNING .*returning to ")
RESTORED = re.compile(r"WARNING step (\d+): the training ends with the weights of step \d+, (-?[\d.]+) dB")
SURFACES = ("fast", "geo", "surfels")  # recipes that are for meshes


def collapse(result: Mapping[str, Any]) -> str:
    """Why a run counts as collapsed; "" if it does not.

    A run has collapsed if the training or its evaluation ended with a status other than 0 (as a training below its
    blurred photographs, or without a surface, does), if after at least JUDGED_FROM steps its held-out PSNR is below
    that of the blurred photographs, if its last score is more than FALL dB below that of an earlier checkpoint, or if a
    recipe for surfaces yields no triangles. If the exposure varies, the last score, whose colours are aligned, replaces
    the held-out PSNR.
    """
    if result["train_status"] or result["evaluate_status"]:
        which = "training" if result["train_status"] else "evaluation"
        status = result["train_status"] or result["evaluate_status"]
        return f"{which} ended with status {status}: {result['message']}"
    is_judged = result["steps"] >= JUDGED_FROM
    scores = [score for _, score in result["scores"]]
    psnr, blurred = scores[-1] if result["exposure_varies"] and scores else result["psnr"], result["blurred"]
    if is_judged and psnr is not None and blurred is not None and psnr < blurred:
        return f"{psnr:.1f} dB, below {blurred:.1f} dB of the blurred photographs"
    if scores and scores[-1] < max(scores) - FALL:
        return f"fell from {max(scores):.1f} dB to {scores[-1]:.1f} dB"
    if result["conf"] in SURFACES and not result["triangles"]:
        return "no surface"
    return ""


def from_log(text: str) -> dict[str, Any]:
    """From a train.log: `scores` [step, dB] of checkpoints, numbers of `skipped` steps and of `returns` to an earlier
    checkpoint.
    """
    return {
        "scores": [[int(step), float(score)] for step, score in (*SCORE.findall(text), *RESTORED.findall(text))],
        "skipped": len(SKIPPED.findall(text)),
        "returns": len(WENT_BACK.findall(text)),
    }


def blurred_psnr(held_out: Scene) -> dict[str, float | None]:
    """`psnr` and `psnr_mask` of the held-out photographs blurred by BLUR, compared with themselves."""
    views = []
    for view in range(held_out.n_views):
        photograph = held_out.rgb_image(view)
        soft = cv2.GaussianBlur(photograph, (0, 0), BLUR * max(photograph.shape[:2]))
        flat = np.zeros(photograph.shape[:2], np.float32)
        rendering = RenderedView(soft, np.zeros_like(photograph), flat, flat)
        views.append(compare(rendering, photograph, held_out.mask_image(view)))
    found = mean(views)
    return {"psnr": found.psnr, "psnr_mask": found.psnr_mask}
