"""The READMEs say what the code does: commands parse, links lead somewhere, tables and messages are the code's."""

import ast
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from docs import make_tables
from docs.meanings_zh import MEANINGS_ZH
from models.arguments import EPILOG, parse_arguments
from models.config import ExperimentConfig, load_config
from models.config_strict import leaf_types

ROOT = Path(__file__).resolve().parents[1]
LOGGING = ("runner", "rendering/renderer", "rendering/radiance")  # the modules that name scalars
TEXTS = {language: path.read_text(encoding="utf-8") for language, path in make_tables.READMES.items()}
PAGES = {path.name: path.read_text(encoding="utf-8") for path in [*ROOT.glob("README*.md"), *ROOT.glob("docs/*.md")]}
MAX_IMAGE_BYTES = 300_000
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HOLE = "…"  # what a quoted message leaves out


def blocks(text):
    """(language, lines without comments) of each fenced block."""
    return [(kind, [re.sub(r"\s*#.*", "", line) for line in body.splitlines()]) for kind, body in FENCE.findall(text)]


def commands(text):
    """The lines of every bash block."""
    return [line for kind, lines in blocks(text) if kind == "bash" for line in lines if line]


def outside_fences(text):
    return FENCE.sub("", text)


def headings(text):
    return re.findall(r"^(#+) (.+)$", outside_fences(text), re.MULTILINE)


def anchor(heading):
    """The anchor GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def quoted_messages(text):
    """What the first column between the error markers quotes."""
    section = text.partition("<!-- errors -->")[2].partition("<!-- /errors -->")[0]
    return re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)


def literals(tree):
    """Every string of a module, with a hole for each value put into it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else HOLE for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def known_messages():
    paths = [*ROOT.glob("data/**/*.py"), *ROOT.glob("models/**/*.py"), ROOT / "exp_runner.py"]
    strings = [text for path in paths for text in literals(ast.parse(path.read_text(encoding="utf-8")))]
    return [*strings, (ROOT / "Makefile").read_text(encoding="utf-8")]


EXPERIMENT_COMMANDS = sorted({line for text in TEXTS.values() for line in commands(text) if "exp_runner.py" in line})


@pytest.mark.parametrize("line", EXPERIMENT_COMMANDS)
def test_a_command_of_the_readme_is_one_the_program_takes(line, tmp_path, monkeypatch):
    words = shlex.split(line)
    assert words[:2] == ["python", "exp_runner.py"]
    monkeypatch.chdir(tmp_path)  # where the checkpoint that a command names can stand
    if "--checkpoint" in words:
        Path(words[words.index("--checkpoint") + 1]).touch()
    arguments = parse_arguments(words[2:])
    load_config(ROOT / (arguments.conf or "confs/demo.conf"), arguments.case, arguments.overrides)


def test_the_readme_has_commands_to_check():
    assert len(EXPERIMENT_COMMANDS) >= 12
    modes = {parse_arguments(shlex.split(line)[2:]).mode.name for line in EXPERIMENT_COMMANDS if "ckpt" not in line}
    assert modes == {"train", "validate_mesh", "validate_image", "interpolate", "evaluate", "prepare", "inspect"}


@pytest.mark.parametrize("language", TEXTS)
def test_every_make_target_exists(language):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    spans = re.findall(r"`([^`\n]+)`", outside_fences(TEXTS[language])) + commands(TEXTS[language])
    named = {line.split()[-1] for line in spans if line.startswith("make ")}
    assert {"demo", "test", "lint", "clean"} <= named <= targets


@pytest.mark.parametrize("language", TEXTS)
def test_every_program_that_a_command_runs_exists(language):
    lines = commands(TEXTS[language])
    files = re.findall(r"(?:python|pytest) (\S+\.py)", "\n".join(lines))
    modules = re.findall(r"python -m (docs\.\w+)", "\n".join(lines))
    paths = [ROOT / name for name in files] + [ROOT / f"{name.replace('.', '/')}.py" for name in modules]
    assert len(paths) >= 3 and [path for path in paths if not path.is_file()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_somewhere(page):
    folder = ROOT if page.startswith("README") else ROOT / "docs"
    anchors = {f"#{anchor(title)}" for _, title in headings(PAGES[page])}
    local = [target for target in LINK.findall(PAGES[page]) if not target.startswith("https://")]
    exists = {target: (folder / target).exists() for target in local if not target.startswith("#")}
    assert [target for target in local if not exists.get(target, target in anchors)] == []


def test_images_are_small_and_used():
    used = {Path(target).name for text in PAGES.values() for target in LINK.findall(text)}
    images = list((ROOT / "docs" / "images").glob("*"))
    assert [image.name for image in images if image.stat().st_size > MAX_IMAGE_BYTES] == []
    assert [image.name for image in images if image.name not in used] == []


def test_both_readmes_have_the_same_structure():
    english, chinese = (TEXTS[language] for language in ("en", "zh"))
    assert [level for level, _ in headings(english)] == [level for level, _ in headings(chinese)]
    assert blocks(english) == blocks(chinese)
    rows, other_rows = (re.findall(r"^\|.*\|$", outside_fences(text), re.MULTILINE) for text in (english, chinese))
    assert [row.count("|") for row in rows] == [row.count("|") for row in other_rows]
    links, other_links = ([target for target in LINK.findall(text) if "#" not in target] for text in (english, chinese))
    assert sorted(set(links) - {"README.zh-CN.md"}) == sorted(set(other_links) - {"README.md"})
    items, other_items = (re.findall(r"^- ", text, re.MULTILINE) for text in (english, chinese))
    assert len(items) == len(other_items)


def test_the_chinese_readme_is_in_chinese():
    prose = re.sub(r"`[^`\n]*`", "", outside_fences(TEXTS["zh"]))
    assert len(re.findall(r"[\u4e00-\u9fff]", prose)) > 3000
    assert not re.search(r"[\u4e00-\u9fff]", outside_fences(TEXTS["en"]).replace("[中文]", ""))


@pytest.mark.parametrize("language", TEXTS)
def test_the_tables_are_those_of_the_code(language):
    assert make_tables.filled(TEXTS[language], language) == TEXTS[language], "run `python -m docs.make_tables`"


@pytest.mark.parametrize("language", TEXTS)
def test_the_tables_name_every_flag_and_every_key(language):
    flags = re.findall(r"^\| `(--\w+)", make_tables.flag_table(language), re.MULTILINE)
    help_page = re.findall(r"^  (?:-h, )?(--\w+)", make_tables.arguments._make_parser().format_help(), re.MULTILINE)
    assert flags == help_page and len(flags) >= 15
    keys, block = set(), ""
    for line in make_tables.key_tables(language).splitlines():
        if match := re.fullmatch(r"\*\*`([\w.]+)`\*\*", line):
            block = match[1]
        elif match := re.match(r"\| `(\w+)` \|", line):
            keys.add(f"{block}.{match[1]}")
    assert keys == set(leaf_types(ExperimentConfig))


def test_every_chinese_meaning_is_in_use():
    assert set(MEANINGS_ZH) == set(make_tables.meanings())


def test_a_default_in_the_table_is_what_a_conf_of_the_base_alone_has():
    conf = load_config(ROOT / "confs" / "womask.conf", "CASE_NAME")  # the recipe that changes nothing but a folder
    defaults = {row.key: row.default for row in make_tables.conf_rows()}
    assert float(defaults["train.learning_rate"]) == conf.train.learning_rate
    assert int(defaults["model.neus_renderer.n_outside"]) == conf.model.neus_renderer.n_outside
    assert defaults["dataset.data_dir"] == conf.dataset.data_dir
    assert defaults["model.nerf.skips"] == str(list(conf.model.nerf.skips))


def test_the_table_maker_names_what_is_missing(monkeypatch):
    with pytest.raises(LookupError, match="<!-- flags -->"):
        make_tables.filled("no markers", "en")
    row = replace(make_tables.conf_rows()[0], meaning="never translated")
    monkeypatch.setattr(make_tables, "conf_rows", lambda: [row])
    with pytest.raises(LookupError, match="never translated"):
        make_tables.key_tables("zh")


@pytest.mark.parametrize("language", TEXTS)
def test_every_recipe_is_listed(language):
    listed = re.findall(r"^\| \[(confs/\w+\.conf)\]", TEXTS[language], re.MULTILINE)
    assert sorted(listed) == sorted(f"confs/{path.name}" for path in (ROOT / "confs").glob("*.conf"))


def test_the_exit_statuses_are_those_of_the_help_page():
    (statuses,) = re.findall(r"^exit status: (.+)$", EPILOG, re.MULTILINE)
    assert f"Exit status: {statuses}." in TEXTS["en"]
    assert re.findall(r"\d+", statuses) == re.findall(r"\d+", re.search(r"退出状态：(.*?)。", TEXTS["zh"])[1])


def test_the_conf_of_the_readme_loads(tmp_path):
    shutil.copytree(ROOT / "confs", tmp_path / "confs")
    for text in TEXTS.values():
        (source,) = [body for kind, body in FENCE.findall(text) if kind == "hocon"]
        (tmp_path / "confs" / "my_scene.conf").write_text(source, encoding="utf-8")
        conf = load_config(tmp_path / "confs" / "my_scene.conf")
        assert (conf.general.base_exp_dir, conf.train.end_iter) == ("./exp/my_scene", 6000)
        assert (conf.dataset.data_dir, conf.dataset.test_dir) == ("./my_scene", "")


def test_the_sizing_table_counts_what_the_confs_ask_for():
    rows = re.findall(r"\| (\d+) \| (\d+) \| (\d+) \|$", TEXTS["en"], re.MULTILINE)
    for column, name in enumerate(("wmask", "womask", "demo")):
        renderer = load_config(ROOT / "confs" / f"{name}.conf", "bear").model.neus_renderer
        inside = renderer.n_samples + renderer.n_importance
        last_round = -(-renderer.n_importance // renderer.up_sample_steps)
        background = inside + renderer.n_outside if renderer.n_outside else 0
        assert [int(row[column]) for row in rows] == [inside - last_round, inside, background]


@pytest.mark.parametrize("message", quoted_messages(TEXTS["en"]))
def test_a_quoted_message_is_one_the_program_says(message):
    assert any(message in known for known in known_messages())


def test_both_readmes_quote_the_same_messages():
    messages = quoted_messages(TEXTS["en"])
    assert len(messages) >= 25 and messages == quoted_messages(TEXTS["zh"])


@pytest.mark.parametrize("language", TEXTS)
def test_the_scalars_named_are_those_that_are_logged(language):
    tag = re.compile(r"(?:Loss|Statistics)/\w+")
    logged = {match for name in LOGGING for match in tag.findall(read_module(name))}
    assert set(tag.findall(TEXTS[language].partition("## ")[2].partition("<!-- flags -->")[0])) == logged


def read_module(name):
    return (ROOT / "models" / f"{name}.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("language", TEXTS)
def test_every_result_folder_named_is_one_that_is_written(language):
    (layout,) = [lines for _, lines in blocks(TEXTS[language]) if lines[0] == "exp/demo/"]
    folders = {line.strip().partition("/")[0] for line in layout[1:]}
    sources = "".join(read_module(name) for name in ("caretaker", "experiment", "results", "training/logger"))
    written = set(re.findall(r'(?:path\(|folder / )"(\w+)"', sources))
    assert folders == written


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_no_place_on_a_machine(page):
    assert not re.search(r"(?<![\w.])/(work|tmp|home|root|usr|opt|mnt)\b", PAGES[page])


def test_the_message_reader_sees_through_f_strings():
    source = 'raise E(f"{path}: has no {key}; " "the scene" f" has {n}")'
    assert any("has no …; the scene has …" in text for text in literals(ast.parse(source)))
