"""GPS positions of photographs: the similarity from the cameras to them, and the map grid."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data.cameras import similarity
from data.errors import INVALID
from data.io.metadata import ALTITUDE, BELOW_SEA, LATITUDE, LATITUDE_SIDE, LONGITUDE, LONGITUDE_SIDE, read_metadata
from data.parsed_scene import ParsedScene, Reference

WORST_GPS = 0.2  # residual of the positions over their extent; above, the positions are too coarse for a scale
LEAST_GPS = 3
TRIPLES = 300  # random ones, of which the one with the least median residual starts the fit
OUTLIER = 4.0  # in medians of the residuals: 99.9 % of normally distributed positions are below 2.6
FINEST = 0.02  # metres: no median residual is taken for smaller
# Drones write the position again into XMP, with all digits of their RTK receiver; one maker misspells the longitude.
XMP_TAGS = tuple(
    re.compile(rb":" + name + rb"[=\"'>\s]{1,4}([-+]?[0-9.]+)[\"'<]", re.IGNORECASE)
    for name in (rb"GpsLatitude", rb"GpsLongt?itude", rb"AbsoluteAltitude")
)


@dataclass(frozen=True)
class Located:
    """The similarity from the world frame to east, north, up in metres, by the photographs whose positions agree."""

    turn: np.ndarray  # [3, 3]
    factor: float
    error: float  # relative standard error of `factor`
    tilt: float  # standard error of `turn` about its least determined axis, radians
    views: tuple[int, ...]  # indices of the images
    places: np.ndarray  # [len(views), 3] latitude and longitude in degrees, altitude in metres
    left_out: tuple[str, ...]  # photographs whose positions do not agree


def located(parsed: ParsedScene, sources: Mapping[str, Path]) -> Located | None:
    """The fit of the cameras to the GPS positions of their photographs; None if these do not give a scale.

    `sources`: the photograph of each image, by the name of the image. Positions at 0, 0, which receivers write before
    their first fix, and those far from their cameras are left out.
    """
    paths = [sources.get(image.path.name) for image in parsed.images]
    positions = {view: place for view, path in enumerate(paths) if path is not None and (place := read_gps(path))}
    views = [view for view, place in positions.items() if any(place[:2])]
    if len(views) < LEAST_GPS:
        return None
    theirs = east_north_up(np.array([positions[view] for view in views]))
    ours = np.array([parsed.images[view].c2w[:3, 3] for view in views])
    if not np.ptp(ours, axis=0).any():
        return None
    kept = _agreeing(ours, theirs)
    ours, theirs = ours[kept], theirs[kept]
    turn, factor, shift = similarity(ours, theirs)
    residual = math.sqrt(np.mean(np.sum((theirs - factor * ours @ turn.T - shift) ** 2, axis=1)))
    spread = np.linalg.svd(theirs - theirs.mean(axis=0), compute_uv=False)  # times the square root of their number
    extent = float(np.linalg.norm(spread)) / math.sqrt(len(ours))
    if factor <= 0.0 or residual > WORST_GPS * extent:
        return None
    least = math.sqrt(float(np.sum(spread[1:] ** 2)))  # of the spread about an axis
    tilt = residual / math.sqrt(3) / least if least else math.inf
    used = [view for view, is_kept in zip(views, kept, strict=True) if is_kept]
    left_out = tuple(path.name for view, path in enumerate(paths) if path and view in positions and view not in used)
    places = np.array([positions[view] for view in used])
    return Located(turn, factor, residual / extent / math.sqrt(len(ours)), tilt, tuple(used), places, left_out)


def _agreeing(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Which positions [N, 3] fit one similarity from `ours` to `theirs`, bool [N]: least median of squares
    (Rousseeuw, 1984), then least squares without outliers.
    """
    count = len(ours)
    triples = np.random.default_rng(0).permuted(np.tile(np.arange(count), (TRIPLES, 1)), axis=1)[:, :LEAST_GPS]
    best = min((_residuals(ours, theirs, triple) for triple in triples), key=np.median)
    best = min(best, _residuals(ours, theirs, np.arange(count)), key=np.median)
    kept = np.ones(count, bool)
    for _ in range(10):
        fitting = best <= OUTLIER * max(float(np.median(best)), FINEST)
        if (fitting == kept).all() or np.count_nonzero(fitting) < LEAST_GPS:
            break
        kept = fitting
        best = _residuals(ours, theirs, np.flatnonzero(kept))
    return kept


def _residuals(ours: np.ndarray, theirs: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Distances [N] in metres after the similarity of some rows; infinite where they do not define one."""
    if not np.ptp(ours[rows], axis=0).any():
        return np.full(len(ours), np.inf)
    turn, factor, shift = similarity(ours[rows], theirs[rows])
    return np.linalg.norm(theirs - factor * ours @ turn.T - shift, axis=1)


def east_north_up(places: np.ndarray) -> np.ndarray:
    """Metres [N, 3] from the median place, of latitudes and longitudes in degrees, altitudes in metres [N, 3]."""
    earth = _earth()
    fixed = earth.ellipsoid_to_ecef(places)
    return earth.ecef_to_enu(fixed, np.median(fixed, axis=0))


def _earth() -> Any:
    """pycolmap's transforms of positions on WGS 84."""
    import pycolmap

    return pycolmap.GPSTransform(pycolmap.GPSTransformEllipsoid.WGS84)


def georeference(parsed: ParsedScene, gps: Located) -> Reference:
    """The map grid of a scene: UTM on WGS 84, with the heights of the photographs."""
    theirs, zone = _earth().ellipsoid_to_utm(gps.places)
    is_south = bool(gps.places[0, 0] < 0.0)
    middle = theirs.mean(axis=0)
    ours = np.array([parsed.images[view].c2w[:3, 3] for view in gps.views])
    turn, scale, shift = similarity(ours, theirs - middle)
    off = np.sqrt(np.mean((theirs - middle - scale * ours @ turn.T - shift) ** 2, axis=0))
    return Reference(
        crs=f"EPSG:{32700 + zone if is_south else 32600 + zone}",
        zone=f"{zone}{'S' if is_south else 'N'}",
        offset=tuple(map(float, middle + shift)),
        rotation=tuple(tuple(map(float, row)) for row in turn),
        scale=float(scale),
        accuracy=(float(math.hypot(*off[:2])), float(off[2])),
        photographs=len(ours),
        left_out=gps.left_out,
    )


def read_gps(path: Path) -> tuple[float, float, float] | None:
    """Latitude and longitude in degrees, altitude in metres (0 if unknown); None if the file has no position.

    The position of XMP takes precedence over that of EXIF.
    """
    metadata = read_metadata(path)
    tags, texts = metadata.gps, [tag.search(metadata.xmp) for tag in XMP_TAGS]
    try:
        if texts[0] and texts[1]:
            latitude, longitude = float(texts[0][1]), float(texts[1][1])
        else:
            parts = (tags[name][:3] for name in (LATITUDE, LONGITUDE))  # degrees, minutes and seconds
            latitude, longitude = (whole + minutes / 60.0 + seconds / 3600.0 for whole, minutes, seconds in parts)
            latitude *= -1.0 if tags.get(LATITUDE_SIDE, b"")[:1] == b"S" else 1.0
            longitude *= -1.0 if tags.get(LONGITUDE_SIDE, b"")[:1] == b"W" else 1.0
        altitude = tags.get(ALTITUDE, (0.0,))[0] * (-1.0 if tags.get(BELOW_SEA) == b"\x01" else 1.0)
        altitude = float(texts[2][1]) if texts[2] else altitude
    except INVALID:
        return None
    place = (latitude, longitude, altitude)
    is_valid = bool(np.isfinite(place).all()) and abs(latitude) <= 90.0 and abs(longitude) <= 180.0
    return place if is_valid else None
