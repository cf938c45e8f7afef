"""The GPS positions in the EXIF data of photographs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from data.errors import DAMAGE

# Tags of EXIF 2.32 (CIPA DC-008), section 4.6.6.
GPS_BLOCK = 0x8825
LATITUDE_SIDE, LATITUDE, LONGITUDE_SIDE, LONGITUDE, BELOW_SEA, ALTITUDE = 1, 2, 3, 4, 5, 6
# The ellipsoid of WGS 84: semi-major axis in metres, squared eccentricity.
EQUATOR, ECCENTRICITY = 6378137.0, 6.69437999014e-3


def positions(photographs: Sequence[Path | None]) -> dict[int, np.ndarray]:
    """East, north, up [3] in metres of the photographs that have a position, by index; the first one is the origin."""
    found = {
        index: place
        for index, path in enumerate(photographs)
        if path is not None and (place := read_gps(path)) is not None
    }
    if not found:
        return {}
    latitude, longitude, altitude = next(iter(found.values()))
    sine = np.sin(np.radians(latitude))
    bend = 1.0 - ECCENTRICITY * sine**2
    north = EQUATOR * (1.0 - ECCENTRICITY) / bend**1.5  # metres per radian
    east = EQUATOR / np.sqrt(bend) * np.cos(np.radians(latitude))
    return {
        index: np.array(
            [east * np.radians(place[1] - longitude), north * np.radians(place[0] - latitude), place[2] - altitude]
        )
        for index, place in found.items()
    }


def read_gps(path: Path) -> tuple[float, float, float] | None:
    """Latitude and longitude in degrees, altitude in metres (0 if unknown); None if the file has no position."""
    try:
        with Image.open(path) as image:
            tags = image.getexif().get_ifd(GPS_BLOCK)
        latitude, longitude = (_degrees(tags[name]) for name in (LATITUDE, LONGITUDE))
        latitude *= -1.0 if tags.get(LATITUDE_SIDE) == "S" else 1.0
        longitude *= -1.0 if tags.get(LONGITUDE_SIDE) == "W" else 1.0
        below = tags.get(BELOW_SEA) in (1, b"\x01")
        altitude = float(tags.get(ALTITUDE, 0.0)) * (-1.0 if below else 1.0)
    except (*DAMAGE, OSError, Image.DecompressionBombError):
        return None
    place = (latitude, longitude, altitude)
    is_valid = bool(np.isfinite(place).all()) and abs(latitude) <= 90.0 and abs(longitude) <= 180.0
    return place if is_valid else None


def _degrees(parts: Sequence[float]) -> float:
    """Degrees of degrees, minutes and seconds."""
    degrees, minutes, seconds = (float(part) for part in parts)
    return degrees + minutes / 60.0 + seconds / 3600.0
