"""Structure from motion by pycolmap: the tasks for `run_apart`, each a thin call into the library.

Single calls of the library block for minutes; how far they are shows in the database they write to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SEED = 0
# COLMAP's model with one focal length and one radial coefficient: enough for phones and cameras (0.93 pixels on the
# photographs of docs/results.md), and not underdetermined by few photographs as the larger ones are.
CAMERA_MODEL = "SIMPLE_RADIAL"
BLOCK_PAIRS = 64  # are matched and written at a time: the grain of the progress bar, and of going on after a stop
SMALLEST_MODEL = 3  # photographs
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
    return [
        {
            "folder": str(key),
            "names": sorted(image.name for image in model.images.values() if image.has_pose),
            "points": model.num_points3D(),
            "error": model.compute_mean_reprojection_error(),
        }
        for key, model in models.items()
    ]
