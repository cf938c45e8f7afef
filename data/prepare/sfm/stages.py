"""The stages of structure from motion on the images of the work folder, each in a child process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.errors import UserError
from data.io.child import ChildError, run_apart
from data.io.clock import phase, seconds_left, so_far
from data.io.files import write_result
from data.prepare.frames import Frame, Group, cropped, position_of
from data.prepare.sfm import colmap_tasks, mapping, matches
from data.prepare.steps import Bar, WorkError

DATABASE = "database/matches.db"  # in its own folder, since SQLite writes its journals beside it
LOG = "colmap.log"
PAIR_LIST = "pairs.txt"
MODELS = "sparse"
IMAGES = "images"
MASKS = "masks"
FIRST_ROUND = ("features", "matches", "mapping")  # phases; the second round may take as long

LEAST_FREE = 1 << 24  # bytes; with less free space COLMAP's failure is attributed to a full disk


@dataclass(frozen=True)
class Source:
    """Which features are used, and where they are kept below the work folder."""

    database: str
    pairs: str
    masks: str = ""  # folder of the masks that contain the features; "" for features of whole images
    is_fine: bool = False  # features at full size, with the first octave
    is_optional: bool = False  # left out where the time is over


WHOLE = Source(DATABASE, PAIR_LIST)
OF_OBJECT = Source("object/matches.db", "object/pairs.txt", "object/masks", is_fine=True)
FURTHER, MORE = "more", "features"  # folder of further attempts, and that in it for images that are left out


class DiskError(WorkError):
    """The disk is full; the files written so far are intact."""


class TimeIsOver(Exception):
    """Of an optional source."""


def find_features(work: Path, cameras: Sequence[Group], source: Source = WHOLE) -> None:
    """Extract the features of all images into the database; raises WorkError if COLMAP fails."""
    (work / source.database).parent.mkdir(exist_ok=True)
    tasks = [(list(camera.names), max(camera.size), *_parameters(camera)) for camera in cameras]
    total = sum(len(camera.names) for camera in cameras)
    masks = str(work / source.masks) if source.masks else ""
    task, given = colmap_tasks.extract, (str(work / IMAGES), masks, source.is_fine, tasks)
    run_filling(work, source, "features", total, "descriptors", task, *given)


def _parameters(camera: Group) -> tuple[str, str]:
    """COLMAP's camera model and its parameters: of a known lens, else from EXIF, without distortion; "" if unknown."""
    if camera.lens:
        model, *parameters = camera.lens.split()
        return model, ",".join(parameters)
    if camera.focal is None:
        return colmap_tasks.CAMERA_MODEL, ""
    return colmap_tasks.CAMERA_MODEL, f"{camera.focal},{camera.size[0] / 2},{camera.size[1] / 2},0"


def match_features(work: Path, frames: Sequence[Frame], is_sequence: bool, source: Source = WHOLE) -> int:
    """Match the images; returns the number of pairs. Raises WorkError if COLMAP fails."""
    names = [frame.name for frame in frames]
    positions = [position_of(frame.source) for frame in frames]
    chosen = pairs_to_match(work / source.database, names, is_sequence, positions)
    match_pairs(work, source, [(names[i], names[j]) for i, j in chosen])
    return len(chosen)


def match_pairs(work: Path, source: Source, pairs: Sequence[tuple[str, str]]) -> None:
    """Match the pairs of names that were not matched before."""
    write_result(work / source.pairs, "".join(f"{a} {b}\n" for a, b in pairs).encode())
    task, given = colmap_tasks.match, str(work / source.pairs)
    run_filling(work, source, "matches", len(pairs), "two_view_geometries", task, given, unit="pair")


def pairs_to_match(
    database: Path, names: Sequence[str], is_sequence: bool, positions: Sequence[str] = ()
) -> list[tuple[int, int]]:
    """The pairs of indices of images to match, see `similar_pairs`; raises WorkError if the database is damaged."""
    if is_sequence:
        return matches.sequence_pairs(len(names))
    if len(names) <= matches.EXHAUSTIVE_LIMIT:
        return matches.all_pairs(len(names))
    with phase("matches"):
        return matches.similar_pairs(matches.read_largest(database, names, matches.COARSE_FEATURES), positions)


def mapped(work: Path, frames: Sequence[Frame], source: Source, models: str) -> mapping.MappingResult:
    """The result of `mapping.reconstruct`, with the models in work/`models`; raises UserError if the camera stood."""
    with phase("mapping"), Bar("mapping", len(frames)) as bar:
        result: mapping.MappingResult = apart(
            work,
            source,
            mapping.reconstruct,
            *(str(work / part) for part in (source.database, IMAGES, models)),
            cores(),
            {frame.name: frame.reduction for frame in cropped(frames)},
            any(frame.lens for frame in frames),
            on_event=lambda event: bar.reset() if event == "start" else bar.update(2 if event == "pair" else 1),
        )
    if result.lens_contradiction:
        change, other_error, error = result.lens_contradiction
        raise UserError(
            f"--lens: the photographs fit a focal length {change:+.1%} off, with a reprojection error of "
            f"{other_error:.2f} instead of {error:.2f} px: the lens or its zoom was changed; leave --lens out, or name "
            "the case of this lens"
        )
    # Only the incremental mapper does not find cameras without parallax; more images of the same kind would not help.
    n_left = len(left_out(result, frames))
    if result.mapper != mapping.INCREMENTAL or n_left >= (1 - colmap_tasks.LEAST_SHARE) * len(frames):
        sides = {frame.name: max(frame.width, frame.height) for frame in frames}
        share = matches.share_of_still_pairs(work / source.database, sides)
        if share >= matches.MOSTLY:
            raise UserError(
                f"no cameras were found: in {share:.0%} of the pairs of photographs the matches do not move, so the "
                "camera stood still; walk around the object instead, pass a folder of its masks (--masks), or rotate "
                "it in front of a plain backdrop without texture, close enough to fill the image"
            )
    return result


def left_out(result: mapping.MappingResult, frames: Sequence[Frame]) -> list[str]:
    """The names of the images that are not in the first model."""
    posed = {name for model in result.models[:1] for name in model["names"]}
    return [frame.name for frame in frames if frame.name not in posed]


def require_time() -> None:
    """Raises TimeIsOver unless a second round can be as long as the first one."""
    if seconds_left() < sum(spent.wall for name, spent in so_far().items() if name in FIRST_ROUND):
        raise TimeIsOver


def run_filling(
    work: Path,
    source: Source,
    name: str,
    total: int,
    table: str,
    task: Callable[..., Any],
    *arguments: object,
    unit: str = "photo",
) -> None:
    """Run a task that fills a table of the database, with a progress bar that counts its rows."""
    database = work / source.database
    with phase(name), Bar(name, total, unit) as bar:

        def count() -> None:
            bar.to(matches.count_rows(database, table, bar.n))

        apart(work, source, task, str(database), *arguments, cores(), on_wait=count)
        count()


def apart(
    work: Path,
    source: Source,
    task: Callable[..., Any],
    *arguments: object,
    on_wait: Callable[[], None] = lambda: None,
    **options: Any,
) -> Any:
    """`run_apart`; raises WorkError if the library fails, naming its log, DiskError, TimeIsOver."""

    def wait() -> None:
        on_wait()
        if source.is_optional and seconds_left() < 0:
            raise TimeIsOver

    try:
        return run_apart(task, *arguments, log=work / LOG, on_wait=wait, **options)
    except ChildError as error:
        if shutil.disk_usage(work).free < LEAST_FREE:
            raise DiskError(f"{work}: the disk is full; free some space and prepare again, which continues") from error
        raise WorkError(f"COLMAP failed ({error}); see its log {work / LOG}") from error


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0))
