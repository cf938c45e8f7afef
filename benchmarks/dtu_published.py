"""Published results of the 15 DTU scans, Chamfer distance in mm; not measured here.

Each row is printed as in its source, including the mean. Rows are comparable only if their protocols agree: the results
of NeuS exist in two versions, that of the first preprint and that of the released code, which is usually cited.
"""

from __future__ import annotations

from dataclasses import dataclass

SCANS = (24, 37, 40, 55, 63, 65, 69, 83, 97, 105, 106, 110, 114, 118, 122)


@dataclass(frozen=True)
class Published:
    """A row of a published table."""

    name: str
    has_masks: bool | None  # in training; None if it is no such method
    values: tuple[float, ...]  # by SCANS
    mean: float
    source: str


NEUS_TEXT = "Wang et al., NeuS, NeurIPS 2021, first text, Table 1"
VOXURF_TEXT = "Wu et al., Voxurf, ICLR 2023, Table 2"
GS_TEXT = "Huang et al., 2D Gaussian Splatting, SIGGRAPH 2024, Table 1"
VOLSDF_TEXT = "Yariv et al., VolSDF, NeurIPS 2021, Table 1"
GEO_TEXT = "Fu et al., Geo-NeuS, NeurIPS 2022"
PGSR_TEXT = "Chen et al., PGSR, 2024"

ROWS = (
    Published(
        "NeuS, released code",
        True,
        (0.83, 0.98, 0.56, 0.37, 1.13, 0.59, 0.60, 1.45, 0.95, 0.78, 0.52, 1.43, 0.36, 0.45, 0.45),
        0.77,
        VOXURF_TEXT,
    ),
    Published(
        "NeuS, released code",
        False,
        (1.00, 1.37, 0.93, 0.43, 1.10, 0.65, 0.57, 1.48, 1.09, 0.83, 0.52, 1.20, 0.35, 0.49, 0.54),
        0.84,
        GS_TEXT,
    ),
    Published(
        "NeuS, first text",
        True,
        (1.15, 0.95, 0.80, 0.39, 1.26, 0.72, 0.69, 0.94, 1.14, 0.77, 0.66, 1.35, 0.39, 0.51, 0.52),
        0.82,
        NEUS_TEXT,
    ),
    Published(
        "NeuS, first text",
        False,
        (1.37, 1.21, 0.73, 0.40, 1.20, 0.70, 0.72, 1.01, 1.16, 0.82, 0.66, 1.69, 0.39, 0.49, 0.51),
        0.87,
        NEUS_TEXT,
    ),
    Published(
        "IDR",
        True,
        (1.63, 1.87, 0.63, 0.48, 1.04, 0.79, 0.77, 1.33, 1.16, 0.76, 0.67, 0.90, 0.42, 0.51, 0.53),
        0.90,
        VOLSDF_TEXT,
    ),
    Published(
        "VolSDF",
        False,
        (1.14, 1.26, 0.81, 0.49, 1.25, 0.70, 0.72, 1.29, 1.18, 0.70, 0.66, 1.08, 0.42, 0.61, 0.55),
        0.86,
        VOLSDF_TEXT,
    ),
    Published(
        "Voxurf",
        True,
        (0.65, 0.74, 0.39, 0.35, 0.96, 0.64, 0.85, 1.58, 1.01, 0.68, 0.60, 1.11, 0.37, 0.45, 0.47),
        0.72,
        VOXURF_TEXT,
    ),
    Published(
        "COLMAP, trim 7",
        None,
        (0.45, 0.91, 0.37, 0.37, 0.90, 1.00, 0.54, 1.22, 1.08, 0.64, 0.48, 0.59, 0.32, 0.45, 0.43),
        0.65,
        VOLSDF_TEXT,
    ),
    Published(
        "NeuralWarp",
        False,
        (0.49, 0.71, 0.38, 0.38, 0.79, 0.81, 0.82, 1.20, 1.06, 0.68, 0.66, 0.74, 0.41, 0.63, 0.51),
        0.68,
        GEO_TEXT,
    ),
    Published(
        "Neuralangelo",
        False,
        (0.37, 0.72, 0.35, 0.35, 0.87, 0.54, 0.53, 1.29, 0.97, 0.73, 0.47, 0.74, 0.32, 0.41, 0.43),
        0.61,
        PGSR_TEXT,
    ),
    Published(
        "Geo-NeuS",
        False,
        (0.38, 0.54, 0.34, 0.36, 0.80, 0.45, 0.41, 1.03, 0.84, 0.55, 0.46, 0.47, 0.29, 0.36, 0.35),
        0.51,
        GEO_TEXT,
    ),
)
