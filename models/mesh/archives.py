"""USDZ for augmented reality and 3MF for 3D printing: mesh files that are zip archives of text.

USDZ: https://openusd.org/release/spec_usdz.html; 3MF: core specification 1.3, materials extension 1.2 (colour groups).
V vertices, F triangles.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Mapping
from xml.sax.saxutils import escape

import numpy as np

FORMATTED_ROWS = 2**16  # rows of a text that are formatted at a time
ALIGNMENT = 64  # bytes; the content of each file of a USDZ begins at a multiple
ENTRY_HEADER_BYTES = 30  # bytes of a zip entry before its name and extra field
PADDING_FIELD = 0x1986  # identifier of the extra field that aligns it
USD_LAYER, USD_PICTURE = "mesh.usda", "texture.png"  # the files of a USDZ; the first one is the scene
MODEL_3MF = "3D/3dmodel.model"
USD_MATERIAL = """
    def Material "Look"
    {
        token outputs:surface.connect = </Object/Look/Shader.outputs:surface>
        def Shader "Shader"
        {
            uniform token info:id = "UsdPreviewSurface"
            color3f inputs:diffuseColor.connect = </Object/Look/Texture.outputs:rgb>
            float inputs:metallic = 0
            float inputs:roughness = 1
            token outputs:surface
        }
        def Shader "Texture"
        {
            uniform token info:id = "UsdUVTexture"
            asset inputs:file = @%s@
            token inputs:sourceColorSpace = "sRGB"
            float2 inputs:st.connect = </Object/Look/Coordinates.outputs:result>
            token inputs:wrapS = "clamp"
            token inputs:wrapT = "clamp"
            float3 outputs:rgb
        }
        def Shader "Coordinates"
        {
            uniform token info:id = "UsdPrimvarReader_float2"
            string inputs:varname = "st"
            float2 outputs:result
        }
    }"""
TYPES_3MF = """<?xml version="1.0" encoding="UTF-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
<Default Extension="model" ContentType="application/vnd.ms-package.3dmanufacturing-3dmodel+xml"/></Types>"""
RELATIONS_3MF = f"""<?xml version="1.0" encoding="UTF-8"?>
<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">
<Relationship Target="/{MODEL_3MF}" Id="rel0" Type="http://schemas.microsoft.com/3dmanufacturing/2013/01/3dmodel"/>
</Relationships>"""


def usdz(
    vertices: np.ndarray,
    faces: np.ndarray,
    attributes: Mapping[str, np.ndarray],
    picture: bytes | None,
    offset: np.ndarray,
    about: Mapping[str, object],
    is_y_up: bool,
) -> bytes:
    """A USDZ of triangles [F, 3] and vertices [V, 3], which its scene moves by `offset` [3], in metres.

    attributes: values [V, K] by their names in USD, such as `color3f[] primvars:displayColor`. picture: a PNG for the
    attribute `texCoord2f[] primvars:st`. about: texts that the file records.
    """
    record = "\n".join(f"        string {key} = {json.dumps(str(value))}" for key, value in about.items())
    bounds = _tuples(np.array([vertices.min(axis=0), vertices.max(axis=0)]))
    values = {"point3f[] points": vertices, **attributes}
    layer = [
        f'#usda 1.0\n(\n    customLayerData = {{\n{record}\n    }}\n    defaultPrim = "Object"\n    metersPerUnit = 1\n'
        f'    upAxis = "{"Y" if is_y_up else "Z"}"\n)\n\ndef Xform "Object"\n{{\n'
        f"    double3 xformOp:translate = {_tuples(offset[None], 17)}\n"
        '    uniform token[] xformOpOrder = ["xformOp:translate"]\n\n    def Mesh "Surface" (\n'
        '        prepend apiSchemas = ["MaterialBindingAPI"]\n    )\n    {\n        uniform bool doubleSided = 1\n'
        f'        uniform token subdivisionScheme = "none"\n        float3[] extent = [{bounds}]\n'
        f"        int[] faceVertexCounts = [{', '.join(['3'] * len(faces))}]\n"
        f"        int[] faceVertexIndices = [{', '.join(map(str, faces.reshape(-1).tolist()))}]\n"
    ]
    layer += [
        f'        {name} = [{_tuples(value)}] (\n            interpolation = "vertex"\n        )\n'
        for name, value in values.items()
    ]
    layer.append(
        "    }\n}\n"
        if picture is None
        else f"        rel material:binding = </Object/Look>\n    }}\n{USD_MATERIAL % USD_PICTURE}\n}}\n"
    )
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as target:
        for name, content in ((USD_LAYER, "".join(layer).encode()), (USD_PICTURE, picture)):
            if content is not None:
                entry = zipfile.ZipInfo(name)
                start = archive.tell() + ENTRY_HEADER_BYTES + len(name) + 4
                entry.extra = struct.pack("<HH", PADDING_FIELD, -start % ALIGNMENT) + bytes(-start % ALIGNMENT)
                target.writestr(entry, content)
    return archive.getvalue()


def three_mf(vertices: np.ndarray, faces: np.ndarray, rgb: np.ndarray | None, about: str) -> bytes:
    """A 3MF of triangles [F, 3] and vertices [V, 3] in millimetres, z up; rgb: their colours, sRGB uint8 [V, 3]."""
    core, material = (f"http://schemas.microsoft.com/3dmanufacturing/{name}/2015/02" for name in ("core", "material"))
    corners, group, triangle = faces, "", '<triangle v1="%d" v2="%d" v3="%d"/>\n'
    if rgb is not None:
        colors, of_vertex = np.unique(rgb, axis=0, return_inverse=True)
        group = rows('<m:color color="#%02X%02X%02X"/>\n', colors)
        group = f'<m:colorgroup id="1">\n{group}</m:colorgroup>\n'
        corners = np.concatenate([faces, of_vertex.reshape(-1)[faces]], axis=1)
        triangle = '<triangle v1="%d" v2="%d" v3="%d" pid="1" p1="%d" p2="%d" p3="%d"/>\n'
    points = rows('<vertex x="%.7g" y="%.7g" z="%.7g"/>\n', vertices)
    model = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<model unit="millimeter" xml:lang="en" xmlns="{core}" '
        f'xmlns:m="{material}">\n<metadata name="Description">{escape(about)}</metadata>\n<resources>\n{group}'
        f'<object id="2" type="model"><mesh>\n<vertices>\n{points}</vertices>\n<triangles>\n{rows(triangle, corners)}'
        '</triangles>\n</mesh></object>\n</resources>\n<build><item objectid="2"/></build>\n</model>\n'
    )
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as target:
        for name, content in (("[Content_Types].xml", TYPES_3MF), ("_rels/.rels", RELATIONS_3MF), (MODEL_3MF, model)):
            target.writestr(zipfile.ZipInfo(name), content.encode(), zipfile.ZIP_DEFLATED)
    return archive.getvalue()


def rows(pattern: str, values: np.ndarray) -> str:
    """The rows of `values` formatted by `pattern`."""
    texts = []
    for start in range(0, len(values), FORMATTED_ROWS):
        part = values[start : start + FORMATTED_ROWS]
        texts.append(pattern * len(part) % tuple(part.reshape(-1).tolist()))
    return "".join(texts)


def _tuples(values: np.ndarray, digits: int = 7) -> str:
    """The rows of `values` [N, K] as a list of tuples in USD."""
    return rows(f"({', '.join([f'%.{digits}g'] * values.shape[1])}), ", values).removesuffix(", ")
