"""What the tests of kinds of model from outside share: a small scene, a conf of its own, and the command line on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runs import ROOT, SHORT
from synthetic_scene import write_scene

import exp_runner
from data.scenes.sampler import PixelSampler
from models.machine.backend import jt
from models.methods.block import PlainBlock
from models.methods.protocol import PlainModel
from models.methods.registry import METHODS, Method
from models.rendering.losses import binary_mask

NO_PROBE = "train.ray_chunk=32"  # a chunk that is given needs no batch to measure its memory with
BLOCKS = ("general", "dataset", "train")  # what every conf has; none of the files of a kind that is built in


class ToyBlock(PlainBlock):
    """The block of a kind whose weights depend on no block: any one can go on from any other."""

    @property
    def network_blocks(self) -> tuple[str, ...]:
        """None."""
        return ()


@contextmanager
def registered(name: str, kind: Method) -> Iterator[None]:
    """Within it there is a further kind of model."""
    METHODS[name] = kind
    try:
        yield
    finally:
        del METHODS[name]


def write_conf(folder: Path, model: str) -> Path:
    """A scene of a coloured sphere, and a conf that trains the block `model` on it in small batches."""
    write_scene(folder / "scene")
    lines = [f'include required("{ROOT}/confs/base/{name}.conf")' for name in BLOCKS]
    lines += [
        f'general.base_exp_dir = "{folder / "exp"}"',
        f'dataset.data_dir = "{folder / "scene"}"',
        "train { learning_rate = 1e-2, batch_size = 32, report_freq = 1, mask_weight = 0.1 }",
        "train { validate_resolution_level = 2, mesh_resolution = 16 }",
        model,
    ]
    path = folder / "toy.conf"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def run_conf(conf: Path, folder: Path, *arguments: str, settings: tuple[str, ...] = SHORT) -> int:
    """The command line on a conf, into `folder`; returns the exit status."""
    assigned = (f"general.base_exp_dir={folder}", "general.recording=[]", *settings)
    flags = [flag for setting in assigned for flag in ("--set", setting)]
    return exp_runner.main(["--conf", str(conf), *arguments, *flags])


class PixelModel(PlainModel):
    """A kind whose batches are random pixels of one image after the other."""

    def sampler(self, scene, batch_size, generator):
        return PixelSampler(scene, batch_size, generator)


def photograph(batch, train):
    """Colours [R, 3] and 0/1 mask [R, 1] that a batch is compared with."""
    mask = None if batch.mask is None else jt.array(batch.mask)
    return jt.array(batch.rgb), binary_mask(mask, len(batch.rgb), train)
