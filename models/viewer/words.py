"""The texts of the viewer in two languages."""

from __future__ import annotations

import os
from collections.abc import Callable

Words = Callable[[str], str]
CHINESE = "zh"
TEXTS = {
    "show": ("show", "显示"),
    "mesh": ("mesh", "网格"),
    "colour": ("rendering", "渲染"),
    "normals": ("normals", "法线"),
    "depth": ("depth", "深度"),
    "cameras": ("cameras", "相机"),
    "points": ("points", "点云"),
    "region": ("region of interest", "感兴趣区域"),
    "radius": ("radius", "半径"),
    "region_hint": ("drag the sphere by its arrows, then pass", "拖动球体的箭头，然后传入"),
    "checkpoint": ("checkpoint", "检查点"),
    "masks": ("boxes for masks", "掩膜方框"),
    "photograph": ("photograph", "照片"),
    "look": ("look through it", "从它的位置看"),
    "draw": ("draw a box", "画一个方框"),
    "draw_hint": ("now drag a rectangle around the object", "现在在物体四周拖出一个矩形"),
    "leave": ("leave the photograph", "离开照片"),
    "boxes_saved": ("boxes in", "方框已存入"),
    "no_surface": ("no surface yet at this step", "这一步还没有表面"),
    "step": ("step", "步"),
    "training": ("training", "训练中"),
    "finished": ("finished", "已完成"),
    "stopped": ("stopped", "已停止"),
}


def words(language: str | None) -> Words:
    """A function from a key to its text. None selects the language of the terminal, as the server does not know the
    browser's.
    """
    spoken = language or (os.environ.get("LC_ALL") or os.environ.get("LANG") or "")
    index = 1 if spoken.lower().startswith(CHINESE) else 0
    return lambda key: TEXTS[key][index]
