"""HOCON text and files to plain nested dicts, and back to text; knows nothing of what the keys mean.

HOCON is JSON with comments, `include` and `${substitution}`: https://github.com/lightbend/config/blob/main/HOCON.md
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from pyhocon.config_parser import NO_SUBSTITUTION, ConfigParser
from pyhocon.config_tree import ConfigTree
from pyhocon.exceptions import ConfigException
from pyparsing import ParseBaseException

from data.errors import reason
from data.io.files import read_regular
from data.io.nearby import files_beside
from models.config.strict import ConfigError, shown

CASE_WORD = "CASE_NAME"  # the placeholder of the published confs
CASE_SIGNS = " ._-+"  # of a case, beside letters with their marks and digits
CASE_KEY = "case"  # the same as a HOCON substitution, ${case}
# The escapes that pyhocon undoes; it leaves those of JSON for other characters as they are.
ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
# A conf takes a few kB in five files. Includes and substitutions can each double what comes out, again and again: these
# bounds keep the most that a hostile conf can grow to at about a thousand times MAX_CHARACTERS.
MAX_FILES = 64
MAX_CHARACTERS = 1 << 16
MAX_SUBSTITUTIONS = 20
MAX_BYTES = 4 * MAX_CHARACTERS  # of one file; what is cut off here has too many characters as well
# What pyhocon raises on malformed input besides its own ConfigException (a key under a scalar, a cycle, ...).
PYHOCON_FAILURES = (ConfigException, AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError)
# An include of a file, on a line of its own. It is read here: pyhocon would fetch addresses and search the disk.
INCLUDE = re.compile(
    r'^[ \t]*include[ \t]*(?:required[ \t]*\([ \t]*)?(?:file[ \t]*\([ \t]*)?"([^"\n]*)"[ \t)]*(?:(?:#|//).*)?$', re.M
)
# A mark is put into what pyhocon must take for plain text, and removed from what it returns: into the word include,
# and before digits other than 0 to 9, which it takes for numbers.
MARK = "\uffff"
MARKED = re.compile(r"(?i)(?<=inc)(?=lude)|(?![0-9])(?=\d)")
# A part without keys, such as the text between two includes: pyhocon takes 10 ms for it, most of that for its grammar.
EMPTY = re.compile(r"(?:[ \t]*(?:(?:#|//)[^\n]*)?\n)*[ \t]*(?:(?:#|//)[^\n]*)?")


def read_tree(path: Path, case: str = "", overrides: Sequence[str] = ()) -> dict[str, Any]:
    """A conf file with its includes, overrides and the case filled in, as nested dicts.

    overrides: HOCON assignments that win over the file, such as `train.end_iter = 100`.
    Raises ConfigError for a file that cannot be read or parsed, an include that is not a file, an unresolved
    substitution, an unusable case name, and a conf that needs a case where none is given.
    """
    check_case(case)
    files = _Files()
    tree = files.parse_file(path)
    for text in overrides:
        block = files.parse_text(text, None, "--set")
        _require_one_key(block, text)
        tree = block.with_fallback(tree, resolve=False)
    return _resolved(tree, case, f"{path} with its --set" if overrides else str(path))


def parse_tree(text: str, source: str) -> dict[str, Any]:
    """HOCON text that includes nothing as nested dicts; raises ConfigError, naming source, where it is none."""
    return _resolved(_Files().parse_text(text, None, source), "", source)


def check_case(case: str, source: str = "--case") -> None:
    """Raises ConfigError for a case, given by `source`, that is not a plain name of one folder; "" (none) is one."""
    is_plain = all(letter in CASE_SIGNS or unicodedata.category(letter)[0] in "LMN" for letter in case)
    if case and (case.strip() in ("", ".") or ".." in case or not is_plain):
        raise ConfigError(
            f"{source} {case!r}: must be the name of one folder: letters of any language, digits, spaces and . _ - +, "
            "without / or \\ and without .."
        )


def write_tree(tree: Mapping[str, Any], indent: str = "") -> str:
    """Nested dicts of bool, int, float, str and sequences of them as HOCON text, one key a line."""
    lines = []
    for key, value in tree.items():
        if value is None:
            continue  # a block that was not given
        if isinstance(value, Mapping):
            lines.append(f"{indent}{key} {{\n{write_tree(value, indent + '    ')}{indent}}}\n")
        else:
            lines.append(f"{indent}{key} = {_literal(value)}\n")
    return "".join(lines)


def quoted(text: str) -> str:
    """Text as a HOCON string that is read back unchanged, whatever printable characters it holds."""
    return '"' + "".join(ESCAPES.get(character, character) for character in text) + '"'


def _literal(value: Any) -> str:
    """One leaf as HOCON; floats are written so that they are read back bit for bit."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_literal(item) for item in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return quoted(value) if isinstance(value, str) else repr(value)


class _Files:
    """A conf and the files that it includes, counted together."""

    def __init__(self) -> None:
        self._being_read: list[Path] = []
        self._files = self._characters = self._substitutions = 0

    def parse_file(self, path: Path) -> ConfigTree:
        """One file; raises ConfigError if it is missing, unreadable, not HOCON, or includes itself."""
        resolved = _real_path(path)
        if resolved in self._being_read:
            raise ConfigError(f"{path}: includes itself; remove that include")
        self._files += 1
        text = _read_text(path)
        self._being_read.append(resolved)
        tree = self.parse_text(text, path.parent, str(path))
        self._being_read.pop()
        return tree

    def parse_text(self, text: str, folder: Path | None, source: str) -> ConfigTree:
        """Unresolved tree of a text; raises ConfigError if it is not HOCON, or too much in all.

        folder: what included files are relative to; None for a text that may include none.
        """
        self._characters += len(text)
        self._substitutions += text.count("${")
        for count, most, what in (
            (self._files, MAX_FILES, "files"),
            (self._characters, MAX_CHARACTERS, "characters"),
            (self._substitutions, MAX_SUBSTITUTIONS, "substitutions ${...}"),
        ):
            if count > most:
                raise ConfigError(f"{source}: with its includes the conf has more than {most} {what}; simplify it")
        tree, start = ConfigTree(root=True), 0
        for include in INCLUDE.finditer(text):
            if folder is None:
                raise ConfigError(f"{source}: {shown(include[0])}: not allowed here; insert the file's content instead")
            tree = _parsed(text, start, include.start(), source).with_fallback(tree, resolve=False)
            tree = self.parse_file(folder / include[1]).with_fallback(tree, resolve=False)
            start = include.end()
        return _parsed(text, start, len(text), source).with_fallback(tree, resolve=False)


def _parsed(text: str, start: int, end: int, source: str) -> ConfigTree:
    """The tree of a part of a text, without includes; raises ConfigError, which names the line, where it is none."""
    if EMPTY.fullmatch(text, start, end):
        return ConfigTree(root=True)
    lines = "\n" * text.count("\n", 0, start)
    try:
        tree = _tree_of(lines + text[start:end])
    except ParseBaseException as error:
        near = shown(error.line.replace(MARK, "").strip())
        raise ConfigError(
            f"{source}, line {error.lineno}: not HOCON near {near}; check braces and quotes, put text "
            "with special characters in double quotes, and an include of a file on a line of its own outside of blocks"
        ) from None
    except PYHOCON_FAILURES as error:
        raise ConfigError(f"{source}: cannot be read as HOCON: {reason(error).replace(MARK, '')}") from None
    if not isinstance(tree, ConfigTree):
        raise ConfigError(f"{source}: must hold blocks such as train {{ ... }}, not a list")
    return tree


@lru_cache(maxsize=256)
def _tree_of(text: str) -> Any:
    """What pyhocon makes of a text, shared by all calls: not to be changed (`with_fallback` copies it)."""
    return ConfigParser.parse(MARKED.sub(MARK, text), None, False, NO_SUBSTITUTION)


def _require_own_variables(tree: ConfigTree) -> None:
    """Raises ConfigException for a ${...} that the conf does not define: pyhocon would take it from the environment."""
    for substitution in ConfigParser._find_substitutions(tree):
        name = substitution.variable
        value = tree.get(name, None)
        is_first = len(tree.history.get(name, ())) == 1  # a key whose first value refers to itself has none
        if value is None or (is_first and substitution in ConfigParser._find_substitutions(value)):
            raise ConfigException(f"Cannot resolve variable ${{{name}}}")


def _resolved(tree: ConfigTree, case: str, source: str) -> dict[str, Any]:
    """Plain dicts with every substitution and case placeholder filled in."""
    if case:
        tree.put(CASE_KEY, case)
    try:
        _require_own_variables(tree)
        ConfigParser.resolve_substitutions(tree)
    except PYHOCON_FAILURES as error:
        if f"${{{CASE_KEY}}}" in str(error):
            raise ConfigError(f"{source}: uses ${{{CASE_KEY}}}; pass --case NAME") from None
        raise ConfigError(f"{source}: a ${{...}} in it cannot be resolved: {reason(error).replace(MARK, '')}") from None
    plain = tree.as_plain_ordered_dict()
    if case:
        del plain[CASE_KEY]
    return _fill_case(plain, case, source, "")


def _fill_case(value: Any, case: str, source: str, key: str) -> Any:
    """The value with CASE_NAME replaced in each text below it; raises ConfigError if that needs a case."""
    if isinstance(value, dict):
        named = ((name.replace(MARK, ""), item) for name, item in value.items())
        return {name: _fill_case(item, case, source, f"{key}.{name}".lstrip(".")) for name, item in named}
    if isinstance(value, list):
        return [_fill_case(item, case, source, key) for item in value]
    if not isinstance(value, str):
        return value
    value = value.replace(MARK, "")
    if CASE_WORD not in value:
        return value
    if not case:
        raise ConfigError(f"{source}: {key} = {shown(value)}: uses {CASE_WORD}; pass --case NAME")
    return value.replace(CASE_WORD, case)


def _require_one_key(block: ConfigTree, text: str) -> None:
    """Raises ConfigError if an override, `key = value`, says more than one key: by a comma, a brace, an include.

    A block is refused too where it holds several keys; with one it says what a longer key would.
    """
    key = text.partition(" = ")[0]
    part: Any = block
    for name in key.split("."):
        if not isinstance(part, ConfigTree) or list(part) != [name]:
            raise ConfigError(f"--set {key}: its value {shown(text.partition(' = ')[2])} sets other keys too; quote it")
        part = part[name]
    while isinstance(part, ConfigTree):
        if len(part) != 1:
            raise ConfigError(
                f"--set {key}: its value {shown(text.partition(' = ')[2])} is a block, which sets several keys; give "
                "each with a --set of its own"
            )
        part = next(iter(part.values()))


def _real_path(filename: Path) -> Path:
    """The file a name leads to; raises ConfigError for a name no file can have."""
    try:
        return filename.resolve()
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links that lead in a circle
        raise ConfigError(f"{shown(str(filename))}: cannot be read as a conf file ({reason(error)})") from None


def _read_text(path: Path) -> str:
    """A UTF-8 file (a byte order mark is dropped); raises ConfigError if it cannot be read."""
    try:
        return read_regular(path, MAX_BYTES + 1).decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such conf file{files_beside(path, '.conf')}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read as a conf file ({reason(error)})") from None
