"""What Blender shows of a mesh file, as JSON: `blender --background --python blender_reads.py -- FILE OUT ...`."""

import json
import sys

import bpy

IMPORTERS = {
    "glb": (bpy.ops.import_scene, "gltf"),
    "obj": (bpy.ops.wm, "obj_import"),
    "ply": (bpy.ops.import_mesh, "ply"),
    "stl": (bpy.ops.import_mesh, "stl"),
    "usdz": (bpy.ops.wm, "usd_import"),
    "3mf": (bpy.ops.import_mesh, "threemf"),
}


def content_of(source):
    """Vertices, colours, texture sizes and types of material nodes after the import; `error` without one."""
    bpy.ops.wm.read_factory_settings(use_empty=True)
    group, name = IMPORTERS[source.rpartition(".")[2]]
    try:
        getattr(group, name)(filepath=source)
    except (AttributeError, RuntimeError) as error:
        return {"error": str(error)}
    items = [item for item in bpy.data.objects if item.type == "MESH"]
    if len(items) != 1:
        return {"error": f"{len(items)} objects"}
    mesh = items[0].data
    nodes = [node for look in mesh.materials if look and look.use_nodes for node in look.node_tree.nodes]
    pictures = [node.image for node in nodes if node.bl_idname == "ShaderNodeTexImage" and node.image]
    content = {
        "error": "",
        "vertices": [list(items[0].matrix_world @ vertex.co) for vertex in mesh.vertices],
        "images": [list(picture.size) for picture in pictures],
        "nodes": [node.bl_idname for node in nodes],
    }
    if mesh.color_attributes:
        colors = mesh.color_attributes[0]
        corners = [loop.vertex_index for loop in mesh.loops]
        vertices = corners if colors.domain == "CORNER" else range(len(mesh.vertices))
        by_vertex = {at: list(value.color_srgb)[:3] for at, value in zip(vertices, colors.data, strict=True)}
        content["colors"] = [by_vertex[at] for at in range(len(mesh.vertices))]
    return content


paths = sys.argv[sys.argv.index("--") + 1 :]
for source, out in zip(paths[::2], paths[1::2], strict=True):
    with open(out, "w") as file:
        json.dump(content_of(source), file)
