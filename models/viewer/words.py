"""The texts of the viewer in two languages."""

from __future__ import annotations

import os
from collections.abc import Callable

Words = Callable[[str], str]
CHINESE = "zh"
TEXTS = {
    "show": ("display", "显示"),
    "show_region": ("sphere", "球体"),
    "mesh": ("mesh", "网格"),
    "colour": ("colours", "颜色"),
    "normals": ("normals", "法线"),
    "depth": ("depth", "深度"),
    "cameras": ("cameras", "相机"),
    "points": ("points", "点云"),
    "region": ("region of interest", "感兴趣区域"),
    "radius": ("radius (factor)", "半径（倍数）"),
    "region_hint": (
        "drag the sphere by its arrows, then save it with the button below, or pass",
        "拖动球体的箭头，然后用下面的按钮保存，或传入",
    ),
    "crop": ("crop box", "裁剪框"),
    "save_conf": ("save region and box as a conf", "将区域和裁剪框存为配置"),
    "conf_saved": ("saved; the next commands take it as", "已保存；后续命令使用"),
    "ruler": ("ruler", "标尺"),
    "show_ruler": ("show the ruler", "显示标尺"),
    "pick": ("pick two points", "选取两点"),
    "pick_hint": ("click two points of the mesh or of the point cloud", "在网格或点云上点击两点"),
    "pick_missed": ("there is no surface and no point; click again", "此处没有表面或点；请重新点击"),
    "real_length": ("real length (m)", "真实长度（米）"),
    "distance": ("distance", "距离"),
    "units": ("units of the cameras", "相机单位"),
    "camera": ("camera", "视角"),
    "fov": ("field of view (degrees)", "视场角（度）"),
    "screenshot": ("screenshot", "截图"),
    "path": ("camera path", "相机路径"),
    "add_key": ("add this camera", "添加当前相机"),
    "remove_key": ("remove the last one", "移除最后一个"),
    "is_cycle": ("closed path", "闭合路径"),
    "seconds": ("seconds", "秒"),
    "save_path": ("save the path", "保存路径"),
    "path_saved": ("saved; render it with", "已保存；渲染命令："),
    "path_short": ("a path needs at least two cameras", "路径至少需要两个相机"),
    "path_keys": ("cameras in the path", "个相机在路径中"),
    "checkpoint": ("checkpoint", "检查点"),
    "masks": ("boxes for masks", "掩膜方框"),
    "photograph": ("photograph", "照片"),
    "look": ("view from its camera", "从它的位置看"),
    "draw": ("draw a box", "画一个方框"),
    "draw_hint": ("now drag a rectangle around the object", "现在在物体四周拖出一个矩形"),
    "leave": ("close the photograph", "离开照片"),
    "boxes_saved": ("boxes in", "方框已存入"),
    "no_surface": ("no surface yet at this step", "这一步还没有表面"),
    "computing": ("computing ...", "计算中……"),
    "export": ("export", "导出"),
    "format": ("format", "格式"),
    "resolution": ("grid points per side", "每边格点数"),
    "is_cropped": ("crop to the box", "按裁剪框裁剪"),
    "triangles": ("triangles (0: all)", "三角形数（0：全部）"),
    "texture": ("texture", "纹理"),
    "write": ("write the mesh", "写出网格"),
    "written": ("written:", "已写出："),
    "step": ("step", "步"),
    "training": ("training", "训练中"),
    "batch_psnr": ("batch PSNR", "批次 PSNR"),
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
