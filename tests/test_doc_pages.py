"""What single pages say of the program: recipes, modes, exit statuses, sizes, messages, scalars, folders, licence."""

import ast
import re
from functools import cache

import pages
import pytest
from pages import PAIRS, ROOT, TEXTS

from data.config import FORMATS
from models.commands.arguments import MODE_NAMES

SOURCES = pages.sources()


def both(name):
    """The English and the Chinese text of a page of docs/."""
    return [TEXTS[f"docs/{name}.md"], TEXTS[PAIRS[f"docs/{name}.md"]]]


def first_spans(text, head):
    """What the first column quotes in the table whose head begins with the given words."""
    section = text.partition(f"| {head} |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)


MESSAGES = [first_spans(text, head) for text, head in zip(both("troubleshooting"), ("Message", "消息"), strict=True)]


@cache
def known_messages():
    strings = [text for tree in SOURCES for text in pages.literals(tree)]
    return [*strings, (ROOT / "Makefile").read_text(encoding="utf-8")]


@pytest.mark.parametrize("text", both("confs"), ids=("en", "zh"))
def test_every_recipe_is_listed(text):
    listed = re.findall(r"^\| \[(confs/\w+\.conf)\]", text, re.MULTILINE)
    assert sorted(listed) == sorted(f"confs/{path.name}" for path in (ROOT / "confs").glob("*.conf"))


@pytest.mark.parametrize(("text", "head"), list(zip(both("flags"), ("Mode", "模式"), strict=True)), ids=("en", "zh"))
def test_every_mode_is_listed(text, head):
    assert set(first_spans(text, head)) == set(MODE_NAMES)


@pytest.mark.parametrize("text", both("formats"), ids=("en", "zh"))
def test_every_scene_format_is_listed(text):
    assert first_spans(text, "`dataset.type`") == list(FORMATS)


def findings():
    """The names of the checks that make a line of the health table."""
    for path in (ROOT / "data" / "inspection").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding":
                yield node.args[0].value


@pytest.mark.parametrize("text", both("formats"), ids=("en", "zh"))
def test_every_check_of_inspect_is_explained(text):
    rows = [[cell.strip() for cell in row] for row in pages.rows(text) if len(row) == 5]
    assert {row[0] for row in rows[2:]} == set(findings())


@pytest.mark.parametrize("message", MESSAGES[0])
def test_a_quoted_message_is_one_the_program_says(message):
    assert any(message in known for known in known_messages())


@pytest.mark.parametrize("page", TEXTS)
def test_a_page_names_no_place_on_a_machine(page):
    assert not re.search(r"(?<![\w.])/(work|tmp|home|root|usr|opt|mnt)\b", TEXTS[page])
