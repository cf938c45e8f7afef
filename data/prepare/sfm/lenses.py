"""Other lenses for the images of a database, where one that was assumed does not fit; pycolmap's types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from data.prepare.sfm.colmap_tasks import CAMERA_MODEL, LEAST_ANGLE, Report, median_error, robust_options, verify

LEAST_POINTS = 3  # for each image: a model with fewer points is none, such as one without parallax
# A mean reprojection error, in pixels, and a change of the focal length with which that of EXIF is doubtful: right ones
# stay below both.
DOUBTFUL_ERROR, DOUBTFUL_CHANGE = 1.0, 1.15
# Lenses are the same if they differ by less than this from the next one. With a lens for each image the median error
# falls to this share if they are not: photographs of one camera hardly gain by it.
SAME_FOCAL, LEAST_FALL = 0.03, 0.7
ACCURATE = 0.25  # pixels, median: below, one lens is right
MOST_GROUPS = 1 / 3  # of the images; with more, each has its own lens, as with a zoom
# With one focal length for all, also a wrong one, photographs determine the centres of crops. With own focal lengths
# they do not, and centres that are sought nevertheless make the positions worse.
LEAST_CROPS, LEAST_CENTRE_FALL, MOST_CROPPED = 8, 0.95, 0.5  # images, of the median error, shift of the longer side
# Steps of the search for the lens of crops: relative ones of the focal length, and ones of the radial coefficient.
LENS_STEPS = np.array([[0.01, 0.02], [0.005, 0.01]])
PLACES = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1], [1, 1]], float)  # where a quadratic is fitted
MOST_STEPS, COST_TOLERANCE, MOST_ITERATIONS = 2.0, 1e-7, 40
OUTLIER = 4.0  # median errors: outliers slow the search
LONG_FOCALS = (2.5, 6.0, 15.0)  # widths, to start from where COLMAP's 1.2 gives no points

WITHOUT_EXIF = "without the focal length of EXIF"
DEFAULT_FOCAL = 1.2  # longer sides, that of COLMAP (default_focal_length_factor)

# Images, and the focal length in pixels to start from; None: COLMAP's.
Lenses = Sequence[tuple[Sequence[str], float | None]]


def is_model(model: Any) -> bool:
    """Whether a pycolmap model has enough points."""
    return model is not None and model.num_points3D() >= LEAST_POINTS * model.num_reg_images()


def other_lenses(model: Any, database: str) -> list[tuple[str, Lenses]]:
    """What to try instead of the cameras of a database, each in words.

    model: what they gave; None for nothing.
    """
    import pycolmap

    with pycolmap.Database.open(database) as opened:
        cameras = {camera.camera_id: camera for camera in opened.read_all_cameras()}
        images = sorted(opened.read_all_images(), key=lambda image: image.name)
    by_camera: dict[int, list[str]] = {}
    for image in images:
        by_camera.setdefault(image.camera_id, []).append(image.name)
    priors = {key: cameras[key].mean_focal_length() for key in by_camera if cameras[key].has_prior_focal_length}
    proposed: list[tuple[str, Lenses]] = []
    if not is_model(model):
        for widths in LONG_FOCALS:
            same = [(names, widths * max(cameras[key].width, cameras[key].height)) for key, names in by_camera.items()]
            proposed.append((f"from a focal length of {widths:g} widths", same))
    elif groups := _by_focal_length(model, list(by_camera.values())):
        proposed.append((f"with {len(groups)} lenses instead of {len(by_camera)}", groups))
    if priors and _is_doubtful(model, priors):
        proposed.insert(0, (WITHOUT_EXIF, [(names, None) for names in by_camera.values()]))
    return proposed


def _is_doubtful(model: Any, priors: Mapping[int, float]) -> bool:
    """Whether focal lengths of EXIF in pixels, by camera, do not fit a pycolmap model."""
    if not is_model(model) or model.compute_mean_reprojection_error() >= DOUBTFUL_ERROR:
        return True
    changes = [model.cameras[key].mean_focal_length() / priors[key] for key in priors if model.exists_camera(key)]
    return any(not 1 / DOUBTFUL_CHANGE < change < DOUBTFUL_CHANGE for change in changes)


def _by_focal_length(model: Any, names_by_camera: Sequence[list[str]]) -> Lenses:
    """Groups of images with one lens each; [] if the present ones fit about as well as a lens for each image."""
    model.update_point_3d_errors()
    before = median_error(model)
    if before < ACCURATE:
        return []
    own = _with_own_lenses(model)
    if median_error(own) > LEAST_FALL * before:
        return []
    focals = {image.name: own.cameras[image.camera_id].mean_focal_length() for image in own.images.values()}
    lenses: list[tuple[list[str], float | None]] = []
    for names in names_by_camera:
        posed = np.array([index for index, name in enumerate(names) if name in focals])
        if not len(posed):
            lenses.append((list(names), None))
            continue
        nearest = [posed[np.abs(posed - index).argmin()] for index in range(len(names))]  # for images without a pose
        values = np.array([focals[names[index]] for index in nearest])
        order = np.argsort(values, kind="stable")
        cuts = np.flatnonzero(np.diff(np.log(values[order])) > SAME_FOCAL) + 1
        groups = np.split(order, cuts) if len(cuts) < MOST_GROUPS * len(names) else list(order[:, None])
        lenses += [([names[index] for index in sorted(group)], float(np.median(values[group]))) for group in groups]
    return lenses if len(lenses) > len(names_by_camera) else []


def _with_own_lenses(model: Any) -> Any:
    """A pycolmap model after bundle adjustment with a lens for each image; its camera ids are those of the images."""
    import pycolmap

    own = pycolmap.Reconstruction()
    for image in model.images.values():
        if not image.has_pose:
            continue
        shared = model.cameras[image.camera_id]
        camera = pycolmap.Camera(
            model=shared.model, width=shared.width, height=shared.height, params=shared.params, camera_id=image.image_id
        )
        own.add_camera_with_trivial_rig(camera)
        pixels = np.array([point.xy for point in image.points2D])
        added = pycolmap.Image(image.name, pixels, image.image_id, image.image_id)
        own.add_image_with_trivial_frame(added, image.cam_from_world())
    for point in model.points3D.values():
        own.add_point3D(point.xyz, point.track, point.color)
    pycolmap.bundle_adjustment(own, robust_options())
    own.update_point_3d_errors()
    return own


def with_centres(model: Any, reductions: Mapping[str, float]) -> Any | None:
    """A pycolmap model of CAMERA_MODEL with the principal points of cropped images; None if it fits no better.

    reductions: the size of each cropped image relative to the photograph. All images are taken to have one lens.
    """
    import pycolmap

    crops = [image for image in model.images.values() if image.has_pose and image.name in reductions]
    if len(crops) < LEAST_CROPS:
        return None
    model.tear_down()
    model.update_point_3d_errors()
    centred = pycolmap.Reconstruction(model)
    cameras = {image.camera_id: (centred.cameras[image.camera_id], reductions[image.name]) for image in crops}
    config = pycolmap.BundleAdjustmentConfig()
    for key in centred.reg_image_ids():
        config.add_image(key)
    for key in centred.cameras.keys() - cameras.keys():
        config.set_constant_cam_intrinsics(key)
    config.fix_gauge(pycolmap.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
    options = robust_options(refine_focal_length=False, refine_extra_params=False, refine_principal_point=True)
    solver = options.ceres.solver_options
    solver.function_tolerance, solver.max_num_iterations = COST_TOLERANCE, MOST_ITERATIONS

    def cost(lens: np.ndarray) -> float:
        """The cost of bundle adjustment of poses, points and centres, with this focal length and coefficient."""
        for camera, reduction in cameras.values():
            camera.params = [lens[0] * reduction, *camera.params[1:3], lens[1]]
        adjuster: Any = pycolmap.create_default_bundle_adjuster(options, config, centred)
        return adjuster.solve().ceres_summary.final_cost

    for has_centres in (False, True):  # the lenses of images without their centres are off
        if has_centres:
            pycolmap.create_default_bundle_adjuster(robust_options(), config, centred).solve()
        own = [(camera.params[0] / reduction, camera.params[3]) for camera, reduction in cameras.values()]
        lens = np.median(own, axis=0)
        cost(lens)
    centred.update_point_3d_errors()
    pycolmap.ObservationManager(centred).filter_all_points3D(OUTLIER * median_error(centred), LEAST_ANGLE)
    for step in LENS_STEPS:  # a focal length that is off by 1 % turns all cameras by a degree, which their centres hide
        around = np.array([lens[0], 1.0]) * step
        lens = lens + around * lowest(PLACES, [cost(lens + around * place) for place in PLACES])
    cost(lens)
    centred.update_point_3d_errors()
    sizes = np.array([(camera.width, camera.height) for camera, _ in cameras.values()])
    shifts = np.array([camera.params[1:3] for camera, _ in cameras.values()]) - sizes / 2
    is_near = bool((np.abs(shifts) <= MOST_CROPPED * sizes.max(axis=1, keepdims=True)).all())
    return centred if is_near and median_error(centred) <= LEAST_CENTRE_FALL * median_error(model) else None


def lowest(places: np.ndarray, values: Sequence[float]) -> np.ndarray:
    """The minimum [2], within MOST_STEPS, of the quadratic with these values at six places [6, 2]; without one the best
    place.
    """
    x, y = places.T
    _, *slope, xx, yy, xy = np.linalg.solve(np.stack([x**0, x, y, x**2, y**2, x * y], axis=1), values)
    curvature = np.array([[2 * xx, xy], [xy, 2 * yy]])
    if np.linalg.eigvalsh(curvature)[0] <= 0:
        return places[np.argmin(values)]
    return np.clip(-np.linalg.solve(curvature, slope), -MOST_STEPS, MOST_STEPS)


def give_lenses(report: Report, database: str, lenses: Lenses) -> None:
    """Replace the cameras of the images of a database; where focal lengths of EXIF go, matches are verified again."""
    import pycolmap

    with pycolmap.Database.open(database) as opened:
        images = {image.name: image for image in opened.read_all_images()}
        is_dropped = any(camera.has_prior_focal_length for camera in opened.read_all_cameras())
        for names, focal in lenses:
            before = opened.read_camera(images[names[0]].camera_id)
            size = before.width, before.height
            start = DEFAULT_FOCAL * max(size) if focal is None else focal
            camera = pycolmap.Camera.create_from_model_name(0, CAMERA_MODEL, start, *size)
            camera.camera_id = opened.write_camera(camera)
            rig = pycolmap.Rig()
            rig.add_ref_sensor(camera.sensor_id)
            rig.rig_id = opened.write_rig(rig)
            for image in (images[name] for name in names):
                image.camera_id = camera.camera_id
                frame = pycolmap.Frame(frame_id=image.frame_id, rig_id=rig.rig_id)
                frame.add_data_id(image.data_id)
                opened.update_frame(frame)
                opened.update_image(image)
        if is_dropped:
            ids = {image.image_id: name for name, image in images.items()}
            pairs = [pycolmap.pair_id_to_image_pair(pair) for pair, _ in zip(*opened.read_all_matches(), strict=True)]
            opened.clear_two_view_geometries()
    if is_dropped:
        verify(database, [(ids[a], ids[b]) for a, b in pairs])
