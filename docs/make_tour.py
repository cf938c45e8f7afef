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
        'STEPS = int(os.environ.get("TOUR_STEPS", 2500))  # more steps give a better surface\n'
        'OUT = Path(os.environ.get("TOUR_OUT", ROOT / "exp" / "tour"))\n'
        'PHOTOS = OUT / "photographs"\n'
        "\n"
        "\n"
        "def run(*words):\n"
        '    """Run the program with these arguments and the settings of this tour."""\n'
        '    keys = {"general.base_exp_dir": OUT, "dataset.data_dir": OUT / "scene", "dataset.test_every": 8,\n'
        '            "train.end_iter": STEPS, "train.val_freq": max(1, STEPS // 5),\n'
        '            "train.val_mesh_freq": max(1, STEPS // 2), "train.report_freq": max(1, STEPS // 50)}\n'
        '    settings = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]\n'
        '    program = [sys.executable, str(ROOT / "exp_runner.py"), "--conf", str(ROOT / "confs" / "fast.conf")]\n'
        '    command = [*program, "--case", "tour", *words, *settings]\n'
        "    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)\n"
        "    print(done.stdout[-3000:])\n"
        "    if done.returncode:\n"
        "        raise RuntimeError(done.stderr[-2000:])",
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
        'if not (OUT / "scene").exists():\n'
        '    run("--mode", "prepare", "--images", str(PHOTOS))\n'
        'Image(str(OUT / "scene" / "overview.png"), width=900)',
    ),
    (
        CODE,
        "# Train. exp/tour/report.html is updated meanwhile. 训练，期间 report.html 会更新\n"
        'run("--mode", "train", "--is_continue")',
    ),
    (
        CODE,
        "# The report: curves, images, interactive mesh. 报告\n"
        'page = (OUT / "report.html").read_text(encoding="utf-8")\n'
        'HTML(f\'<iframe srcdoc="{escape(page)}" width="100%" height="700" style="border: 0"></iframe>\')',
    ),
    (
        CODE,
        "# Metrics on held-out photographs. 留出照片上的指标\n"
        'run("--mode", "evaluate", "--resolution", "128")\n'
        'Image(str(OUT / "report" / "report.png"))',
    ),
    (
        CODE,
        "# The mesh with colours from the photographs. 由照片着色的网格\n"
        'run("--mode", "validate_mesh", "--resolution", "128", "--output", str(OUT / "mesh.glb"))\n'
        'trimesh.load(OUT / "mesh.glb").show()',
    ),
    (
        CODE,
        "# A turntable video. 环绕视频\n"
        'run("--mode", "render", "--show", "mesh,shape", "--resolution", "128", "--seconds", "2", "--fps", "12",\n'
        '    "--output", str(OUT / "orbit.mp4"))\n'
        'Video(str(OUT / "orbit.mp4"), embed=True, html_attributes="controls loop autoplay muted")',
    ),
    (
        TEXT,
        "Next: the [viewer](looking.md#the-viewer), [your own photographs](photographs.md), "
        "[all flags](flags.md). 接下来：[查看器](looking.zh-CN.md#查看器)、[自己的照片](photographs.zh-CN.md)、"
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
