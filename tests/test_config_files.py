"""Conf files: the case, includes, what is refused, and that nothing is fetched."""

import urllib.request
from functools import partial

import pytest
from config_samples import CONFS, RECIPES, WHOLE, write_conf

from models.config.strict import ConfigError
from models.methods.conf import load_config, parse_config


@pytest.fixture
def conf_file(tmp_path):
    return partial(write_conf, tmp_path)


@pytest.mark.parametrize("spelling", ["./x/CASE_NAME/y", "./x/${case}/y", '"./x/"${case}"/y"', '"./x/CASE_NAME/y"'])
@pytest.mark.parametrize("case", ["scan24", "24", "a b", "c++", "场景", "a.b-c", "true", "null"])
def test_a_case_is_filled_in_in_both_spellings_whatever_its_characters(spelling, case, conf_file):
    path = conf_file(WHOLE + f"\ndataset.data_dir = {spelling}\n")
    assert load_config(path, case=case).dataset.data_dir == f"./x/{case}/y"


@pytest.mark.parametrize("case", ["..", "a/b", "../x", "/etc", "a\\b", ".", " ", "a\nb", "x..y"])
def test_a_case_that_leads_elsewhere_is_refused(case):
    with pytest.raises(ConfigError, match="--case"):
        load_config(CONFS / "wmask.conf", case=case)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_without_its_case_asks_for_it(name):
    with pytest.raises(ConfigError, match="pass --case NAME"):
        load_config(CONFS / f"{name}.conf")


def test_the_words_inside_an_included_file_take_the_case_too(conf_file):
    conf_file("dataset.data_dir = ./d/CASE_NAME/${case}", "part.conf")
    path = conf_file(WHOLE + '\ninclude required("part.conf")\n')
    assert load_config(path, case="n").dataset.data_dir == "./d/n/n"


def test_a_conf_that_was_read_with_other_overrides_is_read_as_before(conf_file):
    conf_file("dataset { data_dir = ./d/CASE_NAME }", "part.conf")
    path = conf_file(WHOLE + '\ninclude "part.conf"\n# the end\ntrain.report_freq = ${train.end_iter}\n')
    first = load_config(path, "a")
    changed = load_config(path, "b", ["train.end_iter = 7", "model.variance_network.init_val = 0.5"])
    assert changed.dataset.data_dir == "./d/b" and changed.train.report_freq == 7
    assert load_config(path, "a") == first


BAD_FILES = [
    ("train { end_iter = 3", "line"),
    ("a = [", "line 1"),
    ("general { a = ./x+y }", "line"),
    ("[1, 2]", "not a list"),
    ("", "general: this block is missing"),
    ("generall { }", "generall: unknown block; did you mean general?"),
    (WHOLE.replace("batch_size = 512", ""), "train.batch_size: this key is missing"),
    (WHOLE.replace("variance_network { init_val = 0.3 }", ""), "model.variance_network: this block is missing"),
    (WHOLE + "\ntrain = 3", "train: must be a block"),
    (WHOLE + "\nmodel.nerf.d_inn = 3", "model.nerf.d_inn: unknown key; did you mean d_in?"),
    (WHOLE + '\ninclude url("http://127.0.0.1/x.conf")', "include of a file on a line of its own"),
    (WHOLE + '\ninclude "https://127.0.0.1/x.conf"', "x.conf: no such conf file"),
    (WHOLE + '\ninclude required(url("file:///etc/hostname"))', "include of a file on a line of its own"),
    (WHOLE + '\ntrain { include url("http://127.0.0.1/x.conf") }', "include of a file on a line of its own"),
    (WHOLE + '\ninclude package("pyhocon:__init__.py")', "include of a file on a line of its own"),
    (WHOLE + '\ninclude "missing.conf"', "missing.conf: no such conf file"),
    (WHOLE + '\ninclude required("x.conf")', "includes itself"),
    (WHOLE + '\ninclude "sub/evil.conf"', "include of a file on a line of its own"),
    (WHOLE + '\ngeneral.base_exp_dir = "./"${HOME}', "Cannot resolve variable ${HOME}"),
    (WHOLE + "\nPATH = ${PATH}", "Cannot resolve"),
    (WHOLE + "\nPATH = [${PATH}]", "Cannot resolve"),
    (WHOLE + "\ntrain.seed = ${?HOME}", "Cannot resolve variable ${HOME}"),
    (WHOLE + "\nPATH += x", "Cannot resolve"),
    (WHOLE + '\ntrain { include "part.conf" }', "not HOCON near 'train { include"),
    (WHOLE + '\ntrain {\n include "missing.conf"\n}', "include of a file on a line of its own"),
    (WHOLE + '\na = x//y include "part.conf"', "a: unknown block"),
    (WHOLE + "\ntrain.seed = ${train.seed2}", "cannot be resolved: Cannot resolve variable ${train.seed2}"),
]


@pytest.mark.parametrize(("text", "complaint"), BAD_FILES, ids=range(len(BAD_FILES)))
def test_a_bad_file_is_named_with_what_is_wrong_and_nothing_is_fetched(text, complaint, conf_file, monkeypatch):
    def no_network(*_args, **_kwargs):
        raise AssertionError("something was fetched")

    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    monkeypatch.setattr("pyhocon.config_parser.urlopen", no_network)
    conf_file('\ninclude url("http://127.0.0.1/y.conf")', "sub/evil.conf")
    path = conf_file(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    message = str(caught.value)
    assert complaint in message and "\n" not in message
    assert ".conf" in message


def test_includes_are_merged_where_they_stand(conf_file):
    conf_file("train.seed = 3\ntrain.end_iter = 30", "part.conf")
    text = WHOLE + '\ntrain.seed = 1\n  include required( file("part.conf") )  # a part\ntrain.end_iter = 40\n'
    conf = load_config(conf_file(text))
    assert (conf.train.seed, conf.train.end_iter) == (3, 40)


def test_a_missing_file_names_the_nearest_and_what_there_is():
    with pytest.raises(ConfigError, match=r"wmsk.conf: no such conf file; did you mean .*wmask.conf.*debug.conf"):
        load_config(CONFS / "wmsk.conf")
    with pytest.raises(ConfigError, match="there is no folder"):
        load_config(CONFS / "nowhere" / "wmask.conf")


def test_unreadable_files_are_named(tmp_path):
    latin = tmp_path / "latin.conf"
    latin.write_bytes("# é\n".encode("latin-1"))
    with pytest.raises(ConfigError, match="latin.conf: byte 2 is not UTF-8"):
        load_config(latin)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path)
    marked = tmp_path / "marked.conf"
    marked.write_bytes(b"\xef\xbb\xbf" + WHOLE.encode())
    assert load_config(marked) == parse_config(WHOLE, "whole")
