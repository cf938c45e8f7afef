"""`--mode prepare`: from the command line to `data.prepare`, and what to do next. Jittor is not loaded."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from data.config import DatasetConfig
from data.prepare.pipeline import Request, prepare
from data.prepare.products import OVERVIEW
from models.arguments import Arguments

SCENES = Path("public_data")  # where the published confs look for CASE_NAME


def run(arguments: Arguments, dataset: DatasetConfig, say: Callable[[str], None]) -> None:
    """Prepare the scene that the arguments name and say what to do next; raises UserError as `prepare`."""
    target = SCENES / arguments.case if arguments.conf is None else Path(dataset.data_dir)
    request = Request(
        images=arguments.images,
        target=target,
        frames=arguments.frames,
        masks=arguments.masks,
        overwrite=arguments.overwrite,
        roi=dataset.roi,
    )
    is_new = prepare(request, say)
    say(f"look at {target / OVERVIEW}: the sphere has to hold what is to be reconstructed")
    say(f"{target}: {'is ready' if is_new else 'is ready already (--overwrite makes it anew)'}")
    for line in next_steps(arguments, (target / "mask").is_dir()):
        say(line)


def next_steps(arguments: Arguments, has_masks: bool) -> list[str]:
    """The commands that follow, one a line."""
    conf = arguments.conf or Path(f"confs/{'wmask' if has_masks else 'womask'}.conf")
    flags = [*_flag("--conf", str(conf)), *_flag("--case", arguments.case)]
    return [f"next: python exp_runner.py {shlex.join([*flags, *more])}" for more in (["--mode", "inspect"], [])]


def _flag(name: str, value: str) -> list[str]:
    """A flag with its value, [] for none; with an equals sign, a value that starts with a dash is none the less one."""
    if value.startswith("-"):
        return [f"{name}={value}"]
    return [name, value] if value else []
