"""The scenes of the gallery: generated ones, and folders of captured ones, with and without masks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.gallery.render import TRUTH, TRUTH_OBJECT, WITNESS, write_scene
from benchmarks.gallery.scenes import HELD_OUT_EVERY, NEUS, SceneSpec
from data.errors import UserError
from data.io.files import write_result
from data.io.images import alpha_of, list_images, over_background, read_image, rgb_of, write_image
from data.readers.poses import OPENGL_TO_OPENCV

EVERY_EIGHTH = f"dataset.test_every={HELD_OUT_EVERY}"
MEASURED_CAMERAS = "cameras_true.json"  # of herzjesu8: K, rotation world to camera, centre
WITHOUT_MASKS = "no_masks"
FILES = "scenes"  # below the gallery's folder: what is generated or rewritten
WHITE = 1.0


@dataclass(frozen=True)
class Captured:
    """A scene in the folder of --data, and its references."""

    name: str
    has_masks: bool
    settings: tuple[str, ...] = (EVERY_EIGHTH,)
    truth: str = ""  # a mesh in the world of the cameras
    points: str = ""  # structure-from-motion points in the unit-sphere frame


CAPTURED = (
    Captured("bunny", has_masks=True, truth="gt_world.ply"),
    Captured("dtu_scan24", has_masks=False, points="sfm_points.ply"),
    Captured("dtu_scan65", has_masks=True, points="sfm_points.ply"),
    Captured("lego", has_masks=True, settings=()),
    Captured("fox", has_masks=False, settings=(EVERY_EIGHTH, "dataset.downscale=4")),
    Captured("herzjesu8", has_masks=False, settings=("dataset.test_views=[4]", "dataset.downscale=2")),
)


@dataclass(frozen=True)
class Case:
    """A scene for training, with or without its masks."""

    name: str  # of the scene
    has_masks: bool
    folder: Path
    settings: tuple[str, ...]  # KEY=VALUE of the conf: what is held out, and the reduction of the photographs
    original: SceneSpec | Path  # what the folder is made of; the folder itself where it is read as it is
    truth: Path | None = None
    points: Path | None = None
    frame: str = "world"  # of truth and points

    @property
    def exposure_varies(self) -> bool:
        """Whether the photographs differ in exposure; only generated scenes do."""
        return isinstance(self.original, SceneSpec) and self.original.exposure > 0

    @property
    def title(self) -> str:
        """The name of the scene, with a note if its masks are omitted."""
        return self.name if self.has_masks else f"{self.name}_{WITHOUT_MASKS}"


def generated(specs: Iterable[SceneSpec], out: Path) -> list[Case]:
    """The cases of generated scenes, in subfolders of `out`; nothing is written before `prepare`."""
    cases = []
    for spec in specs:
        base = out / FILES / spec.name
        for has_masks in (True, False) if spec.has_masks else (False,):
            folder = base if has_masks == spec.has_masks else out / FILES / f"{spec.name}_{WITHOUT_MASKS}"
            truth = base / (TRUTH_OBJECT if has_masks else TRUTH)
            is_unit = spec.format == NEUS  # elsewhere the region of interest is found, and holds another part
            cases.append(
                Case(
                    *(spec.name, has_masks, folder, (EVERY_EIGHTH,), spec),
                    truth=truth if is_unit else None,
                    points=base / WITNESS,
                )
            )
    return cases


def captured(data: Path, out: Path) -> list[Case]:
    """The cases of the folder of captured scenes; raises UserError if it contains none of them."""
    cases = []
    for scene in CAPTURED:
        original = data / scene.name
        if not original.is_dir():
            continue
        rewritten = out / FILES / scene.name if (original / MEASURED_CAMERAS).is_file() else original
        for has_masks in (True, False) if scene.has_masks else (False,):
            folder = rewritten if has_masks == scene.has_masks else out / FILES / f"{scene.name}_{WITHOUT_MASKS}"
            cases.append(
                Case(
                    *(scene.name, has_masks, folder, scene.settings, original),
                    truth=original / scene.truth if scene.truth else None,
                    points=original / scene.points if scene.points else None,
                    frame="unit" if scene.points else "world",
                )
            )
    if not cases:
        raise UserError(f"--data {data}: holds none of {', '.join(scene.name for scene in CAPTURED)}")
    return cases


def prepare(case: Case) -> None:
    """Write the folder of a case, unless it exists. Raises UserError if that is not possible."""
    base = case.original
    if isinstance(base, SceneSpec):
        folder = case.truth.parent if case.truth else case.points.parent
        write_scene(base, folder)
        base = folder
    if case.folder in (base, case.original) or case.folder.is_dir():
        return
    partial = case.folder.with_name(f"{case.folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    if (base / MEASURED_CAMERAS).is_file():
        _measured(base, partial)
    elif (base / "transforms_train.json").is_file():
        _over_white(base, partial)
    else:
        for entry in base.iterdir():
            if entry.name != "mask":
                (partial / entry.name).symlink_to(entry.resolve())
    partial.rename(case.folder)


def _measured(base: Path, folder: Path) -> None:
    """A transforms.json of photographs whose cameras were measured."""
    cameras = json.loads((base / MEASURED_CAMERAS).read_text(encoding="utf-8"))
    frames = []
    for name, camera in cameras.items():
        pose = np.eye(4)
        pose[:3, :3] = np.array(camera["R_world_to_camera"]).T
        pose[:3, 3] = camera["centre"]
        (fx, _, cx), (_, fy, cy), _ = camera["K"]
        lens = {"fl_x": fx, "fl_y": fy, "cx": cx + 0.5, "cy": cy + 0.5, "w": camera["width"], "h": camera["height"]}
        frames.append({"file_path": f"images/{name}", "transform_matrix": (pose @ OPENGL_TO_OPENCV).tolist()} | lens)
    (folder / "images").symlink_to((base / "photographs").resolve())
    write_result(folder / "transforms.json", (json.dumps({"frames": frames}, indent=1) + "\n").encode())


def _over_white(base: Path, folder: Path) -> None:
    """A Blender scene with its RGBA photographs composited over white, so that no mask is available."""
    for name in ("train", "test"):
        (folder / name).mkdir()
        for path in list_images(base / name):
            picture = read_image(path)
            alpha = alpha_of(picture)
            rgb = rgb_of(picture)
            write_image(folder / name / path.name, rgb if alpha is None else over_background(rgb, alpha, WHITE))
        shutil.copy2(base / f"transforms_{name}.json", folder)
