"""Writes docs/tour.ipynb, the tour in ten cells: `python -m docs.make_tour`. This file contains the cells.

tests/test_tour.py runs the notebook with few steps, and fails if it is not the output of this program.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

NOTEBOOK = Path(__file__).resolve().parent / "tour.ipynb"
TEXT, CODE = "markdown", "code"
CELLS = (
    (
        TEXT,
        "# From photographs to a mesh\n"
        "\n"
        "Ten cells, about five minutes on two cores. 十个单元格，从照片到网格，双核约五分钟。\n"
        "\n"
        "Run `pip install -r requirements.txt` first. To use your own photographs, set `PHOTOS` to their folder; for "
        "advice on taking them, see [photographs.md](photographs.md). "
        "使用自己的照片时，把 `PHOTOS` 改成照片所在的文件夹。",
    ),
    (
        CODE,
        "import os\n"
        "import subprocess\n"
        "import sys\n"
        "from html import escape\n"
        "from pathlib import Path\n"
        "\n"
        "import trimesh\n"
        "from IPython.display import HTML, Image, Video\n"
        "\n"
        'ROOT = next(folder for folder in (Path.cwd(), *Path.cwd().parents) if (folder / "exp_runner.py").is_file())\n'
        "sys.path.insert(0, str(ROOT))  # not needed with `pip install .` and `import neus`\n"
        "from models.commands import interface as neus\n"
        "\n"
        'STEPS = int(os.environ.get("TOUR_STEPS", 2500))  # more steps give a better surface\n'
        'OUT = Path(os.environ.get("TOUR_OUT", ROOT / "exp" / "tour"))\n'
        'PHOTOS, SCENE = OUT / "photographs", OUT / "scene"\n'
        'KEYS = {"general.base_exp_dir": OUT, "dataset.data_dir": SCENE, "dataset.test_every": 8,\n'
        '        "train.end_iter": STEPS, "train.val_freq": max(1, STEPS // 5),\n'
        '        "train.val_mesh_freq": max(1, STEPS // 2), "train.report_freq": max(1, STEPS // 50)}\n'
        'SETTINGS = [f"{key}={value}" for key, value in KEYS.items()]\n'
        'conf = neus.read_conf("fast.conf", case="tour", overrides=SETTINGS)',
    ),
    (
        CODE,
        "# Photographs of a jug on a patterned cloth, from all sides. 照片：花布上的一只壶\n"
        "if not PHOTOS.exists():\n"
        '    size = os.environ.get("TOUR_PHOTOS", "--count 36 --width 400").split()\n'
        '    make = [sys.executable, "-m", "data.demo.make_photographs", str(PHOTOS), *size]\n'
        "    subprocess.run(make, cwd=ROOT, check=True)\n"
        "Image(str(sorted(PHOTOS.iterdir())[0]))",
    ),
    (
        CODE,
        "# Estimate cameras and the region of interest from the photographs. 由照片估计相机和感兴趣区域\n"
        "with neus.telling(print):\n"
        "    neus.prepare(conf, PHOTOS)\n"
        'Image(str(SCENE / "overview.png"), width=900)',
    ),
    (
        CODE,
        "# Train. exp/tour/report.html is updated meanwhile. 训练，期间 report.html 会更新\n"
        "scene = neus.load_scene(conf)\n"
        'print(scene.n_views, "photographs; cameras", scene.c2w.shape)\n'
        "with neus.telling(print):\n"
        "    neus.train(conf, is_continue=True)",
    ),
    (
        CODE,
        "# Metrics on test photographs. 测试照片上的指标\n"
        "model = neus.open_model(conf)\n"
        "metrics = neus.evaluate(model, neus.EvaluationRequest(neus.MeshRequest(128)))\n"
        'Image(str(OUT / "report" / "report.png"))',
    ),
    (
        CODE,
        "# The report: curves, images, interactive mesh. 报告\n"
        'page = (OUT / "report.html").read_text(encoding="utf-8")\n'
        'HTML(f\'<iframe srcdoc="{escape(page)}" width="100%" height="700" style="border: 0"></iframe>\')',
    ),
    (
        CODE,
        "# The mesh with colours from the photographs. 由照片着色的网格\n"
        'request = neus.MeshRequest(128, is_refined=True, clean="pieces", color="vertex", output=OUT / "mesh.glb")\n'
        "surface = neus.extract_mesh(model, request)\n"
        'print("size:", surface.mesh.extents)\n'
        'trimesh.load(OUT / "mesh.glb").show()',
    ),
    (
        CODE,
        "# A turntable video. 环绕视频\n"
        'film = {"shown": ("mesh", "shape"), "seconds": 2.0, "fps": 12.0, "output": OUT / "orbit.mp4"}\n'
        "neus.render_video(model, neus.VideoRequest(**film, mesh=request))\n"
        'Video(str(OUT / "orbit.mp4"), embed=True, html_attributes="controls loop autoplay muted")',
    ),
    (
        TEXT,
        "Next: the [viewer](looking.md#the-viewer), [your own photographs](photographs.md), "
        "[all flags](flags.md). 接下来：[查看器](looking.md#the-viewer)、[自己的照片](photographs.zh-CN.md)、"
        "[所有参数](flags.zh-CN.md)。",
    ),
)


def notebook() -> str:
    """The text of the notebook file (nbformat 4.5)."""
    cells = []
    for index, (kind, source) in enumerate(CELLS):
        cell = {"cell_type": kind, "id": f"cell-{index}", "metadata": {}, "source": source.splitlines(keepends=True)}
        cells.append(cell | ({"execution_count": None, "outputs": []} if kind == CODE else {}))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"kernelspec": kernel, "language_info": {"name": "python"}}
    content = {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def main() -> int:
    """Write the notebook; returns the exit status."""
    NOTEBOOK.write_text(notebook(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
