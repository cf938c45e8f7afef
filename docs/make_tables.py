"""Writes the tables of flags and conf keys into the pages of docs/, in both languages: `python -m docs.make_tables`.

The flags come from the parser of models/commands. The keys, types and ranges come from the dataclasses of
data/scenes/config.py, models/config/blocks.py and the conf.py of fields and model types; their meanings and defaults
come from the comments and values of confs/base/*.conf. Each table replaces what stands between the lines
`<!-- NAME -->` and `<!-- /NAME -->`. tests/test_readme.py fails where one is out of date.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from docs.meanings_zh import LOSSES_ZH, MEANINGS_ZH
from models.commands import arguments
from models.conf import known_leaves
from models.config.strict import AUTO, Auto
from models.rendering.loss_table import ALWAYS

ROOT = Path(__file__).resolve().parents[1]
SUFFIXES = {"en": ".md", "zh": ".zh-CN.md"}
PAGES = {"flags": "flags", "keys": "confs", "losses": "usage"}  # table -> the page of docs/ that holds it
HEADS = {
    "en": {
        "flags": ("Flag", "Meaning"),
        "keys": ("Key", "Default; type, range", "Meaning"),
        "losses": ("Loss", "Weight", "Schedule", "Used"),
    },
    "zh": {
        "flags": ("参数", "含义"),
        "keys": ("键", "默认值；类型、范围", "含义"),
        "losses": ("损失", "权重", "时间表", "使用"),
    },
}
LOSS_WEIGHT = re.compile(r"weight of the (\w+) loss")  # a meaning that needs no translation of its own
LOSS_WORDS = {"en": {"from": "from", "falls": "falls to 0"}, "zh": LOSSES_ZH}
KIND_NAMES = {bool: "bool", int: "int", float: "float", str: "text"}
BLOCK_LINE = re.compile(r"\s*(\w+)\s*\{")
KEY_LINE = re.compile(r"\s*(\w+)\s*=\s*(.*?)\s+#\s+(.*)")
NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
# The part of a comment that says no more than the column of ranges, such as `>= 1` or `0..24`.
RANGE_NOTE = re.compile(rf"(>=|>) [\d.]+|at most [\d.]+|{NUMBER}\.\.{NUMBER}")


@dataclass(frozen=True)
class Row:
    """One conf key."""

    key: str  # dotted
    kind: str  # type and range
    default: str  # as confs/base writes it
    meaning: str  # English


def conf_rows() -> list[Row]:
    """Every leaf of the conf in the order of the dataclasses; raises LookupError for one confs/base leaves out."""
    explained = dict(_explained_keys())
    kinds = {key: f"{_kind_name(kind)} {_range_text(limits)}".strip() for key, (kind, limits) in known_leaves().items()}
    if missing := sorted(set(kinds) - set(explained)):
        raise LookupError(f"confs/base/*.conf: {missing[0]} is missing or has no comment")
    return [Row(key, kind, *explained[key]) for key, kind in kinds.items()]


def _explained_keys() -> Iterator[tuple[str, tuple[str, str]]]:
    """Dotted key and (value, comment) of each line `key = value  # comment` in confs/base."""
    for path in sorted((ROOT / "confs" / "base").glob("*.conf")):
        blocks: list[str] = []
        for line in path.read_text(encoding="utf-8").splitlines():
            if match := KEY_LINE.fullmatch(line):
                yield ".".join([*blocks, match[1]]), (match[2], _without_range(match[3]))
            elif match := BLOCK_LINE.match(line):
                blocks.append(match[1])
            elif line.strip() == "}":
                blocks.pop()


def _without_range(comment: str) -> str:
    """The comment without the parts that repeat the column of ranges."""
    parts = comment.split("; ")
    return "; ".join(part for part in parts if not RANGE_NOTE.fullmatch(part)) or comment


def _kind_name(kind: Any) -> str:
    """`int` for a number, `[int]` for a list of them, `auto or int` where the word is allowed too."""
    if kind in KIND_NAMES:
        return KIND_NAMES[kind]
    element = KIND_NAMES[get_args(kind)[0]]
    return f"{AUTO} or {element}" if Auto in get_args(kind) else f"[{element}]"


def _range_text(metadata: Mapping[str, Any]) -> str:
    """The limits of a field, as `≥ 1` or `0…24`; "" without any."""
    least, above, most = (metadata.get(name) for name in ("at_least", "above", "at_most"))
    if metadata.get("one_of"):
        return ", ".join(f"`{choice}`" for choice in metadata["one_of"])
    if least is not None and most is not None:
        return f"= {least}" if least == most else f"{number_text(least)}…{number_text(most)}"
    texts = [(least, "≥"), (above, ">"), (most, "≤")]
    return " ".join(f"{sign} {number_text(bound)}" for bound, sign in texts if bound is not None)


def number_text(value: float) -> str:
    """The number in the notation of a conf: 0.1, 16384, 1e9, 1e-9."""
    text = f"{value:.10g}"
    digits = text.rstrip("0")
    return f"{digits}e{len(text) - len(digits)}" if len(text) - len(digits) >= 6 else text.replace("e-0", "e-")


def flags() -> list[tuple[str, str]]:
    """(flag with its value, help) of each flag, in the order of the help page."""
    parser: argparse.ArgumentParser = arguments.make_parser()
    rows = []
    for action in parser._actions:
        names = action.metavar if isinstance(action.metavar, tuple) else (action.metavar or "",)
        value = "|".join(action.choices) if action.choices else " ".join(names)
        rows.append((f"{action.option_strings[-1]} {value}".strip(), " ".join(str(action.help).split())))
    return rows


def meanings() -> list[str]:
    """Every English text that the tables show and a translation needs."""
    return [help_text for _, help_text in flags()] + [row.meaning for row in conf_rows()]


def _translated(text: str, language: str) -> str:
    """The text in the language; raises LookupError, which names all that are missing, where there is none."""
    if language == "en":
        return text
    if text not in MEANINGS_ZH and (weight := LOSS_WEIGHT.fullmatch(text)):
        return f"{weight[1]} 损失的权重"
    if text not in MEANINGS_ZH:
        missing = dict.fromkeys(one for one in meanings() if one not in MEANINGS_ZH)
        raise LookupError(f"docs/meanings_zh.py: no Chinese for {'; '.join(map(repr, missing))}")
    return MEANINGS_ZH[text]


def page_path(table: str, language: str) -> Path:
    """The page that holds a table."""
    return ROOT / "docs" / (PAGES[table] + SUFFIXES[language])


def flag_table(language: str) -> str:
    """The table of flags in Markdown."""
    rows = [(f"`{flag}`", _translated(text, language)) for flag, text in flags()]
    return _table(HEADS[language]["flags"], rows)


def key_tables(language: str) -> str:
    """One Markdown table of keys for each block of a conf, each under the block's name."""
    by_block: dict[str, list[Row]] = {}
    for row in conf_rows():
        by_block.setdefault(row.key.rpartition(".")[0], []).append(row)
    parts = []
    for block, rows in by_block.items():
        cells = [
            (f"`{row.key.rpartition('.')[2]}`", f"`{row.default}`; {row.kind}", _translated(row.meaning, language))
            for row in rows
        ]
        parts.append(f"**`{block}`**\n\n{_table(HEADS[language]['keys'], cells)}")
    return "\n\n".join(parts)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; bars inside cells are escaped."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def loss_table(language: str) -> str:
    """The table of losses in Markdown: TensorBoard tag, weight, schedule, and the methods and scenes that use it."""
    from models.methods.gaussians.conf import GAUSSIANS
    from models.methods.gaussians.terms import LOSSES as OF_GAUSSIANS
    from models.rendering.losses import LOSSES
    from models.structs import loss_tag

    words, known, rows = LOSS_WORDS[language], {row.key: row.default for row in conf_rows()}, []
    for table, owners in ((LOSSES, ()), (OF_GAUSSIANS, (GAUSSIANS,))):
        for name, loss in table.items():
            key, start = f"train.{loss.key or f'{name}_weight'}", f"train.{name}_from"
            begins = f"`{start}`" if start in known else f"{loss.begins:g}" if loss.begins else ""
            schedule = [f"{words['from']} {begins}"] * bool(begins) + [words["falls"]] * loss.falls
            used = ", ".join(f"`{kind}`" for kind in (*owners, *loss.kinds))
            rows.append(
                (
                    f"`{loss_tag(name)}`",
                    f"`{key}` = {known[key]}" if key in known else "1",
                    ", ".join(schedule) or "-",
                    f"{used} {words.get(loss.when, loss.when)}".replace(f" {ALWAYS}", "").strip(),
                )
            )
    return _table(HEADS[language]["losses"], rows)


TABLES = {"flags": flag_table, "keys": key_tables, "losses": loss_table}


def filled(text: str, table: str, language: str) -> str:
    """A page's text with its table up to date; raises LookupError where it lacks the pair of markers."""
    begin, end = f"<!-- {table} -->", f"<!-- /{table} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise LookupError(f"{page_path(table, language).name} needs the lines {begin} and {end}, once each")
    head, _, rest = text.partition(begin)
    return f"{head}{begin}\n\n{TABLES[table](language)}\n\n{end}{rest.partition(end)[2]}"


def filled_pages() -> dict[Path, str]:
    """Every page that holds a table, with the table up to date; raises LookupError as `filled`."""
    places = {page_path(table, language): (table, language) for table in PAGES for language in SUFFIXES}
    return {path: filled(path.read_text(encoding="utf-8"), *place) for path, place in places.items()}


def main() -> int:
    """Rewrite the pages; returns the exit status."""
    try:
        texts = filled_pages()
    except LookupError as error:
        sys.stderr.write(f"error: {error.args[0]}\n")
        return 2
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
