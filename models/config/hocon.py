"""HOCON text and files to nested dicts, and back to text; keys of the version before, which are still read.

HOCON is JSON with comments, `include` and `${substitution}`: https://github.com/lightbend/config/blob/main/HOCON.md
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from pyhocon.config_parser import NO_SUBSTITUTION, ConfigParser
from pyhocon.config_tree import ConfigTree
from pyhocon.exceptions import ConfigException
from pyparsing import ParseBaseException

from data.errors import INVALID, reason
from data.io.files import read_regular, similar_names
from models.config.strict import ConfigError, excerpt

CPU, CUDA = DEVICES = ("cpu", "cuda")
CASE_WORD = "CASE_NAME"  # the placeholder of the published confs
CASE_SIGNS = " ._-+"  # allowed in a case, besides letters (with combining marks) and digits
CASE_KEY = "case"  # the same as a HOCON substitution, ${case}
# The escapes that pyhocon decodes; it does not decode JSON's escapes of other characters.
ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
# A typical conf has a few kB in five files. Includes and substitutions can each double the result repeatedly; these
# limits bound a malicious conf to about a thousand times MAX_CHARACTERS.
MAX_FILES = 64
MAX_CHARACTERS = 1 << 16
MAX_SUBSTITUTIONS = 20
MAX_CONF_BYTES = 4 * MAX_CHARACTERS  # read from one file; a longer file also exceeds MAX_CHARACTERS
# Exceptions of pyhocon for malformed input, besides ConfigException (a key under a scalar, a cycle, ...).
PYHOCON_FAILURES = (ConfigException, *INVALID)
# An include of a file, on a separate line. It is read here, because pyhocon would fetch URLs and search the disk.
INCLUDE = re.compile(
    r'^[ \t]*include[ \t]*(?:required[ \t]*\([ \t]*)?(?:file[ \t]*\([ \t]*)?"([^"\n]*)"[ \t)]*(?:(?:#|//).*)?$', re.M
)
# Any other include, which pyhocon would follow.
NESTED_INCLUDE = re.compile(r'^(?!\s*//)[^#\n]*\binclude\s*(?:"|\w+\s*\().*', re.M | re.I)
# A part without keys, such as the text between two includes; parsing it with pyhocon would take 10 ms.
EMPTY = re.compile(r"(?:[ \t]*(?:(?:#|//)[^\n]*)?\n)*[ \t]*(?:(?:#|//)[^\n]*)?")


def read_tree(path: Path, case: str = "", overrides: Sequence[str] = ()) -> dict[str, Any]:
    """A conf file with its includes, overrides and the case filled in, as nested dicts.

    overrides: HOCON assignments that take precedence over the file, such as `train.end_iter = 100`.
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
    """HOCON text without includes as nested dicts; raises ConfigError, naming `source`, for invalid text."""
    return _resolved(_Files().parse_text(text, None, source), "", source)


def check_case(case: str, source: str = "--case") -> None:
    """Raises ConfigError for a case, given by `source`, that is not the plain name of one folder; "" (no case) is
    valid.
    """
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
            continue  # an omitted block
        if isinstance(value, Mapping):
            lines.append(f"{indent}{key} {{\n{write_tree(value, indent + '    ')}{indent}}}\n")
        else:
            lines.append(f"{indent}{key} = {_literal(value)}\n")
    return "".join(lines)


def quoted(text: str) -> str:
    """Text as a HOCON string that is read back unchanged, for any printable characters."""
    return '"' + "".join(ESCAPES.get(character, character) for character in text) + '"'


def _literal(value: Any) -> str:
    """One leaf as HOCON; floats are read back bit-identically."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_literal(item) for item in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return quoted(value) if isinstance(value, str) else repr(value)


class _Files:
    """A conf and its included files, with common limits on number and size."""

    def __init__(self) -> None:
        self._being_read: list[Path] = []
        self._files = self._characters = self._substitutions = 0

    def parse_file(self, path: Path) -> ConfigTree:
        """Parse one file; raises ConfigError if it is missing, unreadable, not HOCON, or includes itself."""
        try:
            resolved = path.resolve()
        except (OSError, ValueError, RuntimeError) as error:  # a name that no file can have, or circular links
            raise ConfigError(f"{excerpt(str(path))}: cannot be read as a conf file ({reason(error)})") from None
        if resolved in self._being_read:
            raise ConfigError(f"{path}: includes itself; remove that include")
        self._files += 1
        text = _read_text(path)
        self._being_read.append(resolved)
        tree = self.parse_text(text, path.parent, str(path))
        self._being_read.pop()
        return tree

    def parse_text(self, text: str, folder: Path | None, source: str) -> ConfigTree:
        """The unresolved tree of a text; raises ConfigError if it is not HOCON, or exceeds the limits.

        folder: base of relative includes; None for a text without includes.
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
                raise ConfigError(
                    f"{source}: {excerpt(include[0])}: not allowed here; insert the file's content instead"
                )
            tree = _parsed(text, start, include.start(), source).with_fallback(tree, resolve=False)
            tree = self.parse_file(folder / include[1]).with_fallback(tree, resolve=False)
            start = include.end()
        return _parsed(text, start, len(text), source).with_fallback(tree, resolve=False)


def _parsed(text: str, start: int, end: int, source: str) -> ConfigTree:
    """The tree of a part of a text, without includes; raises ConfigError, naming the line, if it is invalid."""
    if EMPTY.fullmatch(text, start, end):
        return ConfigTree(root=True)
    part = "\n" * text.count("\n", 0, start) + text[start:end]
    hint = (
        "check braces and quotes, put text with special characters in double quotes, and an include of a file on a "
        "line of its own outside of blocks"
    )
    if nested := NESTED_INCLUDE.search(part):
        line = 1 + part.count("\n", 0, nested.end())
        raise ConfigError(f"{source}, line {line}: not HOCON near {excerpt(nested[0].strip())}; {hint}")
    try:
        tree = _tree_of(part)
    except ParseBaseException as error:
        near = excerpt(error.line.strip())
        raise ConfigError(f"{source}, line {error.lineno}: not HOCON near {near}; {hint}") from None
    except PYHOCON_FAILURES as error:
        raise ConfigError(f"{source}: cannot be read as HOCON: {reason(error)}") from None
    if not isinstance(tree, ConfigTree):
        raise ConfigError(f"{source}: must hold blocks such as train {{ ... }}, not a list")
    return tree


@lru_cache(maxsize=256)
def _tree_of(text: str) -> Any:
    """What pyhocon makes of a text, shared by all calls: not to be changed (`with_fallback` copies it)."""
    return ConfigParser.parse(text, None, False, NO_SUBSTITUTION)


def _require_own_variables(tree: ConfigTree) -> None:
    """Raises ConfigException for a ${...} that the conf does not define; pyhocon would take it from the environment."""
    for substitution in ConfigParser._find_substitutions(tree):
        name = substitution.variable
        value = tree.get(name, None)
        is_first = len(tree.history.get(name, ())) == 1  # the first value of a key cannot refer to the key itself
        if value is None or (is_first and substitution in ConfigParser._find_substitutions(value)):
            raise ConfigException(f"Cannot resolve variable ${{{name}}}")


def _resolved(tree: ConfigTree, case: str, source: str) -> dict[str, Any]:
    """Plain dicts with all substitutions and case placeholders replaced."""
    if case:
        tree.put(CASE_KEY, case)
    try:
        _require_own_variables(tree)
        ConfigParser.resolve_substitutions(tree)
    except PYHOCON_FAILURES as error:
        if f"${{{CASE_KEY}}}" in str(error):
            raise ConfigError(f"{source}: uses ${{{CASE_KEY}}}; pass --case NAME") from None
        raise ConfigError(f"{source}: a ${{...}} in it cannot be resolved: {reason(error)}") from None
    plain = tree.as_plain_ordered_dict()
    if case:
        del plain[CASE_KEY]
    return _fill_case(plain, case, source, "")


def _fill_case(value: Any, case: str, source: str, key: str) -> Any:
    """The value with CASE_NAME replaced in all its texts; raises ConfigError if a case is needed and none is given."""
    if isinstance(value, dict):
        return {name: _fill_case(item, case, source, f"{key}.{name}".lstrip(".")) for name, item in value.items()}
    if isinstance(value, list):
        return [_fill_case(item, case, source, key) for item in value]
    if not isinstance(value, str) or CASE_WORD not in value:
        return value
    if not case:
        raise ConfigError(f"{source}: {key} = {excerpt(value)}: uses {CASE_WORD}; pass --case NAME")
    return value.replace(CASE_WORD, case)


def _require_one_key(block: ConfigTree, text: str) -> None:
    """Raises ConfigError if an override, `key = value`, sets several keys, by a comma, a brace or an include.

    A block with several keys is also rejected; a block with one key is equivalent to a longer key.
    """
    key = text.partition(" = ")[0]
    part: Any = block
    for name in key.split("."):
        if not isinstance(part, ConfigTree) or list(part) != [name]:
            raise ConfigError(
                f"--set {key}: its value {excerpt(text.partition(' = ')[2])} sets other keys too; quote it"
            )
        part = part[name]
    while isinstance(part, ConfigTree):
        if len(part) != 1:
            raise ConfigError(
                f"--set {key}: its value {excerpt(text.partition(' = ')[2])} is a block, which sets several keys; give "
                "each with a --set of its own"
            )
        part = next(iter(part.values()))


def _read_text(path: Path) -> str:
    """A UTF-8 file (a byte order mark is dropped); raises ConfigError if it cannot be read."""
    try:
        return read_regular(path, MAX_CONF_BYTES + 1).decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such conf file{similar_names(path, '.conf')}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read as a conf file ({reason(error)})") from None


def of_device(tree: Any, device: str, key: str = "") -> Any:
    """The tree of a conf with the value of one device in place of each block `{ cpu = ..., cuda = ... }`.

    Raises ConfigError, naming the key, for a block that lacks a device or has other keys.
    """
    if not isinstance(tree, Mapping):
        return tree
    if not tree.keys() & set(DEVICES):
        return {name: of_device(value, device, f"{key}.{name}".lstrip(".")) for name, value in tree.items()}
    if not key:
        raise ConfigError("cpu and cuda: are no blocks of a conf; give a key, KEY = { cpu = ..., cuda = ... }")
    if set(tree) != set(DEVICES):
        raise ConfigError(f"{key}: a value for each device needs both, {{ cpu = ..., cuda = ... }}, and nothing else")
    return tree[device]


def leaves(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key -> value of nested dicts, in their order."""
    values: dict[str, Any] = {}
    for key, value in tree.items():
        values |= leaves(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return values


# The program's confs with every key, which show the keys that a run has changed.
BASE = Path(__file__).resolve().parents[2] / "confs" / "base"


@lru_cache
def base_values(kind: str) -> Mapping[str, Any]:
    """Dotted key -> value of every key of the program's base confs, for a method (`model.type`).

    Files that cannot be read are omitted.
    """
    values: dict[str, Any] = {}
    # the base of the method last, since later values replace earlier ones
    for path in sorted(BASE.glob("*.conf"), key=lambda path: path.stem == kind):
        try:
            values |= leaves(read_tree(path, CASE_WORD))
        except ConfigError:
            continue
    return values


def same(value: Any, base: Mapping[str, Any], key: str) -> bool:
    """Whether the value of a key equals that of its base, in any notation."""
    return key in base and _plain(value) == _plain(base[key])


def _plain(value: Any) -> Any:
    """A canonical form of each value: true and True, 1e-3 and 0.001, lists and tuples."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bool):
        return str(value).lower()
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value).lower() if str(value).lower() in ("true", "false") else value


OF_OPEN = ("prune_from", "samples", "section", "cells", "blur_step", "depth_until")
WEIGHTS = {
    "packed": ("free", "points", "curvature"),
    "inside": ("patches",),
    "open": ("patches",),
    "background": ("patches",),
    "photographs": ("exposure",),
    "gaussians": ("opacity", "size", "distortion", "normal"),
}
PATCHES = "train.patches_weight"
# Old key -> new key; "": no longer used.
RENAMED = {f"model.packed.{name}": f"model.inside.{name}" for name in ("prune_from", "hull_margin")}
RENAMED |= {f"model.background.{name}": f"model.open.{name}" for name in OF_OPEN}
RENAMED |= {f"model.{block}.{name}_weight": f"train.{name}_weight" for block in WEIGHTS for name in WEIGHTS[block]}
RENAMED |= {"model.packed.largest_inv_s": "model.inside.largest_inv_s", "model.background.bias": "model.sdf_grid.bias"}
RENAMED |= {"model.patches.weight": PATCHES, "model.patches.begins": "train.patches_from"}
RENAMED |= {"model.packed.points_until": "", "model.photographs.exposure_from": ""}
# Keys that are constants today.
CONSTANT_KEYS = {
    "gaussians": (
        "absolute beyond color_rate degrees_until densify densify_every densify_from densify_until first_opacity "
        "first_size growth least_opacity least_pull mean_rate mean_rate_end noise opacity_rate reset_every rest_rate "
        "size_rate split_size turn_rate"
    ),
    "packed": "anywhere levels_until network_rate sharpness_rate shell steps_until warm_up",
    "inside": "shell",
    "open": "points_from shell threshold",
    "background": "points_from shell threshold",
    "sdf_grid": "gradient",
    "radiance": "anywhere hull_margin levels_until network_rate steps_until threshold warm_up",
}
RENAMED |= {f"model.{block}.{name}": "" for block, names in CONSTANT_KEYS.items() for name in names.split()}
# Old defaults, in place of which the new keys have their own.
DEFAULTS = {"model.packed.largest_inv_s": 4.0, "model.background.prune_from": 0.3, "model.background.bias": 0.3}


def renamed(key: str) -> str:
    """The key of today for a key of the version before; the key itself otherwise."""
    return RENAMED.get(key) or key


def migrate(tree: dict[str, Any]) -> dict[str, str]:
    """Replace the old keys in the nested dicts of a conf; returns them with those of today."""
    model = tree.get("model")
    outdated: dict[str, str] = {}
    if not isinstance(model, dict):
        return outdated
    for old, new in RENAMED.items():
        _, block, name = old.split(".")
        if not isinstance(model.get(block), dict) or name not in model[block]:
            continue
        value = model[block].pop(name)
        if old == "model.background.bias" and model.get("sdf_grid", {}).get("bias") == 0.5:
            del model["sdf_grid"]["bias"]  # its default then, which this key replaced without masks
        if old == "model.photographs.exposure_from" and value and model[block].get("exposure"):
            model[block]["exposure"] = "auto"
        if new == PATCHES and new in outdated.values() and value != tree["train"]["patches_weight"]:
            value = "auto"  # one weight with masks, another one without
        if new and value != DEFAULTS.get(old):
            *blocks, key = new.split(".")
            part = tree
            for each in blocks:
                part = part.setdefault(each, {})
            part[key] = value
        outdated[old] = new or "no longer used"
    if not model.get("background", True):
        del model["background"]
    return outdated


def key_meant(name: str, known: Iterable[str]) -> str | None:
    """The dotted key of `known` that a name refers to, itself or by its last part: train.end_iter for --end-iter."""
    name, keys = name.lstrip("-").lower().replace("-", "_"), list(known)
    same = [key for key in keys if key.rpartition(".")[2].lower() == name.rpartition(".")[2] and key.count(".") == 1]
    return name if name in keys else same[0] if len(same) == 1 else None
