"""The README and the pages beside it, read as Markdown: commands, links, headings, tables, spans."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHINESE = ".zh-CN.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HOLE = "…"  # what a quoted message leaves out

PATHS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "data" / "README.md"]
TEXTS = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sorted(PATHS)}
PAIRS = {name.replace(CHINESE, ".md"): name for name in TEXTS if name.endswith(CHINESE)}  # English -> Chinese


def outside_fences(text):
    return FENCE.sub("", text)


def blocks(text):
    """(language, lines without comments) of each fenced block."""
    return [(kind, [re.sub(r"\s*#.*", "", line) for line in body.splitlines()]) for kind, body in FENCE.findall(text)]


def bodies(text, kind):
    """The raw text of each fenced block of a language."""
    return [body for language, body in FENCE.findall(text) if language == kind]


def commands(text):
    """The commands of every bash block, each on one line."""
    joined = re.sub(r" *\\\n *", " ", "\n".join(bodies(text, "bash")))
    return [line for line in (re.sub(r"(^|\s+)#.*", "", line) for line in joined.splitlines()) if line]


def spans(text):
    """What stands in backticks outside the fenced blocks."""
    return re.findall(r"`([^`\n]+)`", outside_fences(text))


def headings(text):
    """(hash signs, title) of each heading."""
    return re.findall(r"^(#+) (.+)$", outside_fences(text), re.MULTILINE)


def anchors(text):
    """The anchors GitHub gives the headings."""
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for _, title in headings(text)}


def rows(text):
    """The cells of each line of a table."""
    lines = re.findall(r"^\| (.*) \|$", outside_fences(text), re.MULTILINE)
    return [re.split(r"(?<!\\)\|", line) for line in lines]


def targets(name):
    """What the links of a page lead to within the project: (path from the root, anchor or "") of each."""
    for target in LINK.findall(TEXTS[name]):
        if not target.startswith("https://"):
            path, _, anchor = target.partition("#")
            file = (ROOT / name).parent / path if path else ROOT / name
            yield file.resolve(), anchor


def sources():
    """The program's own modules, parsed."""
    paths = [*ROOT.glob("data/**/*.py"), *ROOT.glob("models/**/*.py"), ROOT / "exp_runner.py"]
    return [ast.parse(path.read_text(encoding="utf-8")) for path in paths]


def literals(tree):
    """Every string of a module, with a hole for each value put into it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else HOLE for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
