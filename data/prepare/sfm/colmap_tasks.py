"""Features, matches and refinement by pycolmap: tasks for `run_apart`.

Calls of the library take minutes; their progress is read from the database that they write to.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np

from data.io.images import read_image
from data.parsed_scene import MASK_HALF

SEED = 0
# COLMAP's model with one focal length and one radial coefficient: accurate enough for phones and cameras (0.93 pixels
# on fifty photographs of a phone), and well determined by few images, unlike the larger models.
CAMERA_MODEL = "SIMPLE_RADIAL"
BLOCK_PAIRS = 64  # pairs that are matched and written together: the step of the progress bar and of resuming
LEAST_SHARE = 0.5  # of the images must have a camera

# The final adjustment also refines the principal point and a second radial coefficient. On these
# photographs it reduces the reprojection error from 0.93 to 0.87 pixels and the rotation errors from 0.59 to 0.13
# degrees. Pixels stay square: with the two focal lengths of OPENCV the result is no better there, and cameras on rings
# around an object do not determine them. On the rendered photographs of data/demo they differed by 4.6 %, and the
# cameras were off by 1.7 degrees. Larger changes than the following are rejected.
REFINED_MODEL = "RADIAL"
# The model of fisheye lenses, such as those that are clipped onto phones, where it reduces the error much further.
FISHEYE_MODEL, LEAST_FISHEYE_GAIN = "OPENCV_FISHEYE", 0.1
LEAST_FISHEYE = 20  # images of a camera
LEAST_FISHEYE_POINTS = 0.9  # of the points must keep an error below that of the mapper's own filter, in pixels
MOST_ERROR, LEAST_ANGLE = 4.0, 1.5  # filter_max_reproj_error, filter_min_tri_angle of COLMAP's mapper
# Wrong matches pull the least squares of the mapper. Cauchy's loss of this scale in pixels halves the errors of
# positions on captures whose true cameras are known.
LOSS_SCALE = 0.25
# The largest standard deviation of the principal point for the error of the matches, relative to the longer side; with
# a larger one, the points do not determine it. Principal points lie about 0.005 from the centre. The reprojection error
# does not show it: on one ring of 18 photographs of data/demo, where the deviation is 0.7 for an error of one pixel,
# refinement reduced that error by a fifth and turned the cameras by 2.8 degrees. No match is taken for more accurate
# than LEAST_ERROR pixels.
MOST_DEVIATION, LEAST_ERROR = 0.003, 0.25
MOST_SHIFT = 0.1  # of the principal point, relative to the longer side
MOST_FOCAL_CHANGE = 0.2  # relative
# CAMERA_MODEL fits a fisheye lens with a longer focal length: on rendered photographs of 150 and 180 degrees, that of
# FISHEYE_MODEL, which is the true one, is shorter by 0.28.
MOST_FISHEYE_FOCAL_CHANGE = 0.4
# Of the focal length of a known lens, beside the median error that it reduces by this share: a lens focused nearer
# changes it by a per cent.
MOST_LENS_CHANGE, LEAST_LENS_GAIN = 0.02, 0.1
MOST_ASPECT = 0.01  # of the two focal lengths of FISHEYE_MODEL: pixels are square
MOST_DISTORTION = 1.0  # of each coefficient; COLMAP's own limit (max_extra_param)
# Features are extracted from images reduced to FEATURE_SIDE, the longer side in pixels. COLMAP's first octave, which
# has twice the resolution, takes three quarters of the time; its features are used only for images below SMALL_SIDE,
# for those without a camera, and where the object alone must suffice: on a bronze axe that was turned over, 3,772
# instead of 928 features per image, and all 52 images in one model instead of 46, which barely hold together.
FEATURE_SIDE, SMALL_SIDE = 1600, 1200
MOST_FULL_SIZE_THREADS = 4  # each needs 0.9 GB for the first octave of 2048 x 1536 pixels
Report = Callable[[Any], None]


def extract(
    report: Report,
    database: str,
    images: str,
    masks: str,
    is_fine: bool,
    cameras: Sequence[tuple[Sequence[str], int, str, str]],
    cores: int,
) -> None:
    """Extract the features of all images that are not in the database yet.

    `masks`: a folder with NAME.png for each image, outside of which there are no features; "" for whole images.
    `is_fine`: at full size, with the first octave.
    `cameras`: for each camera the names of its images, their longer side in pixels, its model and the parameters ("" if
    unknown).
    """
    import pycolmap

    pycolmap.set_random_seed(SEED)
    for names, side, model, parameters in cameras:
        known = known_images(database)
        missing = [name for name in names if name not in known]
        if not missing:
            continue
        reader = pycolmap.ImageReaderOptions(camera_model=model, camera_params=parameters, mask_path=masks)
        shared = next((known[name] for name in names if name in known), None)
        if shared is not None:
            reader.existing_camera_id = shared
        threads = min(cores, MOST_FULL_SIZE_THREADS) if is_fine else cores
        options = pycolmap.FeatureExtractionOptions(num_threads=threads, use_gpu=False)
        options.max_image_size = side if is_fine else FEATURE_SIDE
        options.sift.first_octave = -1 if is_fine or side < SMALL_SIDE else 0
        pycolmap.extract_features(
            database,
            images,
            image_names=missing,
            camera_mode=pycolmap.CameraMode.SINGLE,
            reader_options=reader,
            extraction_options=options,
            device=pycolmap.Device.cpu,
        )


def known_images(database: str) -> dict[str, int]:
    """Name -> camera id of the images with features in the database."""
    import pycolmap

    with pycolmap.Database.open(database) as opened:
        images = [image for image in opened.read_all_images() if opened.exists_descriptors(image.image_id)]
        return {image.name: image.camera_id for image in images}


def match(report: Report, database: str, pair_list: str, cores: int) -> None:
    """Match the pairs listed in the file, two names per line, that are not in the database yet."""
    import pycolmap

    pycolmap.set_random_seed(SEED)
    pycolmap.match_image_pairs(
        database,
        matching_options=pycolmap.FeatureMatchingOptions(num_threads=cores, use_gpu=False),
        pairing_options=pycolmap.ImportedPairingOptions(match_list_path=pair_list, block_size=BLOCK_PAIRS),
        verification_options=_verification(),
        device=pycolmap.Device.cpu,
    )


def keep_inside(report: Report, database: str, masks: str, position: Mapping[str, str]) -> None:
    """Remove the matches outside the masks NAME.png of images of two positions, and verify the others again."""
    import pycolmap

    with pycolmap.Database.open(database) as opened:
        names = {image.image_id: image.name for image in opened.read_all_images()}
        inside = {}
        for key, name in names.items():
            mask = read_image(f"{masks}/{name}.png")[..., 0] > MASK_HALF
            column, row = np.asarray(opened.read_keypoints(key))[:, :2].astype(int).T
            inside[key] = mask[np.minimum(row, mask.shape[0] - 1), np.minimum(column, mask.shape[1] - 1)]
        pairs = [pycolmap.pair_id_to_image_pair(pair) for pair in opened.read_all_matches()[0]]
        pairs = [(one, other) for one, other in pairs if position[names[one]] != position[names[other]]]
        for one, other in pairs:
            matches = np.asarray(opened.read_matches(one, other))
            opened.delete_matches(one, other)
            opened.write_matches(one, other, matches[inside[one][matches[:, 0]] & inside[other][matches[:, 1]]])
            if opened.exists_two_view_geometry(one, other):
                opened.delete_two_view_geometry(one, other)
    verify(database, [(names[one], names[other]) for one, other in pairs])


def verify(database: str, pairs: Sequence[tuple[str, str]]) -> None:
    """Verify the matches of pairs of images without a geometry in the database."""
    import pycolmap

    with NamedTemporaryFile("w", suffix=".txt") as file:
        file.writelines(f"{a} {b}\n" for a, b in pairs)
        file.flush()
        pycolmap.verify_matches(database, file.name, _verification())


def _verification() -> Any:
    import pycolmap

    options = pycolmap.TwoViewGeometryOptions()
    options.ransac.random_seed = SEED
    return options


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

    The model is unchanged if the refined parameters are implausible or not determined, except that images without a
    pose, of which pycolmap estimates no covariance, are removed. FISHEYE_MODEL requires LEAST_FISHEYE images of each
    camera.
    """
    model.tear_down()
    counts = Counter(image.camera_id for image in model.images.values() if image.has_pose)
    names = (REFINED_MODEL, FISHEYE_MODEL) if min(counts.values()) >= LEAST_FISHEYE else (REFINED_MODEL,)
    best = model
    best.update_point_3d_errors()
    for name in names:
        refined = _adjusted(model, name)
        if not all(is_likely(model.cameras[key].params, refined.cameras[key]) for key in counts):
            continue
        if name == FISHEYE_MODEL:  # `_adjusted` has removed points
            better = median_error(refined) <= (1 - LEAST_FISHEYE_GAIN) * median_error(best)
            better = better and refined.num_points3D() >= max(1, LEAST_FISHEYE_POINTS * best.num_points3D())
        else:
            better = median_error(refined) <= median_error(best) and _is_determined(refined)
        if better:
            best = refined
    return best


def adjusted_with_known_lenses(model: Any) -> tuple[Any, list[float]]:
    """A pycolmap model after robust bundle adjustment with constant lenses, and how another focal length fits.

    [relative change of the focal length, reprojection error with it, error without it] if these contradict the lenses,
    else [].
    """
    import pycolmap

    kept, free = pycolmap.Reconstruction(model), pycolmap.Reconstruction(model)
    pycolmap.bundle_adjustment(kept, robust_options(refine_focal_length=False, refine_extra_params=False))
    pycolmap.bundle_adjustment(free, robust_options(refine_extra_params=False))
    for one in (kept, free):
        one.update_point_3d_errors()
    pairs = [
        (camera.mean_focal_length(), free.cameras[key].mean_focal_length()) for key, camera in kept.cameras.items()
    ]
    change = max((fitted / given - 1 for given, fitted in pairs), key=abs)
    errors = median_error(free), median_error(kept)
    is_other = abs(change) > MOST_LENS_CHANGE and errors[0] < (1 - LEAST_LENS_GAIN) * errors[1]
    return kept, [change, *errors] if is_other else []


def median_error(model: Any) -> float:
    """The median of the points' mean errors, in pixels; the mean would fall with each point that is removed."""
    return median([point.error for point in model.points3D.values()] or [0.0])


def _is_determined(model: Any) -> bool:
    """Whether the points determine the principal points of a pycolmap model, see MOST_DEVIATION."""
    import pycolmap

    options, config = pycolmap.BundleAdjustmentOptions(refine_principal_point=True), pycolmap.BundleAdjustmentConfig()
    for image in model.reg_image_ids():
        config.add_image(image)
    config.fix_gauge(pycolmap.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
    adjuster = pycolmap.create_default_ceres_bundle_adjuster(options, config, model)
    covariances = pycolmap.estimate_ba_covariance(pycolmap.BACovarianceOptions(), model, adjuster)
    if covariances is None:
        return False
    error = max(LEAST_ERROR, model.compute_mean_reprojection_error())
    for key in {model.images[image].camera_id for image in model.reg_image_ids()}:
        camera = model.cameras[key]
        covariance = covariances.get_other_params_cov(camera.params)
        most = (MOST_DEVIATION * max(camera.width, camera.height)) ** 2
        if covariance is None or error**2 * max(covariance.diagonal()[camera.principal_point_idxs()]) > most:
            return False
    return True


def _adjusted(model: Any, name: str) -> Any:
    """A copy of the pycolmap model, of CAMERA_MODEL, after bundle adjustment with the camera model `name`."""
    import pycolmap

    refined, is_fisheye = pycolmap.Reconstruction(model), name == FISHEYE_MODEL
    for camera in refined.cameras.values():
        focal, x, y, radial = camera.params
        camera.model = getattr(pycolmap.CameraModelId, name)
        # tan(a) (1 + k tan(a)^2) = a + (k + 1/3) a^3 + ...
        camera.params = [focal, focal, x, y, radial + 1 / 3, 0, 0, 0] if is_fisheye else [focal, x, y, radial, 0]
    options = robust_options(refine_principal_point=not is_fisheye)
    pycolmap.bundle_adjustment(refined, options)
    if is_fisheye:  # points that the simple model placed wrongly may lie behind a camera, where their error is infinite
        pycolmap.ObservationManager(refined).filter_all_points3D(MOST_ERROR, LEAST_ANGLE)
        pycolmap.bundle_adjustment(refined, options)
    refined.update_point_3d_errors()
    return refined


def robust_options(**given: bool) -> Any:
    """pycolmap's options of bundle adjustment, with the loss of LOSS_SCALE."""
    import pycolmap

    options = pycolmap.BundleAdjustmentOptions(print_summary=False, **given)
    options.ceres.loss_function_type, options.ceres.loss_function_scale = pycolmap.LossFunctionType.CAUCHY, LOSS_SCALE
    return options


def is_likely(before: Sequence[float], camera: Any) -> bool:
    """Whether a refined camera is close to its parameters `before`, of CAMERA_MODEL."""
    n_focals, most = (2, MOST_FISHEYE_FOCAL_CHANGE) if len(camera.params) == 8 else (1, MOST_FOCAL_CHANGE)
    focals, (x, y), distortion = camera.params[:n_focals], camera.params[n_focals:][:2], camera.params[n_focals + 2 :]
    shift = max(abs(x - before[1]), abs(y - before[2])) / max(camera.width, camera.height)
    change = max(abs(focal / before[0] - 1) for focal in focals)
    within = shift <= MOST_SHIFT and change <= most and max(map(abs, distortion)) <= MOST_DISTORTION
    is_square = abs(focals[0] / focals[-1] - 1) <= MOST_ASPECT
    return within and is_square and math.isfinite(sum(camera.params))
