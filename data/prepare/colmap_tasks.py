"""Structure from motion by pycolmap: the tasks for `run_apart`, each a thin call into the library.

Single calls of the library block for minutes; how far they are shows in the database they write to.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SEED = 0
# COLMAP's model with one focal length and one radial coefficient: enough for phones and cameras (0.93 pixels on the
# images of docs/results.md), and not underdetermined by few images as the larger ones are.
CAMERA_MODEL = "SIMPLE_RADIAL"
BLOCK_PAIRS = 64  # are matched and written at a time: the grain of the progress bar, and of going on after a stop
SMALLEST_MODEL = 3  # images

# The final adjustment lets every camera have its own principal point and OPENCV's distortion. On the images of
# docs/results.md it takes 4 s, the error from 0.93 to 0.87 pixels and the rotations from 0.70 to 0.27 degrees off the
# published ones. Few images do not determine so much; and what moves further than this was not determined.
REFINED_MODEL = "OPENCV"
LEAST_REFINED = 20  # images of a camera
MOST_SHIFT = 0.1  # of the principal point, over the longer side
MOST_FOCAL_CHANGE = 0.2  # relative
MOST_DISTORTION = 1.0  # of each coefficient; COLMAP's own limit (max_extra_param)
Report = Callable[[Any], None]


def extract(
    report: Report, database: str, images: str, cameras: Sequence[tuple[Sequence[str], str]], cores: int
) -> None:
    """Find the features of all images; those that the database has already are left alone.

    `cameras` are (names, parameters of CAMERA_MODEL or "" where unknown), one camera each.
    """
    import pycolmap

    pycolmap.set_random_seed(SEED)
    for names, parameters in cameras:
        known = _known_images(database)
        missing = [name for name in names if name not in known]
        if not missing:
            continue
        reader = pycolmap.ImageReaderOptions(camera_model=CAMERA_MODEL, camera_params=parameters)
        shared = next((known[name] for name in names if name in known), None)
        if shared is not None:
            reader.existing_camera_id = shared
        options = pycolmap.FeatureExtractionOptions(num_threads=cores, use_gpu=False)
        pycolmap.extract_features(
            database,
            images,
            image_names=missing,
            camera_mode=pycolmap.CameraMode.SINGLE,
            reader_options=reader,
            extraction_options=options,
            device=pycolmap.Device.cpu,
        )


def _known_images(database: str) -> dict[str, int]:
    """Name -> camera of the images that have their features."""
    import pycolmap

    opened = pycolmap.Database.open(database)
    try:
        images = [image for image in opened.read_all_images() if opened.exists_descriptors(image.image_id)]
        return {image.name: image.camera_id for image in images}
    finally:
        opened.close()


def match(report: Report, database: str, pair_list: str, cores: int) -> None:
    """Compare the pairs that the file lists, two names a line; those that the database has already are left alone."""
    import pycolmap

    pycolmap.set_random_seed(SEED)
    verification = pycolmap.TwoViewGeometryOptions()
    verification.ransac.random_seed = SEED
    pycolmap.match_image_pairs(
        database,
        matching_options=pycolmap.FeatureMatchingOptions(num_threads=cores, use_gpu=False),
        pairing_options=pycolmap.ImportedPairingOptions(match_list_path=pair_list, block_size=BLOCK_PAIRS),
        verification_options=verification,
        device=pycolmap.Device.cpu,
    )


def reconstruct(report: Report, database: str, images: str, output: str, cores: int) -> list[dict[str, Any]]:
    """Map incrementally; models lie in output/0, output/1, ... Reports each image as it is added.

    Returns for each model its folder, the names of its images, its points and mean reprojection error.
    """
    import pycolmap

    pycolmap.set_random_seed(SEED)
    options = pycolmap.IncrementalPipelineOptions(
        num_threads=cores, random_seed=SEED, min_model_size=SMALLEST_MODEL, image_path=images
    )
    options.mapper.random_seed = SEED
    options.triangulation.random_seed = SEED
    Path(output).mkdir(parents=True, exist_ok=True)
    models = pycolmap.incremental_mapping(
        database,
        images,
        output,
        options=options,
        initial_image_pair_callback=lambda: report("pair"),
        next_image_callback=lambda: report("image"),
    )
    largest = max(models, key=lambda key: models[key].num_reg_images(), default=None)
    if largest is not None:
        models[largest] = refine(models[largest])
        models[largest].write(str(Path(output) / str(largest)))
    return [
        {
            "folder": str(key),
            "names": sorted(image.name for image in model.images.values() if image.has_pose),
            "points": model.num_points3D(),
            "error": model.compute_mean_reprojection_error(),
        }
        for key, model in models.items()
    ]


def refine(model: Any) -> Any:
    """The pycolmap model after a last bundle adjustment with REFINED_MODEL, or unchanged where that is not determined.

    It is left alone where a camera has too few images or its refined numbers are unlikely.
    """
    import pycolmap

    counts = Counter(image.camera_id for image in model.images.values() if image.has_pose)
    if min(counts.values()) < LEAST_REFINED:
        return model
    refined = pycolmap.Reconstruction(model)
    for camera in refined.cameras.values():
        focal, x, y, radial = camera.params
        camera.model = getattr(pycolmap.CameraModelId, REFINED_MODEL)
        camera.params = [focal, focal, x, y, radial, 0, 0, 0]
    options = pycolmap.BundleAdjustmentOptions(refine_principal_point=True, print_summary=False)
    pycolmap.bundle_adjustment(refined, options)
    refined.update_point_3d_errors()
    likely = all(_is_likely(model.cameras[key].params, refined.cameras[key]) for key in counts)
    better = refined.compute_mean_reprojection_error() <= model.compute_mean_reprojection_error()
    return refined if likely and better else model


def _is_likely(before: Sequence[float], camera: Any) -> bool:
    """Whether a refined camera is near the one that COLMAP found with CAMERA_MODEL, whose parameters are `before`."""
    focal_x, focal_y, x, y, *distortion = camera.params
    shift = max(abs(x - before[1]), abs(y - before[2])) / max(camera.width, camera.height)
    change = max(abs(focal / before[0] - 1) for focal in (focal_x, focal_y))
    within = shift <= MOST_SHIFT and change <= MOST_FOCAL_CHANGE and max(map(abs, distortion)) <= MOST_DISTORTION
    return within and math.isfinite(sum(camera.params))
