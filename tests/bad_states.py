"""Checkpoints of ours under a checksum that fits, whose state or arrays this program cannot have written."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
from bad_input_builders import CONF, Change, checkpoint, stateful
from checkpoint_samples import make_checkpoint

OURS = "ckpt_000003.safetensors"
PCG = np.random.PCG64(0).state
SAMPLER = {"order": [2, 0, 1, 3], "position": 1, "generator": PCG}
GOOD_STATE = {
    "seconds": 1.5,
    "ray_chunk": {"rays": 4, "for": [8, "auto"]},
    "scene_to_world": np.eye(4).tolist(),
    "sampler": SAMPLER,
    "jitter": PCG,
}
FOREIGN = np.random.MT19937(0).state | {"state": {"key": [1, 2], "pos": 0}}


def bound(**changes: object) -> Change:
    """A checkpoint whose state is good but for these keys; None for a key that is missing."""
    state = {key: value for key, value in (GOOD_STATE | changes).items() if value is not None}
    return checkpoint(OURS, stateful(state=state))


def moments(moment: str, number: float, kind: str = "f4") -> Change:
    """A checkpoint with this number in a moment."""
    whole = make_checkpoint()
    named = {name: values.astype(kind) for name, values in whole.moments[moment].items()}
    next(iter(named.values()))[2] = number
    return checkpoint(OURS, stateful(moments=whole.moments | {moment: named}))


def header(kind: str, count: int, state: object, item: int) -> bytes:
    """The start of a file that claims one array of this kind; the checksum comes too late to matter."""
    metadata = {"format": "neus-jittor", "schema": "1", "step": "3", "adam_steps": "3", "sha256": "0"}
    entry = {"dtype": kind, "shape": [count], "data_offsets": [0, count * item]}
    metadata["state"] = json.dumps(state)
    text = json.dumps({"__metadata__": metadata, "network/sdf_network_fine/lin0.bias": entry}).encode()
    return struct.pack("<Q", len(text)) + text


def giant(count: int, state: object) -> Change:
    """A file of `count` numbers, all of them holes."""

    def change(folder: Path) -> list[str]:
        start = header("F32", count, state, 4)
        with open(folder / OURS, "wb") as file:
            file.write(start)
            file.truncate(len(start) + 4 * count)
        return ["--mode", "validate_mesh", "--checkpoint", OURS]

    return change


BAD_STATES: dict[str, tuple[Change, list[str]]] = {
    "seconds in words": (bound(seconds="1.5"), [OURS, "seconds"]),
    "seconds without end": (bound(seconds=float("inf")), [OURS, "seconds"]),
    "seconds that are NaN": (bound(seconds=float("nan")), [OURS, "seconds"]),
    "seconds below zero": (bound(seconds=-1), [OURS, "seconds"]),
    "seconds beyond float64": (bound(seconds=10**400), [OURS, "seconds"]),
    "seconds that are true": (bound(seconds=True), [OURS, "seconds"]),
    "a ragged matrix": (bound(scene_to_world=[[1, 0], [0]]), [OURS, "scene_to_world"]),
    "a matrix of texts": (bound(scene_to_world=[["1"] * 4] * 4), [OURS, "scene_to_world"]),
    "a matrix of three rows": (bound(scene_to_world=np.eye(4)[:3].tolist()), [OURS, "scene_to_world"]),
    "a matrix with NaN": (bound(scene_to_world=np.full((4, 4), np.nan).tolist()), [OURS, "scene_to_world"]),
    "a matrix that is a number": (bound(scene_to_world=1), [OURS, "scene_to_world"]),
    "a matrix without size": (bound(scene_to_world=np.zeros((4, 4)).tolist()), [OURS, "scene_to_world"]),
    "no jitter": (bound(jitter=None), [OURS, "only one of sampler and jitter"]),
    "no sampler": (bound(sampler=None), [OURS, "only one of sampler and jitter"]),
    "jitter in words": (bound(jitter="PCG64"), [OURS, "jitter"]),
    "jitter of another generator": (bound(jitter=FOREIGN), [OURS, "jitter"]),
    "jitter named after another": (bound(jitter=PCG | {"bit_generator": "SFC64"}), [OURS, "jitter"]),
    "jitter beyond 128 bits": (bound(jitter=PCG | {"state": {"state": 2**128, "inc": 1}}), [OURS, "jitter"]),
    "jitter with a fraction": (bound(jitter=PCG | {"uinteger": 0.5}), [OURS, "jitter"]),
    "an order that is none": (bound(sampler=SAMPLER | {"order": [0, 0, 1, 2]}), [OURS, "order", "permutation"]),
    "an order of texts": (bound(sampler=SAMPLER | {"order": ["0", "1"]}), [OURS, "order", "permutation"]),
    "an empty order": (bound(sampler=SAMPLER | {"order": []}), [OURS, "order", "permutation"]),
    "a position beyond the order": (bound(sampler=SAMPLER | {"position": 5}), [OURS, "position"]),
    "a sampler without a generator": (bound(sampler={"order": [0], "position": 0}), [OURS, "has no generator"]),
    "a sampler with another's generator": (bound(sampler=SAMPLER | {"generator": FOREIGN}), [OURS, "sampler"]),
    "a chunk of no rays": (bound(ray_chunk={"rays": 0, "for": [8, "auto"]}), [OURS, "number of rays"]),
    "a chunk of less than none": (bound(ray_chunk={"rays": -1, "for": [8, "auto"]}), [OURS, "number of rays"]),
    "a chunk beyond its batch": (bound(ray_chunk={"rays": 9, "for": [8, "auto"]}), [OURS, "number of rays"]),
    "a chunk in words": (bound(ray_chunk={"rays": "4", "for": [8, "auto"]}), [OURS, "number of rays"]),
    "a chunk for no batch": (bound(ray_chunk={"rays": 4, "for": 8}), [OURS, "ray_chunk"]),
    "a chunk that is a number": (bound(ray_chunk=4), [OURS, "ray_chunk"]),
    "a negative second moment": (moments("exp_avg_sq", -1.0), [OURS, "exp_avg_sq", "negative"]),
    "an infinite second moment": (moments("exp_avg_sq", np.inf), [OURS, "exp_avg_sq", "not finite"]),
    "an infinite first moment": (moments("exp_avg", np.inf), [OURS, "exp_avg", "not finite"]),
    "a first moment that is NaN": (moments("exp_avg", np.nan), [OURS, "exp_avg", "not finite"]),
    "a first moment beyond float32": (moments("exp_avg", 1e300, "f8"), [OURS, "exp_avg", "not finite"]),
    "weights in eight bits": (checkpoint(OURS, header("F8_E4M3", 4, {}, 1) + bytes(4)), [OURS, "F8_E4M3"]),
    "weights in bfloat16": (checkpoint(OURS, header("BF16", 4, {}, 2) + bytes(8)), [OURS, "BF16"]),
    "complex weights": (checkpoint(OURS, header("C64", 4, {}, 8) + bytes(32)), [OURS, "C64"]),
    "weights that are whole": (checkpoint(OURS, header("I64", 4, {}, 8) + bytes(32)), [OURS, "I64"]),
    "a giant of holes": (giant(1 << 38, {}), [OURS, "its networks need"]),
    "a giant of holes with a conf": (giant(1 << 32, {"conf": CONF}), [OURS, "its networks need"]),
    "a giant whose conf asks for one": (
        giant(1 << 40, {"conf": CONF.replace("d_hidden = 256", "d_hidden = 1000000")}),
        [OURS, "does not fit into memory"],
    ),
}
