"""Escape texts for Markdown pages."""

from __future__ import annotations

from data.errors import one_line

# Markup within a line, of Markdown and of embedded HTML.
SPECIAL = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_[]|~#$"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"})


def escaped(text: str) -> str:
    """`text` as one line of Markdown without markup."""
    return one_line(text).translate(SPECIAL)
