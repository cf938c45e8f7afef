"""Converts HOCON text and files to nested dicts and back, independently of the meaning of the keys.

HOCON is JSON with comments, `include` and `${substitution}`: https://github.com/lightbend/config/blob/main/HOCON.md
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any, NoReturn

from pyhocon import config_parser
from pyhocon.config_tree import ConfigTree
from pyhocon.exceptions import ConfigException
from pyparsing import ParseBaseException, Regex

from data.errors import reason
from data.io.files import read_regular
from models.config.strict import ConfigError, shown

CASE_WORD = "CASE_NAME"  # the placeholder of the published confs
CASE_SIGNS = " ._-+"  # allowed in a case besides letters, marks and digits
CASE_KEY = "case"  # the same as a HOCON substitution, ${case}
LISTED_CONFS = 12  # file names in the message about a missing conf
# The escapes that pyhocon decodes; it does not decode other JSON escapes.
ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
# A conf has a few kB in five files. Nested includes and substitutions grow exponentially: these limits keep the result
# of a malicious conf below about a thousand times MAX_CHARACTERS.
MAX_FILES = 64
MAX_CHARACTERS = 1 << 16
MAX_SUBSTITUTIONS = 20
MAX_BYTES = 4 * MAX_CHARACTERS  # of one file; a longer file has too many characters
# Exceptions of pyhocon for malformed input, besides its own ConfigException (an empty glob, a key under a scalar, ...).
PYHOCON_FAILURES = (ConfigException, AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError)


def read_tree(path: Path, case: str = "", overrides: Sequence[str] = ()) -> dict[str, Any]:
    """A conf file with its includes, overrides and the case filled in, as nested dicts.

    overrides: HOCON assignments that override the file, such as `train.end_iter = 100`.
    Raises ConfigError for a file that cannot be read or parsed, an include that is not a file, an unresolved
    substitution, an invalid case name, and a missing case.
    """
    check_case(case)
    files = _LocalFiles()
    tree = _require_block(files.parse_file(str(path)), str(path))
    for text in overrides:
        block = _require_block(files.parse_text(text, None, "--set"), "--set")
        _require_one_key(block, text)
        tree = block.with_fallback(tree, resolve=False)
    return _resolved(tree, case, f"{path} with its --set" if overrides else str(path))


def parse_tree(text: str, source: str) -> dict[str, Any]:
    """HOCON text without includes as nested dicts; raises ConfigError, naming `source`, if it is invalid."""
    files = _LocalFiles(may_include=False)
    return _resolved(_require_block(files.parse_text(text, None, source), source), "", source)


def check_case(case: str, source: str = "--case") -> None:
    """Raises ConfigError for a case, given by `source`, that is not a plain folder name; "" (none) is valid."""
    is_plain = all(letter in CASE_SIGNS or unicodedata.category(letter)[0] in "LMN" for letter in case)
    if case and (case.strip() in ("", ".") or ".." in case or not is_plain):
        raise ConfigError(
            f"{source} {case!r}: must be the name of one folder: letters of any language, digits, spaces and . _ - +, "
            "without / or \\ and without .."
        )


def write_tree(tree: Mapping[str, Any], indent: str = "") -> str:
    """Nested dicts of bool, int, float, str and sequences of them as HOCON text, one key per line."""
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
    """Text as a HOCON string that is read back unchanged."""
    return '"' + "".join(ESCAPES.get(character, character) for character in text) + '"'


def _literal(value: Any) -> str:
    """One leaf as HOCON; floats are read back exactly."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_literal(item) for item in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return quoted(value) if isinstance(value, str) else repr(value)


def _without_environment(method: Any) -> FunctionType:
    """A class method of pyhocon as a function with an empty environment."""
    names = vars(config_parser) | {"os": SimpleNamespace(environ={})}
    function = method.__func__
    return FunctionType(function.__code__, names, function.__name__, function.__defaults__)


class _Parser(config_parser.ConfigParser):
    """pyhocon's parser without `include package(...)` and without the variables of the environment."""

    @classmethod
    def resolve_package_path(cls, package_path: str) -> NoReturn:
        """Called by pyhocon for `include package(...)`; raises ConfigException."""
        raise ConfigException(f"include package({shown(package_path)}): only files can be included, by their path")

    # pyhocon resolves missing substitutions from environment variables; here the environment is empty.
    _resolve_variable = classmethod(_without_environment(config_parser.ConfigParser._resolve_variable))
    _fixup_self_references = classmethod(_without_environment(config_parser.ConfigParser._fixup_self_references))


class _LocalFiles:
    """Replaces pyhocon's ConfigFactory and glob, with which its parser reads includes.

    pyhocon would open any URL. The parser cannot be configured, so its code is run with other globals; pyhocon itself
    is not changed.
    """

    def __init__(self, may_include: bool = True) -> None:
        """may_include: whether includes are allowed."""
        self._may_include = may_include
        names = vars(config_parser) | {"ConfigFactory": self, "glob": self.expand, "Regex": _ascii_digits}
        self._parse = FunctionType(config_parser.ConfigParser.parse.__func__.__code__, names)
        self._being_read: list[Path] = []
        self._files = self._characters = self._substitutions = 0

    def parse_file(self, filename: str, **_options: Any) -> ConfigTree:
        """One file; raises ConfigError where it is missing, unreadable, not HOCON, or includes itself."""
        if not self._may_include:
            raise ConfigException(f"include {shown(filename)}: not allowed here; insert the file's content instead")
        path, resolved = Path(filename), _real_path(filename)
        if resolved in self._being_read:
            raise ConfigError(f"{path}: includes itself; remove that include")
        self._files += 1
        text = _read_text(path)
        self._being_read.append(resolved)
        tree = self.parse_text(text, str(path.parent), str(path))
        self._being_read.pop()
        return tree

    def parse_text(self, text: str, folder: str | None, source: str) -> Any:
        """Unresolved tree (or list) of a text; raises ConfigError if it is not HOCON, or exceeds the limits."""
        self._characters += len(text)
        self._substitutions += text.count("${")
        for count, most, what in (
            (self._files, MAX_FILES, "files"),
            (self._characters, MAX_CHARACTERS, "characters"),
            (self._substitutions, MAX_SUBSTITUTIONS, "substitutions ${...}"),
        ):
            if count > most:
                raise ConfigError(f"{source}: the conf and its includes have more than {most} {what}; simplify it")
        try:
            return self._parse(_Parser, text, folder, False, config_parser.NO_SUBSTITUTION)
        except ParseBaseException as error:
            near = shown(error.line.strip())
            raise ConfigError(
                f"{source}, line {error.lineno}: not HOCON near {near}; check braces and quotes, "
                "and put text with special characters in double quotes"
            ) from None
        except PYHOCON_FAILURES as error:
            raise ConfigError(f"{source}: cannot be read as HOCON: {reason(error)}") from None

    def expand(self, path: str, **_options: Any) -> list[str]:
        """Replaces glob: returns the path itself, since a wildcard could search the whole disk."""
        return [path]

    def parse_URL(self, url: str, **_options: Any) -> NoReturn:  # noqa: N802 (pyhocon's name)
        """Raises ConfigException: this program does not download includes."""
        raise ConfigException(f"include url({shown(url)}): URLs are not supported; save the file and include its path")


def _ascii_digits(pattern: str, flags: int = 0) -> Regex:
    r"""pyparsing's Regex with ASCII \d, so that other Unicode digits are text."""
    return Regex(pattern, flags | re.ASCII if r"\d" in pattern else flags)


def _resolved(tree: ConfigTree, case: str, source: str) -> dict[str, Any]:
    """Nested dicts with all substitutions and case placeholders resolved."""
    if case:
        tree.put(CASE_KEY, case)
    try:
        _Parser.resolve_substitutions(tree)
    except PYHOCON_FAILURES as error:
        if f"${{{CASE_KEY}}}" in str(error):
            raise ConfigError(f"{source}: uses ${{{CASE_KEY}}}; pass --case NAME") from None
        raise ConfigError(f"{source}: a ${{...}} in it cannot be resolved: {reason(error)}") from None
    plain = tree.as_plain_ordered_dict()
    if case:
        del plain[CASE_KEY]
    return _fill_case(plain, case, source, "")


def _fill_case(value: Any, case: str, source: str, key: str) -> Any:
    """The value with CASE_NAME replaced in all texts; raises ConfigError if that needs a case and none is given."""
    if isinstance(value, dict):
        return {name: _fill_case(item, case, source, f"{key}.{name}".lstrip(".")) for name, item in value.items()}
    if isinstance(value, list):
        return [_fill_case(item, case, source, key) for item in value]
    if not isinstance(value, str) or CASE_WORD not in value:
        return value
    if not case:
        raise ConfigError(f"{source}: {key} = {shown(value)}: uses {CASE_WORD}; pass --case NAME")
    return value.replace(CASE_WORD, case)


def _require_one_key(block: ConfigTree, text: str) -> None:
    """Raises ConfigError if an override, `key = value`, sets several keys: by a comma, a brace or an include.

    A block with one key is equivalent to a longer key and allowed.
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
                f"--set {key}: its value {shown(text.partition(' = ')[2])} is a block, which sets several keys; use a "
                "--set for each of them"
            )
        part = next(iter(part.values()))


def _require_block(tree: Any, source: str) -> ConfigTree:
    """The tree; raises ConfigError for a list."""
    if not isinstance(tree, ConfigTree):
        raise ConfigError(f"{source}: must hold blocks such as train {{ ... }}, not a list")
    return tree


def _real_path(filename: str) -> Path:
    """The resolved path; raises ConfigError for an invalid name."""
    try:
        return Path(filename).resolve()
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a loop of links
        raise ConfigError(f"{shown(filename)}: cannot be read as a conf file ({reason(error)})") from None


def _read_text(path: Path) -> str:
    """The text of a UTF-8 file (a byte order mark is dropped); raises ConfigError if it cannot be read."""
    try:
        return read_regular(path, MAX_BYTES + 1).decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such conf file{_beside(path)}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read as a conf file ({reason(error)})") from None


def _beside(path: Path) -> str:
    """A hint for a missing conf: the nearest name in the folder, or all names, or that the folder is missing."""
    if not path.parent.is_dir():
        return f"; there is no folder {path.parent}"
    names = sorted(other.name for other in path.parent.glob("*.conf"))
    near = difflib.get_close_matches(path.name, names, n=1)
    if near:
        return f"; did you mean {path.parent / near[0]}? (there: {', '.join(names[:LISTED_CONFS])})"
    return f"; there: {', '.join(names[:LISTED_CONFS])}" if names else f"; {path.parent} contains no .conf file"
