"""Structure from motion on the images of the work folder: mapping, and further attempts where that is not enough."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from data.errors import UserError, listed
from data.io.files import remove
from data.prepare.frames import Frame, cropped, groups
from data.prepare.sfm import colmap_tasks, lenses, matches
from data.prepare.sfm.mapping import HOLDING, MappingResult
from data.prepare.sfm.stages import (
    FURTHER,
    MODELS,
    MORE,
    WHOLE,
    Source,
    TimeIsOver,
    apart,
    find_features,
    left_out,
    mapped,
    match_pairs,
    require_time,
)
from data.prepare.sfm.twins import STRONG
from data.prepare.sources import MIN_IMAGES
from data.prepare.walk import look_alike

MOST_ATTEMPTS = 5  # with other lenses
LEAST_WITHOUT_TWINS = 0.8  # of the images of a model in which sides lie on each other
# Of 36 crops with estimated centres rotations are off by 0.9 degrees (at most 2.1), rays by 0.15 (0.25), positions by
# 0.2 % of their distance (0.3 %).
TURNED = "; cameras may be turned by {} degrees, and the shape distorted: use the uncropped photographs"
ESTIMATED_CENTRES = "the centres of cropped photographs are estimated: {}" + TURNED.format("two")
UNKNOWN_CENTRES = "the centres of cropped photographs are not known: {}" + TURNED.format("several")
FEW_POINTS = (
    f"fewer than {HOLDING} points hold the cameras of {{}}; these may be off by some degrees: take photographs beside "
    "them, or leave them out"
)
HINT = "take more photographs between them, sharp and each overlapping the next by two thirds"
CONTRADICTING = (
    "others have much in common with these, but contradict them, as sides that look alike do, or an object that moved; "
    "put something different on these sides or the ground"
)
NO_POINTS = (
    "no cameras were found: the photographs have features in common, but only {points} points could be located, so the "
    "camera hardly moved"
)
LONG_LENS = (
    ", or a long lens is not known as such; walk around the object, or write the focal length of the lens (35 mm "
    "equivalent) into EXIF"
)
KNOWN_LENS = " or the lens of --lens is another one; walk around the object, in more photographs, or leave --lens out"


def map_images(work: Path, frames: Sequence[Frame], source: Source = WHOLE) -> dict[str, Any]:
    """Run the mappers; returns the largest model as described by `described_model`, with "notes".

    "remarks" are those that belong to the scene, "doubt" is what `look_alike` says, "limit" what crops and few
    points mean for the cameras, "" for nothing.

    Where its lenses do not fit, other ones are tried; where it has not all images, more features of the others; both if
    that is not out of time (`ends_at`). Raises UserError, with an explanation from the matches, if there is no model or
    it has too few of the images.
    """
    called = {frame.name: frame.source for frame in frames}
    links = matches.read_links(work / source.database, called)
    sources = list(called.values())
    notes: list[str] = []
    remove(work / FURTHER)
    try:
        result = mapped(work, frames, source, MODELS)
        for attempt, lack in ATTEMPTS.items():
            try:
                source, result = attempt(work, frames, source, result, notes)
            except TimeIsOver:
                notes.append(f"{lack.format(count=len(left_out(result, frames)))}: --minutes is too short")
    finally:
        remove(work / FURTHER)
    models = result.models
    if not models:
        raise UserError(f"no cameras were found: {matches.why_disconnected(sources, links)}; {HINT}")
    if not _is_usable(result):
        way = KNOWN_LENS if any(frame.lens for frame in frames) else LONG_LENS
        raise UserError(NO_POINTS.format(points=models[0]["points"]) + way)
    largest = {**models[0], "names": [called[name] for name in models[0]["names"]]}
    missing = [source for source in sources if source not in set(largest["names"])]
    if len(largest["names"]) < MIN_IMAGES or len(largest["names"]) <= colmap_tasks.LEAST_SHARE * len(frames):
        known = set(largest["names"])
        strong = [pair for pair, count in links.items() if count >= STRONG and len(known.intersection(pair)) == 1]
        why = CONTRADICTING if len(strong) >= len(missing) else f"{matches.why_disconnected(sources, links)}; {HINT}"
        raise UserError(
            f"cameras were found for {len(largest['names'])} of {len(frames)} photographs only: {why}, or use only one "
            "group"
        )
    doubt = look_alike([(called[one], called[other]) for one, other in result.torn])
    if result.uncentred_error is not None:
        notes.append(
            "the centres of cropped photographs are estimated, with one focal length for all: reprojection error "
            f"{result.models[0]['error']:.2f} px instead of {result.uncentred_error:.2f} px"
        )
    weak = [FEW_POINTS.format(listed([called[name] for name in models[0]["weak"]]))] if models[0]["weak"] else []
    others = [*([doubt] if doubt else []), *weak]
    others += _notes(models, called, missing, matches.components(sources, links))
    crops = [frame.source for frame in cropped(frames)]
    centres = UNKNOWN_CENTRES if result.uncentred_error is None else ESTIMATED_CENTRES
    limit = "; ".join([*weak, *([centres.format(listed(crops))] if crops else [])])
    of_scene = {"remarks": notes, "doubt": doubt, "limit": limit}
    return {**largest, "notes": [*_mapper_notes(result, called), *notes, *others], **of_scene}


def _is_usable(result: MappingResult) -> bool:
    """Whether the first model has enough points."""
    return any(model["points"] >= lenses.LEAST_POINTS * len(model["names"]) for model in result.models[:1])


def _further(work: Path, source: Source, name: str, is_optional: bool = True) -> Source:
    """A copy of a source for another attempt, in a new folder; raises TimeIsOver if it is to be left out."""
    if is_optional:
        require_time()
    folder = f"{FURTHER}/{name}"
    (work / folder).mkdir(parents=True)
    further = replace(source, database=f"{folder}/matches.db", pairs=f"{folder}/pairs.txt", is_optional=is_optional)
    matches.copy_database(work / source.database, work / further.database)
    return further


def _used(work: Path, source: Source) -> None:
    """Replace the models by those that `mapped` has put beside the database of a further source."""
    remove(work / MODELS)
    ((work / source.database).parent / MODELS).rename(work / MODELS)


def _with_other_lenses(
    work: Path, frames: Sequence[Frame], source: Source, result: MappingResult, notes: list[str]
) -> tuple[Source, MappingResult]:
    """The source and result with the lenses that `lenses.other_lenses` proposes, as long as they are better.

    Appends a note for each that is used.
    """
    proposed = list(result.other_lenses)
    for attempt in range(MOST_ATTEMPTS):
        if not proposed:
            break
        words, given = proposed.pop(0)
        further = _further(work, source, f"lenses{attempt}", is_optional=_is_usable(result))
        apart(work, further, lenses.give_lenses, str(work / further.database), given)
        again = mapped(work, frames, further, str(Path(further.database).parent / MODELS))
        errors = [one.models[0]["error"] if _is_usable(one) else math.inf for one in (result, again)]
        if errors[1] >= errors[0] or (_is_usable(result) and again.score <= result.score):
            continue
        gain = f"{errors[1]:.2f} px" + (f" instead of {errors[0]:.2f} px" if _is_usable(result) else "")
        notes.append(f"the cameras are estimated {words}, which fits better: reprojection error {gain}")
        source, result, proposed = further, again, list(again.other_lenses)
        _used(work, further)
    return source, result


def _without_twins(
    work: Path, frames: Sequence[Frame], source: Source, result: MappingResult, notes: list[str]
) -> tuple[Source, MappingResult]:
    """The source and result without the matches of sides that look alike, if these are then no longer on each other.

    Appends a note if they are used.
    """
    if not result.wrong or not _is_usable(result):
        return source, result
    further = _further(work, source, "twins")
    matches.forget_pairs(work / further.database, result.wrong)
    again = mapped(work, frames, further, str(Path(further.database).parent / MODELS))
    least = LEAST_WITHOUT_TWINS * len(result.models[0]["names"])
    if again.torn or not _is_usable(again) or len(again.models[0]["names"]) < least:
        return source, result
    _used(work, further)
    notes.append(
        f"different sides look alike: the matches of {len(result.wrong)} pairs of photographs, which contradict "
        "their order or the others, are not used; compare the cameras in overview.png with your way around it"
    )
    return further, again


def _has_more(work: Path, frames: Sequence[Frame], source: Source) -> bool:
    """Whether there are pairs that were not matched, or features that were not extracted."""
    is_fine = source.is_fine or all(max(frame.width, frame.height) < colmap_tasks.SMALL_SIDE for frame in frames)
    count = matches.count_rows(work / source.database, "two_view_geometries", 0)
    return not is_fine or count < len(matches.all_pairs(len(frames)))


def _with_more(
    work: Path, frames: Sequence[Frame], source: Source, result: MappingResult, notes: list[str]
) -> tuple[Source, MappingResult]:
    """The same, or the result with more features of the images that are left out, and all pairs of these, if it has
    more images.
    """
    left, names = left_out(result, frames), [frame.name for frame in frames]
    if not (left and _is_usable(result) and _has_more(work, frames, source)):
        return source, result
    further = _further(work, source, MORE)
    if not source.is_fine:
        matches.forget_images(work / further.database, left)
    find_features(work, groups(frames), replace(further, is_fine=True))
    pairs = [(names[i], names[j]) for i, j in matches.all_pairs(len(names))]
    match_pairs(work, further, [pair for pair in pairs if not set(left).isdisjoint(pair)])
    again = mapped(work, frames, further, str(Path(further.database).parent / MODELS))
    if len(left_out(again, frames)) >= len(left):
        return source, result
    _used(work, further)
    notes.append(f"more features and pairs gave cameras of {len(left) - len(left_out(again, frames))} more photographs")
    return further, again


ATTEMPTS = {
    _with_other_lenses: "other focal lengths, which may fit better, were not tried",
    _without_twins: "matches of sides that may look alike were not separated",
    _with_more: "more features of {count} photographs without a camera were not tried",
}


def _mapper_notes(result: MappingResult, called: Mapping[str, str]) -> list[str]:
    """Notes on the choice of the mapper, and on images whose cameras did not agree with the matches."""
    notes = []
    if len(result.image_counts) > 1:
        sizes = ", ".join(f"{name} {count}" for name, count in result.image_counts.items())
        notes.append(f"photographs with cameras by mapper: {sizes}; the {result.mapper} one is used")
    if result.disagreeing:
        named = listed([called[name] for name in result.disagreeing])
        notes.append(f"cameras that do not agree with the matches, or have too few, are left out: {named}")
    return notes


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
