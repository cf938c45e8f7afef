"""Names on the pages of Markdown are text, and a case is a plain name."""

import dataclasses

import pytest
from runs import ROOT

from data.errors import UserError
from data.inspection.finding import Finding
from data.scenes.load import load_scene
from models.commands import inspection, reconstruction_page
from models.config.hocon import check_case
from models.methods.conf import load_config
from models.report.markdown import escaped

NAME = "<script>alert(1)</script> [a](http://b) ![c](d) `e` *f* _g_ | # &amp; \\*h"
READS = r"&lt;script&gt;alert(1)&lt;/script&gt; \[a\](http://b) !\[c\](d) \`e\` \*f\* \_g\_ \| \# &amp;amp; \\\*h"


def test_what_is_markup_is_escaped():
    assert escaped(NAME) == READS
    assert escaped("bear, 3 views of 8x8") == "bear, 3 views of 8x8" and "\n" not in escaped("a\nb")


def test_a_scene_of_markup_stays_text_on_its_pages():
    scene = load_scene(load_config(ROOT / "confs/debug.conf", "", (f"dataset.data_dir={ROOT}/data/demo",)).dataset)
    scene = dataclasses.replace(scene, name=NAME, notes=(NAME,))
    page = inspection.markdown(scene, [Finding(NAME, "bad", NAME, NAME)])
    assert page.count(READS) == 6 and "<script" not in page and "[a](" not in page
    finding = {"check": NAME, "verdict": "bad", "figure": NAME, "consequence": NAME}
    page = reconstruction_page.page(NAME, {"findings": [finding]}, {}, [])
    assert page.count(READS) == 4 and "<script" not in page and "[a](" not in page


@pytest.mark.parametrize("case", ["bear", "dtu_scan24", "熊猫 2", "été", "ete\u0301", "हिन्दी", "a.b-c+d", "3"])
def test_plain_names_are_cases(case):
    check_case(case)


@pytest.mark.parametrize("case", [NAME, "<b>", "a|b", "`id`", "$(id)", "a;b", "a\u200bb", "#"])
def test_other_names_are_no_cases(case):
    with pytest.raises(UserError, match="letters of any language, digits, spaces and . _ - +"):
        check_case(case)
