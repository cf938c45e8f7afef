"""Structure from motion by pycolmap: tasks for `run_apart`.

Calls of the library take minutes; their progress is read from the database that they write to.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SEED = 0
# COLMAP's model with one focal length and one radial coefficient: accurate enough for phones and cameras (0.93 pixels
# on the images of docs/results.md), and well determined by few images, unlike the larger models.
CAMERA_MODEL = "SIMPLE_RADIAL"
BLOCK_PAIRS = 64  # pairs that are matched and written together: the step of the progress bar and of resuming
SMALLEST_MODEL = 3  # images

# The final adjustment also refines the principal point and a second radial coefficient. On the images of
# docs/results.md it reduces the reprojection error from 0.93 to 0.87 pixels and the rotation errors from 0.59 to 0.13
# degrees. Pixels stay square: with the two focal lengths of OPENCV the result is no better there, and cameras on rings
# around an object do not determine them. On the rendered photographs of data/demo they differed by 4.6 %, and the
# cameras were off by 1.7 degrees. Few images do not determine the other parameters; larger changes than the following
# are rejected.
REFINED_MODEL = "RADIAL"
# The model of fisheye lenses, such as those that are clipped onto phones, where it reduces the error much further.
FISHEYE_MODEL, LEAST_FISHEYE_GAIN = "OPENCV_FISHEYE", 0.1
LEAST_REFINED = 20  # images of a camera
MOST_SHIFT = 0.1  # of the principal point, relative to the longer side
MOST_FOCAL_CHANGE = 0.2  # relative
MOST_ASPECT = 0.01  # of the two focal lengths of FISHEYE_MODEL: pixels are square
LEAST_GAIN = 0.01  # of the mean reprojection error, relative; a smaller one does not support more parameters
MOST_DISTORTION = 1.0  # of each coefficient; COLMAP's own limit (max_extra_param)
Report = Callable[[Any], None]


def extract(
    report: Report, database: str, images: str, cameras: Sequence[tuple[Sequence[str], str]], cores: int
) -> None:
    """Extract the features of all images that are not in the database yet.

    `cameras`: for each camera the names of its images and the parameters of CAMERA_MODEL ("" if unknown).
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
    """Name -> camera id of the images with features in the database."""
    import pycolmap

    opened = pycolmap.Database.open(database)
    try:
        images = [image for image in opened.read_all_images() if opened.exists_descriptors(image.image_id)]
        return {image.name: image.camera_id for image in images}
    finally:
        opened.close()


def match(report: Report, database: str, pair_list: str, cores: int) -> None:
    """Match the pairs listed in the file, two names per line, that are not in the database yet."""
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
    """Incremental mapping into output/0, output/1, ...; reports each image that is added.

    Returns for each model its folder, image names, number of points, mean reprojection error, and that of each image.
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
            "errors": {image.name: image_error(model, image) for image in model.images.values() if image.has_pose},
        }
        for key, model in models.items()
    ]


def image_error(model: Any, image: Any) -> float:
    """The mean reprojection error in pixels of the points that a pycolmap image sees; 0 without points."""
    distances = []
    for seen in image.points2D:
        if seen.has_point3D():
            pixel = image.project_point(model.points3D[seen.point3D_id].xyz)
            distances += [] if pixel is None else [math.dist(pixel, seen.xy)]
    return sum(distances) / max(1, len(distances))


def refine(model: Any) -> Any:
    """The pycolmap model after a final bundle adjustment with REFINED_MODEL or, if it fits much better, FISHEYE_MODEL.

    The model is unchanged if a camera has too few images, its refined parameters are implausible, or the error hardly
    decreases.
    """
    counts = Counter(image.camera_id for image in model.images.values() if image.has_pose)
    if min(counts.values()) < LEAST_REFINED:
        return model
    best = model
    for name, gain in ((REFINED_MODEL, LEAST_GAIN), (FISHEYE_MODEL, LEAST_FISHEYE_GAIN)):
        refined = _adjusted(model, name)
        likely = all(is_likely(model.cameras[key].params, refined.cameras[key]) for key in counts)
        if likely and refined.compute_mean_reprojection_error() <= (1 - gain) * best.compute_mean_reprojection_error():
            best = refined
    return best


def _adjusted(model: Any, name: str) -> Any:
    """A copy of the pycolmap model, of CAMERA_MODEL, after bundle adjustment with the camera model `name`."""
    import pycolmap

    refined, is_fisheye = pycolmap.Reconstruction(model), name == FISHEYE_MODEL
    for camera in refined.cameras.values():
        focal, x, y, radial = camera.params
        camera.model = getattr(pycolmap.CameraModelId, name)
        # tan(a) (1 + k tan(a)^2) = a + (k + 1/3) a^3 + ...
        camera.params = [focal, focal, x, y, radial + 1 / 3, 0, 0, 0] if is_fisheye else [focal, x, y, radial, 0]
    options = pycolmap.BundleAdjustmentOptions(refine_principal_point=not is_fisheye, print_summary=False)
    pycolmap.bundle_adjustment(refined, options)
    refined.update_point_3d_errors()
    return refined


def is_likely(before: Sequence[float], camera: Any) -> bool:
    """Whether a refined camera is close to its parameters `before`, of CAMERA_MODEL."""
    n_focals = 2 if len(camera.params) == 8 else 1
    focals, (x, y), distortion = camera.params[:n_focals], camera.params[n_focals:][:2], camera.params[n_focals + 2 :]
    shift = max(abs(x - before[1]), abs(y - before[2])) / max(camera.width, camera.height)
    change = max(abs(focal / before[0] - 1) for focal in focals)
    within = shift <= MOST_SHIFT and change <= MOST_FOCAL_CHANGE and max(map(abs, distortion)) <= MOST_DISTORTION
    is_square = abs(focals[0] / focals[-1] - 1) <= MOST_ASPECT
    return within and is_square and math.isfinite(sum(camera.params))
