"""What single pages say of the program: recipes, modes, exit statuses, sizes, messages, scalars, folders, licence."""

import re

import pages
from pages import PAIRS, ROOT, TEXTS

from data.scenes.readers import FORMATS
from models.commands.modes import MODE_NAMES


def both(name):
    """The English and the Chinese text of a page of docs/."""
    return [TEXTS[f"docs/{name}.md"], TEXTS[PAIRS[f"docs/{name}.md"]]]


def first_spans(text, head):
    """What the first column quotes in the table whose head begins with the given words."""
    section = text.partition(f"| {head} |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)


def listed_recipes(text):
    return sorted(re.findall(r"^\| \[(confs/\w+\.conf)\]", text, re.MULTILINE))


def test_pages_list_every_recipe_mode_and_scene_format():
    recipes = sorted(f"confs/{path.name}" for path in (ROOT / "confs").glob("*.conf"))
    assert [listed_recipes(text) for text in both("confs")] == [recipes, recipes]
    for text, head in zip(both("flags"), ("Mode", "模式"), strict=True):
        assert set(first_spans(text, head)) == set(MODE_NAMES)
    assert [first_spans(text, "`dataset.type`") for text in both("formats")] == [list(FORMATS)] * 2


def test_a_quoted_message_is_one_the_program_says():
    known = [*(text for tree in pages.sources() for text in pages.literals(tree)), (ROOT / "Makefile").read_text()]
    messages = first_spans(both("troubleshooting")[0], "Message")
    assert messages and [message for message in messages if not any(message in text for text in known)] == []


def test_pages_name_no_place_on_a_machine():
    place = re.compile(r"(?<![\w.])/(work|tmp|home|root|usr|opt|mnt)\b")
    assert [page for page, text in TEXTS.items() if place.search(text)] == []
