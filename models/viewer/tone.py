"""Colours in the viewer as in the photographs: meshes without lighting, and the inverse of the page's tone mapping.

viser's page draws with react-three-fiber, whose default is three.js's ACESFilmicToneMapping at exposure 1, an sRGB
output, and lights. A glTF mesh with KHR_materials_unlit is drawn without lights; its vertex colours are linear.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import trimesh
from trimesh.exchange.gltf import export_glb

# Stephen Hill's fit of the ACES reference and output transforms, as in three.js (src/renderers/shaders/ShaderChunk/
# tonemapping_pars_fragment.glsl.js): sRGB to the transform's primaries, a rational function, and back.
INPUT = np.array([[0.59719, 0.35458, 0.04823], [0.07600, 0.90834, 0.01566], [0.02840, 0.13383, 0.83777]])
OUTPUT = np.array([[1.60475, -0.53108, -0.07367], [-0.10208, 1.10813, -0.00605], [-0.00327, -0.07276, 1.07602]])
NUMERATOR = (1.0, 0.0245786, -0.000090537)  # of v^2, v, 1
DENOMINATOR = (0.983729, 0.4329510, 0.238081)
EXPOSURE = 1.0 / 0.6

UNLIT = "KHR_materials_unlit"
ATTRIBUTE = "_COLOR"  # trimesh writes its own vertex colours with 8 bits, and other attributes as float32
MATERIAL = trimesh.visual.material.PBRMaterial(doubleSided=True)


def linear(rgb: np.ndarray) -> np.ndarray:
    """sRGB uint8 of any shape as linear float64 in [0, 1] (IEC 61966-2-1)."""
    shares = rgb / 255.0
    return np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)


def before_tone_mapping(rgb: np.ndarray) -> np.ndarray:
    """Linear float32 [..., 3] that the page's tone mapping shows as the sRGB colours `rgb`, uint8 [..., 3]."""
    shown = np.clip(linear(rgb) @ np.linalg.inv(OUTPUT).T, 0.0, 1.0)
    # NUMERATOR(v) = shown * DENOMINATOR(v) is a quadratic equation with one positive root.
    a, b, c = (top - shown * bottom for top, bottom in zip(NUMERATOR, DENOMINATOR, strict=True))
    fitted = (-b + np.sqrt(b * b - 4.0 * a * c)) / (2.0 * a)
    return (fitted @ np.linalg.inv(INPUT).T / EXPOSURE).astype(np.float32)


def unlit_glb(mesh: trimesh.Trimesh, rgb: np.ndarray) -> bytes:
    """A binary glTF of `mesh` that the page shows with the vertex colours `rgb`, sRGB uint8 [V, 3]."""
    coloured = trimesh.Trimesh(
        mesh.vertices,
        mesh.faces,
        visual=trimesh.visual.TextureVisuals(material=MATERIAL),
        vertex_attributes={ATTRIBUTE: before_tone_mapping(rgb)},
        process=False,
    )
    return export_glb(coloured.scene(), tree_postprocessor=_unlit)


def _unlit(tree: dict[str, Any]) -> None:
    """Turn the attribute into vertex colours, and lighting off."""
    tree["extensionsUsed"] = [UNLIT]
    for material in tree["materials"]:
        material["extensions"] = {UNLIT: {}}
    for mesh in tree["meshes"]:
        for primitive in mesh["primitives"]:
            primitive["attributes"]["COLOR_0"] = primitive["attributes"].pop(ATTRIBUTE)
