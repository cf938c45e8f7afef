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
        "import exp_runner\n"
        "from data.prepare.pipeline import Request, prepare\n"
        "from models import interface\n"
        "from models.interface import EvaluationRequest, MeshRequest\n"
        "\n"
        'STEPS = int(os.environ.get("TOUR_STEPS", 2500))  # more steps give a better surface\n'
        'OUT = Path(os.environ.get("TOUR_OUT", ROOT / "exp" / "tour"))\n'
        'PHOTOS, SCENE = OUT / "photographs", OUT / "scene"\n'
        'KEYS = {"general.base_exp_dir": OUT, "dataset.data_dir": SCENE, "dataset.test_every": 8,\n'
        '        "train.end_iter": STEPS, "train.val_freq": max(1, STEPS // 5),\n'
        '        "train.val_mesh_freq": max(1, STEPS // 2), "train.report_freq": max(1, STEPS // 50)}\n'
        'SETTINGS = [f"{key}={value}" for key, value in KEYS.items()]\n'
        'conf = interface.read_conf("fast.conf", case="tour", overrides=SETTINGS)',
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
        "prepare(Request(PHOTOS, SCENE, frames=80), print)  # frames: of a video\n"
        'Image(str(SCENE / "overview.png"), width=900)',
    ),
    (
        CODE,
        "# Train. exp/tour/report.html is updated meanwhile. 训练，期间 report.html 会更新\n"
        "scene = interface.load_scene(conf)\n"
        'print(scene.n_views, "photographs; cameras", scene.c2w.shape)\n'
        "interface.train(conf, is_continue=True)",
    ),
    (
        CODE,
        "# Metrics on test photographs. 测试照片上的指标\n"
        "metrics = interface.evaluate(conf, EvaluationRequest(MeshRequest(128)))\n"
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
        'request = MeshRequest(128, is_refined=True, clean="pieces", color="vertex", output=OUT / "mesh.glb")\n'
        "surface = interface.extract_mesh(conf, request)\n"
        'print("size:", surface.mesh.extents)\n'
        'trimesh.load(OUT / "mesh.glb").show()',
    ),
    (
        CODE,
        "# A turntable video, by a mode of the command line. 环绕视频，使用命令行的模式\n"
        'words = ["--mode", "render", "--show", "mesh,shape", "--resolution", "128", "--seconds", "2", "--fps", "12"]\n'
        'words += [word for setting in SETTINGS for word in ("--set", setting)]\n'
        'exp_runner.main(["--conf", "fast.conf", "--case", "tour", *words, "--output", str(OUT / "orbit.mp4")])\n'
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
