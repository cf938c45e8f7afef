"""Texts in pages of Markdown."""

from __future__ import annotations

from data.errors import one_line

# What is markup somewhere in a line, of Markdown or of the HTML that it may hold.
SPECIAL = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_[]|~#$"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"})


def escaped(text: str) -> str:
    """`text`, a name or a sentence, as it reads on the page: one line, in which nothing is markup."""
    return one_line(text).translate(SPECIAL)
