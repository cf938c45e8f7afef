"""Read XML files of other programs."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from data.errors import SceneError, one_line
from data.io.json_file import read_content


def read_xml(source: Path, program: str, remedy: str) -> ElementTree.Element:
    """The root of a file of `program`; raises SceneError, ending with `remedy`, for other files.

    A document type is refused: its entities could expand to gigabytes.
    """
    content = read_content(source)
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise SceneError(f"{source}: declares a document type, which {program} does not; {remedy}")
    try:
        return ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise SceneError(f"{source}: cannot be read as XML ({one_line(str(error))}); {remedy}") from error
