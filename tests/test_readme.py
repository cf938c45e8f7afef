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
from models.commands.model_modes import read_conf
from models.conf import known_leaves

# The pages of docs/ in both languages; the others are in English.
BILINGUAL = {"usage", "photographs", "formats", "confs", "flags", "cuda", "troubleshooting"}
LINES = 171  # of a README
READMES = ("README.md", PAIRS["README.md"])
COMMANDS = {line: name for name, text in TEXTS.items() for line in pages.commands(text)}
INLINE = {span: name for name, text in TEXTS.items() for span in pages.spans(text) if re.match(r"(make|python) ", span)}


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


def check(line, text):
    """Raises where a command of a page is none: of the program, the flags and the conf; of others, the files."""
    words = shlex.split(line)
    if "exp_runner.py" in words:
        check_experiment(words[words.index("exp_runner.py") + 1 :], text)
    elif words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert {word for word in words[1:] if "=" not in word} <= set(targets)
    modules = [words[at + 1] for at, word in enumerate(words) if word == "-m"]
    modules = [name.replace(".", "/") + ".py" for name in modules if name.startswith(("benchmarks", "docs"))]
    scripts = [word for word in words if re.fullmatch(r"(benchmarks|docs|tests)/[\w/]+\.(py|sh)", word)]
    assert [name for name in (*modules, *scripts) if not (ROOT / name).is_file()] == []


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
def test_every_link_picture_and_file_of_the_project_is_there(name):
    for path, anchor in pages.targets(name):
        assert path.exists(), path
        assert not anchor or anchor in pages.anchors(path.read_text(encoding="utf-8")), f"{path}#{anchor}"
    found = {span for span in pages.spans(TEXTS[name]) if re.fullmatch(r"(confs|docs|tests|benchmarks)/[\w./-]+", span)}
    missing = {span for span in found if not (ROOT / span).exists() and "NAME" not in span}
    assert missing <= set(shown_confs(TEXTS[name]))


def test_every_page_is_linked_from_the_readme():
    english = {path.stem for path in ROOT.glob("docs/*.md") if not path.name.endswith(pages.CHINESE)}
    for suffix, name in zip((".md", pages.CHINESE), READMES, strict=True):
        wanted = {f"{page}{suffix if page in BILINGUAL else '.md'}" for page in english}
        assert wanted <= {path.name for path, _ in pages.targets(name)}


@pytest.mark.parametrize("name", READMES)
def test_the_readme_begins_with_a_picture_its_readers_and_a_result(name):
    text = TEXTS[name]
    assert text.count("\n") <= LINES and text.index("![") < text.index("\n## ")
    intro, trial, _ = text.split("\n## ", 2)
    assert all(f"\n- {program}" in intro for program in ("nerfstudio", "Metashape", "OpenMVS")) and "\n| " not in trial
    at_once = [shlex.split(line) for line in pages.commands(trial)][-2:]
    assert at_once[0][1:3] == ["-m", "data.demo.make_photographs"]
    assert str(parse_arguments(at_once[1][2:]).values.images) == at_once[0][3], "the photographs that were written"
    assert all(f"\n- **{system}" in text for system in ("Windows", "macOS"))
    assert re.search(r"\n- \*\*.+\*\*.*tour.ipynb", text)


def first_cells(text):
    """Number of cells of each row, and what its first one quotes; languages may order that differently."""
    return [(len(row), sorted(re.findall(r"`[^`]+`", row[0]))) for row in pages.rows(text)]


@pytest.mark.parametrize("pair", PAIRS)
def test_both_languages_have_the_same_headings_commands_tables_and_links(pair):
    english, chinese = TEXTS[pair], TEXTS[PAIRS[pair]]
    assert [level for level, _ in pages.headings(english)] == [level for level, _ in pages.headings(chinese)]
    assert pages.blocks(english) == pages.blocks(chinese)
    assert first_cells(english) == first_cells(chinese)
    linked = [{path for path, _ in pages.targets(name)} for name in (pair, PAIRS[pair])]
    in_english = [{str(path).replace(pages.CHINESE, ".md") for path in paths} for paths in linked]
    assert in_english[0] == in_english[1]


@pytest.mark.parametrize("name", [*PAIRS, *PAIRS.values()])
def test_every_flag_and_key_that_a_page_names_exists(name):
    flags, found = {flag.split()[0] for flag, _ in make_tables.flags()}, pages.spans(TEXTS[name])
    spans = [span for span in found if not span.startswith(("pip", "mpirun", "srun", "python -m benchmarks."))]
    words = {word for span in spans for word in re.findall(r"(?<!\S)--\w[\w-]*", span)}
    assert sorted(words - flags) == []
    dotted = {match[1] for span in found if (match := re.match(r"((?:general|dataset|train)\.\w+)( ?=|$)", span))}
    assert sorted(dotted - set(known_leaves()) - {"train.log"}) == []


@pytest.mark.parametrize("path", make_tables.filled_pages(), ids=lambda path: path.name)
def test_the_tables_are_those_of_the_code(path):
    assert make_tables.filled_pages()[path] == path.read_text(encoding="utf-8"), "run `python -m docs.make_tables`"
