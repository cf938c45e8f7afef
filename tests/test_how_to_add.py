"""What docs/ARCHITECTURE.md says of adding to the program: the heading others link, few files, and files that exist."""

import re

import pytest
from runs import ROOT

PAGE = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")
HEADING = "\n## How to add\n"
SECTION = PAGE.partition(HEADING)[2]


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w/]+(?:/[\w.]+|\.py))`", SECTION))))
def test_what_is_named_is_there(path):
    """A NAME stands for what is added; its folder is there, or would be made."""
    place = ROOT / path.partition("NAME")[0] if "NAME" in path else ROOT / path
    assert place.exists() or (ROOT / path).parent.exists()


def test_no_page_names_a_module_that_is_gone():
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*.py"), *ROOT.glob("*.md")]
    named = re.compile(r"\b(?:models|data|tests|benchmarks|docs)/[\w/]+\.py\b")
    found = {(page.name, path) for page in pages for path in named.findall(page.read_text(encoding="utf-8"))}
    assert {(page, path) for page, path in found if "NAME" not in path and not (ROOT / path).is_file()} == set()


def test_rooms_of_the_page_are_those_of_the_tree():
    drawn = PAGE.partition("## Packages")[2].partition("```\n")[2].partition("```")[0]
    for folder in ("data", "models"):
        below = re.split(r"\n(?=\S)", drawn.partition(f"{folder}/ ")[2] or drawn.partition(f"\n{folder}/")[2])[0]
        named = set(re.findall(r"^  (\w+)/", below, re.MULTILINE))
        there = {path.parent.name for path in (ROOT / folder).glob("*/__init__.py")}
        assert there <= named, there - named
