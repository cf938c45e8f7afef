"""Cameras and points from the matches of a database: COLMAP's incremental and global mappers, for `run_apart`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from data.prepare.sfm.colmap_tasks import (
    MOST_ERROR,
    SEED,
    Report,
    adjusted_with_known_lenses,
    image_error,
    known_images,
    refine,
)
from data.prepare.sfm.joining import Matched, joined
from data.prepare.sfm.lenses import Lenses, other_lenses, with_centres
from data.prepare.sfm.matches import ENOUGH_MATCHES, components
from data.prepare.sfm.twins import LEAST_SURE, twins

SMALLEST_MODEL = 3  # images
ALMOST_ALL = 0.9  # of the images: with cameras for fewer, other options and the global mapper are tried
# COLMAP's options of the first pair of images, and those for a camera that moves forwards. 29 photographs along a
# street, none of which looks across: 2 and 27 cameras.
FIRST_PAIRS: tuple[dict[str, float], ...] = ({}, {"init_max_forward_motion": 1.0, "init_min_tri_angle": 4.0})
LONGEST_FOCAL = 60.0  # longer sides: 2000 mm, the longest that EXIF is believed; COLMAP's limit is 10
INCREMENTAL, GLOBAL, JOINED = "incremental", "global", "joined"
LEAST_AGREEING = 0.5  # of the matches of two images, for cameras that agree with them
# Points for the camera of an image, which COLMAP's incremental mapper demands (abs_pose_min_num_inliers) and its global
# one does not. With fewer it is used if ENOUGH_MATCHES of these are sure, and its mean error is not this much greater
# than that of most: of five sets of 30 small photographs of lego, cameras that are off by 2 to 175 degrees fail this.
HOLDING, MOST_OF_MEDIAN = 30, 1.5


@dataclass(frozen=True)
class _Judged:
    """The pycolmap models of a mapper, and how the cameras of the largest agree with the matches."""

    models: dict[int, Any]
    largest: int | None  # its key; None without models
    agreeing: list[str]  # names of the most images that agreeing matches connect, without `_loose` ones
    links: Mapping[tuple[str, str], int]  # of `agreement`

    @property
    def score(self) -> tuple[int, int]:
        """The number of these images, and of their matches that agree."""
        kept = set(self.agreeing)
        return len(kept), sum(count for pair, count in self.links.items() if kept.issuperset(pair))


@dataclass(frozen=True)
class MappingResult:
    """What mapping gives."""

    mapper: str  # whose models these are
    image_counts: Mapping[str, int]  # of the largest model of each mapper that was tried
    models: Sequence[Mapping[str, Any]]  # of `described_model`, the one to be used first
    score: tuple[int, int]  # of `_Judged`: a greater one is better
    disagreeing: Sequence[str] = ()  # images left out of the first model, as their cameras contradict the matches
    other_lenses: Sequence[tuple[str, Lenses]] = ()  # of `other_lenses`
    uncentred_error: float | None = None  # mean reprojection error before `with_centres` fitted better
    torn: Sequence[tuple[str, str]] = ()  # pairs of images, both of `twins`
    wrong: Sequence[tuple[str, str]] = ()
    lens_contradiction: Sequence[float] = ()  # of `adjusted_with_known_lenses`


def reconstruct(
    report: Report, database: str, images: str, output: str, cores: int, reductions: Mapping[str, float], fixed: bool
) -> MappingResult:
    """Mapping into output/0, output/1, ...; reports the start of each attempt, and added images.

    Where that leaves images out, the global mapper is tried on the same matches, and the better one's models are joined
    where they have points in common. The models with the most images whose cameras agree with the matches are taken,
    and among equals those that agree with the most matches (the reprojection error is no such measure: it falls with
    what a model leaves out). Images of the largest model that do not agree are left out, and the model is refined.
    reductions: of `with_centres`. `fixed`: the lenses of the database are kept.
    """
    import pycolmap

    pycolmap.set_random_seed(SEED)
    count, pairs = len(known_images(database)), read_pairs(database)
    tried = {INCREMENTAL: _judged(_incremental(report, database, images, cores, ALMOST_ALL * count, fixed), pairs)}
    if len(tried[INCREMENTAL].models) > 1 or most_images(tried[INCREMENTAL].models) < ALMOST_ALL * count:
        report("start")
        tried[GLOBAL] = _judged(_global(database, images, cores, fixed), pairs)
    best = max(tried.values(), key=lambda judged: judged.score)  # the first of equals
    by_size = sorted(best.models.values(), key=lambda model: -model.num_reg_images())
    whole = joined(by_size, pairs, database, images, cores, fixed)
    if best.largest is not None and whole is not None:
        tried[JOINED] = _judged({**best.models, best.largest: whole}, pairs)
    mapper = max(tried, key=lambda name: tried[name].score)
    models, largest = tried[mapper].models, tried[mapper].largest
    torn, wrong = ([], []) if largest is None else twins(models[largest], pairs, tried[mapper].links)
    disagreeing, uncentred_error, contradiction = list[str](), None, list[float]()
    if largest is not None:
        disagreeing = _leave_out_disagreeing(models[largest], tried[mapper].agreeing)
    if largest is not None and fixed:
        models[largest], contradiction = adjusted_with_known_lenses(models[largest])
    elif largest is not None:
        centred = with_centres(models[largest], reductions)
        uncentred_error = None if centred is None else models[largest].compute_mean_reprojection_error()
        models[largest] = refine(models[largest]) if centred is None else centred
    proposed = [] if fixed else other_lenses(None if largest is None else models[largest], database)
    for key, model in models.items():
        folder = Path(output) / str(key)
        folder.mkdir(parents=True)
        model.write(str(folder))
    counts = {name: most_images(judged.models) for name, judged in tried.items()}
    described = [described_model(str(key), models[key]) for key in sorted(models, key=lambda key: key != largest)]
    result = MappingResult(mapper, counts, described, tried[mapper].score, disagreeing, proposed, uncentred_error)
    return replace(result, torn=torn, wrong=wrong, lens_contradiction=contradiction)


def _incremental(report: Report, database: str, images: str, cores: int, enough: float, fixed: bool) -> dict[int, Any]:
    """The pycolmap models of the first of FIRST_PAIRS with at least `enough` images, else those with the most."""
    import pycolmap

    options = pycolmap.IncrementalPipelineOptions(
        num_threads=cores, random_seed=SEED, min_model_size=SMALLEST_MODEL, image_path=images
    )
    options.max_focal_length_ratio = LONGEST_FOCAL
    options.ba_refine_focal_length = options.ba_refine_extra_params = not fixed
    options.mapper.random_seed = SEED
    options.triangulation.random_seed = SEED
    models: dict[int, Any] = {}
    for first_pair in FIRST_PAIRS:
        report("start")
        for name, value in first_pair.items():
            setattr(options.mapper, name, value)
        with TemporaryDirectory() as folder:  # the models are also in memory
            mapped = pycolmap.incremental_mapping(
                database,
                images,
                folder,
                options=options,
                initial_image_pair_callback=lambda: report("pair"),
                next_image_callback=lambda: report("image"),
            )
        models = max(models, mapped, key=most_images)  # the first of equals
        if most_images(models) >= enough:
            break
    return models


def _global(database: str, images: str, cores: int, fixed: bool) -> dict[int, Any]:
    """The pycolmap models of the global mapper."""
    import pycolmap

    options = pycolmap.GlobalPipelineOptions(
        num_threads=cores, random_seed=SEED, min_model_size=SMALLEST_MODEL, image_path=images
    )
    mapper = options.mapper
    mapper.num_threads = cores
    adjustment = mapper.bundle_adjustment
    adjustment.refine_focal_length = adjustment.refine_extra_params = not fixed
    for seeded in (mapper, mapper.rotation_averaging, mapper.global_positioning, mapper.retriangulation):
        seeded.random_seed = SEED
    mapper.global_positioning.use_gpu = adjustment.ceres.use_gpu = False
    with TemporaryDirectory() as folder:
        return pycolmap.global_mapping(database, images, folder, options)


def most_images(models: Mapping[int, Any]) -> int:
    """The number of images of the largest of pycolmap models, 0 without models."""
    return max((model.num_reg_images() for model in models.values()), default=0)


def described_model(folder: str, model: Any) -> dict[str, Any]:
    """Folder, images, points and errors of a pycolmap model; "weak": images that have fewer than HOLDING points."""
    posed = [image for image in model.images.values() if image.has_pose]
    return {
        "folder": folder,
        "names": sorted(image.name for image in posed),
        "points": model.num_points3D(),
        "weak": sorted(image.name for image in posed if image.num_points3D < HOLDING),
        "error": model.compute_mean_reprojection_error(),
        "errors": {image.name: image_error(model, image) for image in posed},
    }


def read_pairs(database: str) -> list[Matched]:
    """The verified matches of all pairs of images of the database."""
    import pycolmap

    with pycolmap.Database.open(database) as opened:
        names = {image.image_id: image.name for image in opened.read_all_images()}
        pixels = {key: np.asarray(opened.read_keypoints(key))[:, :2].astype(float) for key in names}
        verified = []
        for pair, geometry in zip(*opened.read_two_view_geometries(), strict=True):
            first, second = pycolmap.pair_id_to_image_pair(pair)
            of_first, of_second = np.asarray(geometry.inlier_matches).reshape(-1, 2).T
            both = (of_first, of_second), (pixels[first][of_first], pixels[second][of_second])
            verified += [Matched((names[first], names[second]), *both)] if len(of_first) else []
        return verified


def agreement(model: Any, pairs: Sequence[Matched]) -> dict[tuple[str, str], int]:
    """The number of matches of each pair of images that agree with the cameras of the pycolmap model, both known.

    They lie within MOST_ERROR pixels of each other's epipolar lines (Sampson's distance). A pair of which fewer than
    LEAST_AGREEING do has 0.
    """
    posed = {image.name: image for image in model.images.values() if image.has_pose}
    agreeing = {}
    for pair in pairs:
        if not all(name in posed for name in pair.names):
            continue
        errors = _epipolar_errors(model, pair.pixels, *(posed[name] for name in pair.names))
        count = int(np.count_nonzero(errors <= MOST_ERROR))
        agreeing[pair.names] = count if count >= LEAST_AGREEING * len(errors) else 0
    return agreeing


def _epipolar_errors(model: Any, pixels: tuple[np.ndarray, np.ndarray], one: Any, other: Any) -> np.ndarray:
    """Sampson's distance of matches to the epipolar geometry of two posed images, in pixels [M]."""
    import pycolmap

    cameras = [model.cameras[image.camera_id] for image in (one, other)]
    rays = [camera.cam_from_img(places) for camera, places in zip(cameras, pixels, strict=True)]
    essential = pycolmap.essential_matrix_from_pose(other.cam_from_world() * one.cam_from_world().inverse())
    squared = pycolmap.compute_squared_sampson_error(rays[0], rays[1], essential)
    return np.sqrt(squared) * np.mean([camera.mean_focal_length() for camera in cameras])


def _judged(models: dict[int, Any], pairs: Sequence[Matched]) -> _Judged:
    """How the cameras of the largest of pycolmap models agree with the matches."""
    largest = max(models, key=lambda key: models[key].num_reg_images(), default=None)
    if largest is None:
        return _Judged(models, None, [], {})
    loose = _loose(models[largest])
    names = sorted(
        image.name for image in models[largest].images.values() if image.has_pose and image.name not in loose
    )
    links = {pair: count for pair, count in agreement(models[largest], pairs).items() if loose.isdisjoint(pair)}
    return _Judged(models, largest, next(iter(components(names, links)), []), links)


def _loose(model: Any) -> set[str]:
    """The names of the images of a pycolmap model whose cameras too few points hold, or few ones that do not fit."""
    sure = [point.track.elements for point in model.points3D.values() if point.track.length() >= LEAST_SURE]
    counts = Counter(element.image_id for elements in sure for element in elements)
    posed = [image for image in model.images.values() if image.has_pose]
    errors = {image.name: image_error(model, image) for image in posed if image.num_points3D < HOLDING}
    most = MOST_OF_MEDIAN * np.median([image_error(model, image) for image in posed]) if errors else 0.0
    return {
        image.name
        for image in posed
        if image.name in errors and (counts[image.image_id] < ENOUGH_MATCHES or errors[image.name] > most)
    }


def _leave_out_disagreeing(model: Any, agreeing: Collection[str]) -> list[str]:
    """Remove the cameras of images that are not `agreeing` from a pycolmap model; returns their names.

    Where most do not agree, as with a camera that stood still, all are left to the later checks.
    """
    posed = {image.name: image.frame_id for image in model.images.values() if image.has_pose}
    if 2 * len(agreeing) <= len(posed):
        return []
    disagreeing = {name: frame for name, frame in sorted(posed.items()) if name not in agreeing}
    for frame in disagreeing.values():
        model.deregister_frame(frame)
    return list(disagreeing)
