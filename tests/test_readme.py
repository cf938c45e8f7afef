"""The README and its pages say what the code does: commands run, links lead somewhere, tables and messages are true."""

import re
import shlex
import shutil
from pathlib import Path

import pages
import pytest
from pages import PAIRS, ROOT, TEXTS

from docs import make_tables
from models.commands.arguments import parse_arguments
from models.commands.conf import read_conf
from models.methods.conf import known_leaves

# The pages of docs/ in both languages; the others are in English.
BILINGUAL = {"usage", "photographs", "formats", "confs", "flags", "cuda", "troubleshooting"}
READMES = ("README.md", PAIRS["README.md"])
FOREIGN = {"sudo", "pip", "tensorboard", "source"}  # programs that are not this project's
PYTHON = re.compile(r"(\.venv/bin/)?python")
COMMANDS = {line: name for name, text in TEXTS.items() for line in pages.commands(text)}
INLINE = {span: name for name, text in TEXTS.items() for span in pages.spans(text) if re.match(r"(make|python) ", span)}


def named(pair):
    """The texts of the English and the Chinese page of a pair."""
    return TEXTS[pair], TEXTS[PAIRS[pair]]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def make_targets():
    return set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))


def shown_confs(text):
    """The confs that the commands of a page name and the project lacks, as the page itself shows them, in order."""
    lines = [shlex.split(line) for line in pages.commands(text)]
    confs = dict.fromkeys(line[line.index("--conf") + 1] for line in lines if "--conf" in line)
    return [name for name in confs if not (ROOT / name).is_file()]


def check_experiment(words, text):
    """The program takes the flags, and the conf they name loads."""
    if "--help" in words:
        return
    for name, source in zip(shown_confs(text), pages.bodies(text, "hocon"), strict=True):
        Path(name).write_text(source, encoding="utf-8")
    if "--checkpoint" in words:
        Path(words[words.index("--checkpoint") + 1]).touch()
    arguments = parse_arguments(words)
    if arguments.conf is None or arguments.conf.suffix:  # FILE stands for any
        read_conf(arguments)


def check_program(words):
    """The file or module that Python is given exists, and knows each flag."""
    if words[0] == "-m" and words[1] == "pytest":
        assert all((ROOT / name).is_file() for name in words[2:])
        return
    path = ROOT / (words[1].replace(".", "/") + ".py" if words[0] == "-m" else words[0])
    source = path.read_text(encoding="utf-8")
    own = words[: words.index("--")] if "--" in words else words  # what follows is another program's
    assert [word for word in own if word.startswith("--") and f'"{word}"' not in source] == []


def check(line, text):
    """Raises where a command of a page is none."""
    program, *words = shlex.split(line)
    if program == "mpirun":  # with flags that each have a value
        program, *words = words[next(at for at, word in enumerate(words) if PYTHON.fullmatch(word)) :]
    while "=" in program:  # a variable, for this command or for those that follow
        if not words:
            return
        program, *words = words
    if program == "sbatch":
        program, *words = "bash", *(word for word in words if not word.startswith("-"))
    if program == "make":
        assert {word for word in words if "=" not in word} <= make_targets()
    elif PYTHON.fullmatch(program):
        if words[0] == "exp_runner.py":
            check_experiment(words[1:], text)
        else:
            check_program(words)
    elif program == "bash":
        assert (ROOT / words[0]).is_file()
    else:
        assert program in FOREIGN


@pytest.fixture
def start_folder(tmp_path, monkeypatch):
    """A folder to start from, with the confs, where the files that a command names can stand."""
    shutil.copytree(ROOT / "confs", tmp_path / "confs")
    (tmp_path / "scenes.txt").write_text("bear\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("line", sorted({**COMMANDS, **INLINE}))
def test_a_command_is_one_that_runs(line, start_folder):
    check(line, TEXTS[{**INLINE, **COMMANDS}[line]])


@pytest.mark.parametrize("name", TEXTS)
def test_every_link_and_picture_is_there(name):
    for path, anchor in pages.targets(name):
        assert path.exists(), path
        assert not anchor or anchor in pages.anchors(path.read_text(encoding="utf-8")), f"{path}#{anchor}"


@pytest.mark.parametrize("name", TEXTS)
def test_every_file_of_the_project_that_a_page_names_exists(name):
    found = {span for span in pages.spans(TEXTS[name]) if re.fullmatch(r"(confs|docs|tests|benchmarks)/[\w./-]+", span)}
    missing = {span for span in found if not (ROOT / span).exists() and "NAME" not in span}
    assert missing <= set(shown_confs(TEXTS[name]))


def test_every_page_is_linked_from_the_readme():
    english = {path.stem for path in ROOT.glob("docs/*.md") if not path.name.endswith(pages.CHINESE)}
    for suffix, name in zip((".md", pages.CHINESE), READMES, strict=True):
        wanted = {f"{page}{suffix if page in BILINGUAL else '.md'}" for page in english}
        assert wanted <= {path.name for path, _ in pages.targets(name)}


def first_cells(text):
    """Number of cells of each row, and what its first one quotes; languages may order that differently."""
    return [(len(row), sorted(re.findall(r"`[^`]+`", row[0]))) for row in pages.rows(text)]


@pytest.mark.parametrize("pair", PAIRS)
def test_both_languages_have_the_same_headings_commands_tables_and_links(pair):
    english, chinese = named(pair)
    assert [level for level, _ in pages.headings(english)] == [level for level, _ in pages.headings(chinese)]
    assert pages.blocks(english) == pages.blocks(chinese)
    assert first_cells(english) == first_cells(chinese)
    linked = [{path for path, _ in pages.targets(name)} for name in (pair, PAIRS[pair])]
    in_english = [{str(path).replace(pages.CHINESE, ".md") for path in paths} for paths in linked]
    assert in_english[0] == in_english[1]


@pytest.mark.parametrize("pair", PAIRS)
def test_every_flag_and_key_that_a_page_names_exists(pair):
    flags = {flag.split()[0] for flag, _ in make_tables.flags()}
    keys = known_leaves()
    for text in named(pair):
        found = pages.spans(text)
        spans = [span for span in found if not span.startswith(("pip", "mpirun", "srun", "python -m benchmarks."))]
        words = {word for span in spans for word in re.findall(r"(?<!\S)--\w[\w-]*", span)}
        assert sorted(words - flags) == []
        dotted = {match[1] for span in found if (match := re.match(r"((?:general|dataset|train)\.\w+)( ?=|$)", span))}
        assert sorted(dotted - set(keys) - {"train.log"}) == []


@pytest.mark.parametrize("path", make_tables.filled_pages(), ids=lambda path: path.name)
def test_the_tables_are_those_of_the_code(path):
    assert make_tables.filled_pages()[path] == path.read_text(encoding="utf-8"), "run `python -m docs.make_tables`"


@pytest.mark.parametrize("language", make_tables.SUFFIXES)
def test_the_tables_name_every_flag_and_every_key(language):
    flags = re.findall(r"^\| `(--\w+)", make_tables.flag_table(language), re.MULTILINE)
    help_page = re.findall(r"^  (?:-h, )?(--\w+)", make_tables.arguments.make_parser().format_help(), re.MULTILINE)
    assert flags == help_page
    keys, block = set(), ""
    for line in make_tables.key_tables(language).splitlines():
        if match := re.fullmatch(r"\*\*`([\w.]+)`\*\*", line):
            block = match[1]
        elif match := re.match(r"\| `(\w+)` \|", line):
            keys.add(f"{block}.{match[1]}")
    assert keys == set(known_leaves())
