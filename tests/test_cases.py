"""Several scenes with one command: a queue, over ranks too; each as if trained by itself, a table at the end."""

import shutil
import signal
import sys

import pytest
from runs import ROOT, SHORT, contents, finished, needs_mpi, run, saved, started

import exp_runner
from data.errors import UserError
from models.commands import cases
from models.machine import ranks

SCENES = "A,empty,B"


def flags(folder, names=SCENES, results="results/CASE_NAME"):
    """The command line for scenes below `folder`."""
    values = (f"dataset.data_dir={folder}/CASE_NAME", f"general.base_exp_dir={folder}/{results}", *SHORT)
    settings = [word for value in values for word in ("--set", value)]
    return ["--conf", str(ROOT / "confs/debug.conf"), "--cases", names, *settings]


def test_scenes_are_named_by_commas_or_by_a_file(tmp_path):
    assert cases.scenes_of("A, B,,C") == ("A", "B", "C")
    (tmp_path / "list").write_text("A\n# of last year\nB  # again\n\n")
    assert cases.scenes_of(str(tmp_path / "list")) == ("A", "B")
    (tmp_path / "empty").write_text("# none\n\n")
    for wrong, word in (("A,B,A", "twice"), (" ,", "no scene"), (str(tmp_path / "empty"), "no scene")):
        with pytest.raises(UserError, match=word):
            cases.scenes_of(wrong)


@pytest.mark.parametrize("text", ["scenes/list", "missing.txt", "./folder", "a,.."])
def test_a_list_that_is_not_there_is_blamed_on_cases(text, tmp_path, monkeypatch, capsys):
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    assert exp_runner.main(flags(tmp_path, names=text)) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: --cases {text}: ") and "Traceback" not in told


def test_a_bad_name_and_flags_that_contradict_several_scenes_are_named(tmp_path, capsys):
    (tmp_path / "list").write_text("A\nB/C\n")
    assert exp_runner.main(flags(tmp_path, names=str(tmp_path / "list"))) == 2
    assert f"--cases {tmp_path / 'list'}: 'B/C': must be the name of one folder" in capsys.readouterr().err
    assert exp_runner.main([*flags(tmp_path), "--mode", "evaluate"]) == 2
    assert "--cases: is a flag of --mode train" in capsys.readouterr().err


def job(task, first, last, count, step=1):
    """What Slurm sets for a job of an array."""
    return dict(zip(ranks.ARRAY, map(str, (task, first, last, count, step)), strict=True))


def test_a_job_of_an_array_takes_its_part():
    assert [ranks.scenes_of_job("ABCDE", job(task, 1, 2, 2)) for task in (1, 2)] == [["A", "C", "E"], ["B", "D"]]
    assert [ranks.scenes_of_job("ABCDE", job(task, 0, 4, 3, 2)) for task in (0, 2, 4)] == [
        ["A", "D"],
        ["B", "E"],
        ["C"],
    ]
    assert ranks.scenes_of_job("ABC", {}) == ["A", "B", "C"]


# Jobs that would leave scenes out or train them twice.
@pytest.mark.parametrize("array", [(1, 1, 7, 3), (5, 1, 7, 3), (3, 3, 3, 1), (4, 3, 5, 3), (3, 0, -1, 0), (5, 0, 1, 2)])
def test_an_array_that_does_not_cover_the_scenes_once_is_refused(array):
    with pytest.raises(UserError, match="JOBS="):
        ranks.scenes_of_job("ABC", job(*array))


def test_a_training_ends_with_its_error_or_what_it_printed():
    assert cases.ending(0, "a warning\n") == ("done", ())
    lines = tuple(f"line {number}" for number in range(300))
    assert cases.ending(1, "\n".join(lines))[1] == (*lines[:200], "[60 lines left out]", *lines[260:])
    assert cases.ending(2, "a warning\nerror: no scene\n") == ("no scene", ())
    assert cases.ending(1, "Traceback\nKeyError: 3\n") == ("ended with status 1", ("Traceback", "KeyError: 3"))


@pytest.mark.slow
@needs_mpi
def test_ranks_train_the_scenes_of_a_queue_and_a_failure_stops_no_other(tmp_path, capsys):
    for name in "AB":
        shutil.copytree(ROOT / "data/demo", tmp_path / name)
    (tmp_path / "empty").mkdir()
    assert exp_runner.main(flags(tmp_path, results="one")) == 2
    assert "A and empty would both be written to" in capsys.readouterr().err
    status, out, err = finished(started([sys.executable, str(ROOT / "exp_runner.py"), *flags(tmp_path)]))
    assert status == 1 and "error: empty failed" in err
    rows = [line.split() for line in out.partition("\nscene ")[2].splitlines()[1:]]
    assert [row[0] for row in rows] == ["A", "empty", "B"]
    assert [row[1] for row in rows] == ["6", "0", "6"] and [row[-1] for row in rows[::2]] == ["done", "done"]
    assert "is not a scene of a known format" in out
    assert run(tmp_path / "alone") == 0
    for name in "AB":
        assert contents(saved(tmp_path / "results" / name, 6)) == contents(saved(tmp_path / "alone", 6))


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_exit_status_tells_which_signal_stopped_the_queue(signum, tmp_path, monkeypatch):
    begun = []

    def train(work, case):
        begun.append(case)
        signal.raise_signal(signum)
        return cases.Outcome(case, cases.NOT_BEGUN)

    monkeypatch.setattr(cases._CaseTrainer, "train", train)
    handlers = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        assert exp_runner.main(flags(tmp_path)) == 128 + signum and begun == ["A"]
    finally:
        for one, handler in handlers.items():
            signal.signal(one, handler)
