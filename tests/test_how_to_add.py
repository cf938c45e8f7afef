"""Modules that pages name are there."""

import re

from runs import ROOT


def test_no_page_names_a_module_that_is_gone():
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*.py"), *ROOT.glob("*.md")]
    named = re.compile(r"\b(?:models|data|tests|benchmarks|docs)/[\w/]+\.py\b")
    found = {(page.name, path) for page in pages for path in named.findall(page.read_text(encoding="utf-8"))}
    assert {(page, path) for page, path in found if "NAME" not in path and not (ROOT / path).is_file()} == set()
