"""The world frame of a prepared scene: z up, and metres where the size is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from data.io.exif import upright_size
from data.parsed_scene import ParsedScene, WorldFrame
from data.prepare.frames import Frame
from data.prepare.gravity import upright
from data.prepare.metric import Known, measured
from data.prepare.panorama import facing_views
from data.scenes.region import parse_roi


def world_frame(
    parsed: ParsedScene,
    known: Known,
    frames: Sequence[Frame],
    sources: Sequence[Path],
    errors: Mapping[str, float],
    roi: str = "",
) -> ParsedScene:
    """The model of structure from motion, upright and in metres where the size is known.

    Views of panoramas that do not show the centre of the region `roi`, or of the cameras, are left out. `errors`: mean
    reprojection error in pixels, by the name of the image. Raises UserError as `measured`.
    """
    by_name = {path.name: path for path in sources}
    called = {frame.name: by_name[frame.source] for frame in frames if frame.source in by_name}
    shown = [image.path.name for image in parsed.images]
    sizes = {name: upright_size(called[name]) for name in shown if name in called} if known.length else {}
    stood = measured(upright(parsed), known, called, {name: size for name, size in sizes.items() if size is not None})
    named = {frame.source: errors[frame.name] for frame in frames if frame.name in errors and frame.name in shown}
    stood = facing_views(stood, parse_roi(roi).centre if roi else None)
    without = tuple(frame.source for frame in frames if frame.name not in shown)
    return replace(stood, frame=replace(stood.frame or WorldFrame(""), camera_errors=named, without_camera=without))
