"""--mode inspect writes its three files without Jittor, and says what it found; names on pages are text."""

import dataclasses
import json
import subprocess
import sys

import pytest
from runs import ROOT
from synthetic_scene import write_scene

from data.errors import UserError
from data.io.images import read_image
from data.prepare.inspection.epipolar import Finding
from data.prepare.load import load_scene
from models.conf import load_config
from models.config.hocon import check_case
from models.results.report.document import escaped
from models.results.report.reconstruction import health_page
from models.results.report.reconstruction import page as result_page


def inspect(folder, out, *extra, flags=()):
    """The command line on a scene folder, with what Jittor's import would leave behind asked for."""
    code = (
        "import sys, exp_runner\n"
        "status = exp_runner.main(sys.argv[1:])\n"
        "assert 'jittor' not in sys.modules and 'jittor_utils' not in sys.modules\n"
        "sys.exit(status)"
    )
    sets = [f"dataset.data_dir={folder}", f"general.base_exp_dir={out}", *extra]
    arguments = ["--mode", "inspect", *flags, *(word for text in sets for word in ("--set", text))]
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.cli
def test_inspect_measures_a_distance_and_writes_nothing(tmp_path):
    write_scene(tmp_path / "scene", n_views=9)
    result = inspect(tmp_path / "scene", tmp_path / "out", flags=("--measure", "-1 0 0, 1 0 0"))
    assert result.returncode == 0 and "distance: 2 units" in result.stdout and not (tmp_path / "out").exists()
    wrong = inspect(tmp_path / "scene", tmp_path / "out", flags=("--measure", "1 2 3"))
    assert wrong.returncode == 2 and '--measure "1 2 3": must be two points' in wrong.stderr


@pytest.mark.cli
def test_inspect_writes_picture_page_and_figures_and_prints_the_table(tmp_path):
    write_scene(tmp_path / "scene", n_views=9)
    result = inspect(tmp_path / "scene", tmp_path / "out")
    assert result.returncode == 0 and result.stderr == ""
    folder = tmp_path / "out/inspect"
    assert sorted(path.name for path in folder.iterdir()) == ["health.json", "health.md", "overview.png"]
    assert read_image(folder / "overview.png").shape[1:] == (1600, 3)
    findings, page = json.loads((folder / "health.json").read_text())["findings"], (folder / "health.md").read_text()
    assert (findings[0]["check"], findings[0]["figure"], findings[0]["verdict"]) == ("views", "9", "fair")
    for finding in findings:
        assert finding["check"] in result.stdout and f"| {finding['check']} | {finding['verdict']} |" in page
    assert "region of interest" in result.stdout and "region of interest" in page


NAME = "<script>alert(1)</script> [a](http://b) ![c](d) `e` *f* _g_ | # &amp; \\*h"
READS = r"&lt;script&gt;alert(1)&lt;/script&gt; \[a\](http://b) !\[c\](d) \`e\` \*f\* \_g\_ \| \# &amp;amp; \\\*h"


def test_what_is_markup_is_escaped():
    assert escaped(NAME) == READS
    assert escaped("bear, 3 views of 8x8") == "bear, 3 views of 8x8" and "\n" not in escaped("a\nb")


def test_a_scene_of_markup_stays_text_on_its_pages():
    scene = load_scene(load_config(ROOT / "confs/debug.conf", "", (f"dataset.data_dir={ROOT}/data/demo",)).dataset)
    scene = dataclasses.replace(scene, name=NAME, notes=(NAME,))
    page = health_page(scene, [Finding(NAME, "bad", NAME, NAME)])
    assert page.count(READS) == 6 and "<script" not in page and "[a](" not in page
    finding = {"check": NAME, "verdict": "bad", "figure": NAME, "consequence": NAME}
    page = result_page(NAME, {"findings": [finding]}, {}, [])
    assert page.count(READS) == 4 and "<script" not in page and "[a](" not in page


def test_plain_names_are_cases_and_others_are_none():
    for case in ("bear", "dtu_scan24", "熊猫 2", "ete\u0301", "हिन्दी", "a.b-c+d", "3"):
        check_case(case)
    for case in (NAME, "<b>", "a|b", "`id`", "$(id)", "a;b", "a\u200bb", "#"):
        with pytest.raises(UserError, match="letters of any language, digits, spaces and . _ - +"):
            check_case(case)
