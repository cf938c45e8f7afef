"""Structure from motion on the images of the work folder: features, matches, mapping."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from data.errors import UserError, listed
from data.io.child import ChildError, run_apart
from data.io.clock import phase, seconds_left, so_far
from data.io.files import remove, write_result
from data.prepare.frames import Frame, Group, groups
from data.prepare.sfm import colmap_tasks, mapping, matches
from data.prepare.sources import MIN_IMAGES
from data.prepare.steps import Bar, WorkError

DATABASE = "database/matches.db"  # in its own folder, since SQLite writes its journals beside it
LOG = "colmap.log"
PAIR_LIST = "pairs.txt"
MODELS = "sparse"
IMAGES = "images"
MASKS = "masks"
FIRST_ROUND = ("features", "matches", "mapping")  # phases; the second round may take as long

LEAST_FREE = 1 << 24  # bytes; with less free space COLMAP's failure is attributed to a full disk
HINT = "take more photographs between them, sharp and each overlapping the next by two thirds"


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
MORE = Source("more/matches.db", "more/pairs.txt", is_fine=True, is_optional=True)  # of images that are left out


class DiskError(WorkError):
    """The disk is full; the files written so far are intact."""


class _TimeIsOver(Exception):
    """Of the second round."""


def find_features(work: Path, cameras: Sequence[Group], source: Source = WHOLE) -> None:
    """Extract the features of all images into the database; raises WorkError if COLMAP fails."""
    (work / source.database).parent.mkdir(exist_ok=True)
    tasks = [(list(camera.names), max(camera.size), _parameters(camera)) for camera in cameras]
    total = sum(len(camera.names) for camera in cameras)
    masks = str(work / source.masks) if source.masks else ""
    task, given = colmap_tasks.extract, (str(work / IMAGES), masks, source.is_fine, tasks)
    _run(work, source, "features", total, "descriptors", task, *given)


def _parameters(camera: Group) -> str:
    """COLMAP's camera parameters from EXIF: focal length, cx, cy, radial distortion; "" if unknown."""
    if camera.focal is None:
        return ""
    return f"{camera.focal},{camera.size[0] / 2},{camera.size[1] / 2},0"


def match_features(work: Path, frames: Sequence[Frame], is_sequence: bool, source: Source = WHOLE) -> int:
    """Match the images; returns the number of pairs. Raises WorkError if COLMAP fails."""
    names = [frame.name for frame in frames]
    chosen = _pairs(work / source.database, names, is_sequence)
    _match(work, source, [(names[i], names[j]) for i, j in chosen])
    return len(chosen)


def _match(work: Path, source: Source, pairs: Sequence[tuple[str, str]]) -> None:
    """Match the pairs of names that were not matched before."""
    write_result(work / source.pairs, "".join(f"{a} {b}\n" for a, b in pairs).encode())
    task, given = colmap_tasks.match, str(work / source.pairs)
    _run(work, source, "matches", len(pairs), "two_view_geometries", task, given, unit="pair")


def _pairs(database: Path, names: Sequence[str], is_sequence: bool) -> list[tuple[int, int]]:
    """The pairs of indices of images to match; raises WorkError if the database is damaged."""
    if is_sequence:
        return matches.sequence_pairs(len(names))
    if len(names) <= matches.EXHAUSTIVE_LIMIT:
        return matches.all_pairs(len(names))
    with phase("matches"):
        return matches.similar_pairs(matches.read_largest(database, names, matches.COARSE_FEATURES))


def map_images(work: Path, frames: Sequence[Frame], source: Source = WHOLE) -> dict[str, Any]:
    """Run the mappers; returns the largest model as described by `mapping.reconstruct`, with "notes".

    Where it has not all images, once more with more features of the others, if that is not out of time (`ends_at`).
    Raises UserError, with an explanation from the matches, if there is no model or it has too few of the images.
    """
    called = {frame.name: frame.source for frame in frames}
    links = matches.read_links(work / source.database, called)
    sources = list(called.values())
    found = _mapped(work, frames, source, MODELS)
    left = _left_out(found, frames)
    late = []
    if left and _has_more(frames, links, source):
        try:
            found = _mapped_with_more(work, frames, source, left, found)
        except _TimeIsOver:
            late = [f"more features of {len(left)} photographs without a camera were not tried: --minutes is too short"]
    models = found["models"]
    if not models:
        raise UserError(f"no cameras were found: {matches.why_disconnected(sources, links)}; {HINT}")
    largest = {**models[0], "names": [called[name] for name in models[0]["names"]]}
    missing = [source for source in sources if source not in set(largest["names"])]
    if len(largest["names"]) < MIN_IMAGES or len(largest["names"]) <= colmap_tasks.LEAST_SHARE * len(frames):
        raise UserError(
            f"cameras were found for {len(largest['names'])} of {len(frames)} photographs only: "
            f"{matches.why_disconnected(sources, links)}; {HINT}, or use only one group"
        )
    notes = [*_mapper_notes(found, called), *late, *_notes(models, called, missing, matches.components(sources, links))]
    return {**largest, "notes": notes}


def _mapped(work: Path, frames: Sequence[Frame], source: Source, models: str) -> dict[str, Any]:
    """The result of `mapping.reconstruct`, with the models in the folder `models`; UserError if the camera stood."""
    with phase("mapping"), Bar("mapping", len(frames)) as bar:
        found = _apart(
            work,
            source,
            mapping.reconstruct,
            *(str(work / part) for part in (source.database, IMAGES, models)),
            _cores(),
            on_event=lambda event: bar.reset() if event == "start" else bar.update(2 if event == "pair" else 1),
        )
    # Only the incremental mapper does not find cameras without parallax.
    n_left = len(_left_out(found, frames))
    if found["mapper"] != mapping.INCREMENTAL or n_left >= (1 - colmap_tasks.LEAST_SHARE) * len(frames):
        _require_moved(work / source.database, frames)
    return found


def _left_out(found: Mapping[str, Any], frames: Sequence[Frame]) -> list[str]:
    """The names of the images that are not in the first model."""
    posed = {name for model in found["models"][:1] for name in model["names"]}
    return [frame.name for frame in frames if frame.name not in posed]


def _has_more(frames: Sequence[Frame], links: Collection[tuple[str, str]], source: Source) -> bool:
    """Whether there are pairs that were not matched, or features that were not extracted."""
    is_fine = source.is_fine or all(max(frame.width, frame.height) < colmap_tasks.SMALL_SIDE for frame in frames)
    return not is_fine or len(links) < len(matches.all_pairs(len(frames)))


def _mapped_with_more(
    work: Path, frames: Sequence[Frame], source: Source, left: Sequence[str], before: dict[str, Any]
) -> dict[str, Any]:
    """`before`, or the result with more features of the images `left` and all pairs of these if it has more images."""
    folder, more = (work / MORE.database).parent, replace(MORE, masks=source.masks)
    remove(folder)
    if seconds_left() < sum(spent.wall for name, spent in so_far().items() if name in FIRST_ROUND):
        raise _TimeIsOver
    try:
        folder.mkdir()
        matches.copy_without(work / source.database, work / more.database, [] if source.is_fine else left)
        find_features(work, groups(frames), more)
        names = [frame.name for frame in frames]
        pairs = [(names[i], names[j]) for i, j in matches.all_pairs(len(names))]
        _match(work, more, [pair for pair in pairs if not set(left).isdisjoint(pair)])
        found = _mapped(work, frames, more, str(folder / MODELS))
        if len(_left_out(found, frames)) >= len(left):
            return before
        remove(work / MODELS)
        (folder / MODELS).rename(work / MODELS)
        return {**found, "added": len(left) - len(_left_out(found, frames))}
    finally:
        remove(folder)


def _mapper_notes(found: Mapping[str, Any], called: Mapping[str, str]) -> list[str]:
    """Notes on the choice of the mapper, and on images whose cameras did not agree with the matches."""
    notes = []
    if added := found.get("added"):
        notes.append(f"more features and pairs gave cameras of {added} more photographs")
    if len(found["tried"]) > 1:
        sizes = ", ".join(f"{name} {count}" for name, count in found["tried"].items())
        notes.append(f"photographs with cameras by mapper: {sizes}; the {found['mapper']} one is used")
    if found["doubtful"]:
        named = listed([called[name] for name in found["doubtful"]])
        notes.append(f"cameras that do not agree with the matches are left out: {named}")
    return notes


def _require_moved(database: Path, frames: Sequence[Frame]) -> None:
    """Raises UserError if the camera did not move, which more images of the same kind would not fix."""
    sides = {frame.name: max(frame.width, frame.height) for frame in frames}
    share = matches.share_of_still_pairs(database, sides)
    if share >= matches.MOSTLY:
        raise UserError(
            f"no cameras were found: in {share:.0%} of the pairs of photographs the matches do not move, so the camera "
            "stood still; walk around the object instead, pass a folder of its masks (--masks), or rotate it in front "
            "of a plain backdrop without texture, close enough to fill the image"
        )


def _notes(
    models: Sequence[Mapping[str, Any]],
    called: Mapping[str, str],
    missing: Sequence[str],
    parts: Sequence[Sequence[str]],
) -> list[str]:
    """Notes on models and images that are left out."""
    notes, kept = [], set(models[0]["names"])
    others = [names for model in models[1:] if (names := [called[name] for name in model["names"] if name not in kept])]
    if others:
        notes.append(
            f"{1 + len(others)} models without a common frame; the largest, of {len(kept)} photographs, is kept, left "
            f"out: {'; '.join(map(listed, others))}"
        )
    if missing:
        alone = [name for name in missing if name not in parts[0]]
        why = f"; without enough points in common with the others: {listed(alone)}" if alone else ""
        notes.append(f"no camera was found for {len(missing)} of {len(called)} photographs: {listed(missing)}{why}")
    return notes


def _run(
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

        _apart(work, source, task, str(database), *arguments, _cores(), on_wait=count)
        count()


def _apart(
    work: Path,
    source: Source,
    task: Callable[..., Any],
    *arguments: object,
    on_wait: Callable[[], None] = lambda: None,
    **options: Any,
) -> Any:
    """`run_apart`; raises WorkError if the library fails, naming its log, DiskError, _TimeIsOver."""

    def wait() -> None:
        on_wait()
        if source.is_optional and seconds_left() < 0:
            raise _TimeIsOver

    try:
        return run_apart(task, *arguments, log=work / LOG, on_wait=wait, **options)
    except ChildError as error:
        if shutil.disk_usage(work).free < LEAST_FREE:
            raise DiskError(f"{work}: the disk is full; free some space and prepare again, which continues") from error
        raise WorkError(f"COLMAP failed ({error}); see its log {work / LOG}") from error


def _cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0))
