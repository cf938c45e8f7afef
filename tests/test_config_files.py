"""Conf files: the case, includes, what is refused, and that nothing is fetched."""

import urllib.request
from functools import partial
from unittest.mock import Mock

import pytest
from config_samples import CONFS, WHOLE, write_conf

from models.conf import load_config, parse_config
from models.config.strict import ConfigError


@pytest.fixture
def conf_file(tmp_path):
    return partial(write_conf, tmp_path)


@pytest.mark.parametrize("spelling", ["./x/CASE_NAME/y", '"./x/"${case}"/y"', '"./x/CASE_NAME/y"'])
def test_a_case_is_filled_in_whatever_its_characters(spelling, conf_file):
    path = conf_file(WHOLE + f"\ndataset.data_dir = {spelling}\n")
    for case in ("24", "a b", "c++", "场景", "a.b-c", "true", "null"):
        assert load_config(path, case=case).dataset.data_dir == f"./x/{case}/y"


def test_a_case_that_leads_elsewhere_is_refused():
    for case in ("..", "a/b", "/etc", "a\\b", " "):
        with pytest.raises(ConfigError, match="--case"):
            load_config(CONFS / "wmask.conf", case=case)


def test_a_conf_that_was_read_with_other_overrides_is_read_as_before(conf_file):
    conf_file("dataset { data_dir = ./d/CASE_NAME/${case} }", "part.conf")
    path = conf_file(WHOLE + '\ninclude "part.conf"\n# the end\ntrain.report_freq = ${train.end_iter}\n')
    first = load_config(path, "a")
    changed = load_config(path, "b", ["train.end_iter = 7", "model.variance_network.init_val = 0.5"])
    assert changed.dataset.data_dir == "./d/b/b" and changed.train.report_freq == 7
    assert load_config(path, "a") == first


BAD_FILES = [
    ("a = [", "line 1"),
    ("[1, 2]", "not a list"),
    ("generall { }", "generall: unknown block; did you mean general?"),
    (WHOLE.replace("batch_size = 512", ""), "train.batch_size: this key is missing"),
]
ADDED = {
    "include of a file on a line of its own": [
        'include url("http://127.0.0.1/x.conf")',
        'train { include url("http://127.0.0.1/x.conf") }',
        'train {\n include "missing.conf"\n}',
    ],
    ".conf: no such conf file": ['include "https://127.0.0.1/x.conf"', 'include "missing.conf"'],
    "not HOCON near 'train { include": ['train { include "part.conf" }'],
    "not HOCON near 'a = x//y include": ['a = x//y include "part.conf"'],
    "Cannot resolve variable ${HOME}": ['general.base_exp_dir = "./"${HOME}', "train.seed = ${?HOME}"],
}
BAD_FILES += [(f"{WHOLE}\n{text}", words) for words, texts in ADDED.items() for text in texts]


@pytest.mark.parametrize(("text", "words"), BAD_FILES, ids=range(len(BAD_FILES)))
def test_a_bad_file_is_named_with_what_is_wrong_and_nothing_is_fetched(text, words, conf_file, monkeypatch):
    fetched = Mock(side_effect=AssertionError("something was fetched"))
    monkeypatch.setattr(urllib.request, "urlopen", fetched)
    monkeypatch.setattr("pyhocon.config_parser.urlopen", fetched)
    with pytest.raises(ConfigError) as caught:
        load_config(conf_file(text))
    message = str(caught.value)
    assert words in message and "\n" not in message and ".conf" in message


def test_includes_are_merged_where_they_stand(conf_file):
    conf_file("train.seed = 3\ntrain.end_iter = 30", "part.conf")
    text = WHOLE + '\ntrain.seed = 1\n  include required( file("part.conf") )  # a part\ntrain.end_iter = 40\n'
    conf = load_config(conf_file(text))
    assert (conf.train.seed, conf.train.end_iter) == (3, 40)


def test_files_that_are_missing_or_unreadable_are_named(tmp_path):
    (tmp_path / "latin.conf").write_bytes("# é\n".encode("latin-1"))
    for path, words in (
        (CONFS / "wmsk.conf", r"wmsk.conf: no such conf file; did you mean .*wmask.conf.*debug.conf"),
        (tmp_path / "latin.conf", "latin.conf: byte 2 is not UTF-8"),
    ):
        with pytest.raises(ConfigError, match=words):
            load_config(path)
    (tmp_path / "marked.conf").write_bytes(b"\xef\xbb\xbf" + WHOLE.encode())
    assert load_config(tmp_path / "marked.conf") == parse_config(WHOLE, "whole")
