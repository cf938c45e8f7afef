"""Several processes at one training: the same steps as one, one folder, one voice, and one end."""

import os
import signal

import numpy as np
import pytest
from ranks import finished, needs_mpi, processes, sentences, started, wait_for, workers
from runs import SHORT, command, contents, run, saved

from data.errors import UserError
from models.kinds.fast.batch import PackedBatch
from models.machine.ranks import cores, ranks
from models.machine.ranks.place import Place, be_alone, place_of
from models.watch.logger import LOG_FOLDER

SHOWN = ("train.report_freq=2", "train.val_freq=3", "train.val_mesh_freq=6", "train.mesh_resolution=16")
LAST = 400  # long enough for a signal to arrive before it
LONG = (f"train.end_iter={LAST}", "train.save_freq=10", "train.val_freq=0", "train.val_mesh_freq=0")


def test_what_mpirun_srun_and_nothing_say():
    open_mpi = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}
    local = {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    assert place_of(open_mpi | local) == Place(3, 4, 1, 2, "mpirun")
    slurm = {
        "SLURM_PROCID": "5",
        "SLURM_STEP_NUM_TASKS": "8",
        "SLURM_LOCALID": "1",
        "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
    }
    assert place_of(slurm) == Place()  # the script of a job, which srun has not started
    assert place_of(slurm | {"SLURM_STEP_ID": "0"}) == Place(5, 8, 1, 4, "srun")
    assert place_of({"PMI_RANK": "1", "PMI_SIZE": "2"}) == Place(1, 2, 1, 2, "mpiexec")
    assert place_of({}) == place_of({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}) == Place()
    alone = dict(open_mpi)
    be_alone(alone)
    assert place_of(alone) == Place()


@pytest.mark.parametrize("values", [{"OMPI_COMM_WORLD_RANK": "two"}, {"OMPI_COMM_WORLD_RANK": "4"}])
def test_an_environment_that_cannot_be_is_one_sentence(values):
    with pytest.raises(UserError, match="OMPI_COMM_WORLD_RANK"):
        place_of({"OMPI_COMM_WORLD_SIZE": "4"} | values)


def test_cores_are_shared_out_without_rest():
    shares = [cores.share(list(range(10)), Place(rank, 3, rank, 3)) for rank in range(3)]
    assert sorted(sum(shares, [])) == list(range(10)) and min(map(len, shares)) == 3
    assert [cores.share([4, 5], Place(rank, 3, rank, 3)) for rank in range(3)] == [[4], [5], [4]]


def test_one_process_is_all_of_its_ranks():
    values = np.ones(3, np.float32)
    ranks.ALONE.add(values)
    assert values.tolist() == [1, 1, 1] and ranks.ALONE.everyone("x") == ["x"] and ranks.ALONE.part(7) == slice(0, 7)


def test_differences_are_told_with_the_rank_that_has_them():
    of_all = [{"machine": "a", "x": 1, "y": 2}, {"machine": "b", "x": 1, "y": 2}, {"machine": "c", "x": 1, "y": 3}]
    assert ranks.differences(of_all[:2]) == []
    assert ranks.differences(of_all) == ["y: 2 on rank 0, 3 on rank 2 (c)"]


def packed(lengths, free):
    """A batch of rays with so many samples, and `free` of none."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    rays, samples = len(lengths), int(offsets[-1]) + free
    points = np.zeros((samples, 3), np.float32)
    view = np.zeros(rays, np.int32)
    return PackedBatch(np.zeros((rays, 3), np.float32), None, view, offsets, points, points, np.ones(1, np.float32))


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_packed_rays_are_shared_out_by_their_samples(parts):
    batch = packed([1, 1, 1, 1, 100, 1, 1, 1, 90, 3], 10)
    borders = batch.borders(parts)
    assert borders[0] == 0 and borders[-1] == 10 and np.all(np.diff(borders) > 0) and len(borders) == parts + 1
    whole = [batch.part(*borders[at : at + 2]) for at in range(parts)]
    assert sum(len(part.points) for part in whole) == len(batch.points)
    if parts == 2:
        assert max(len(part.points) for part in whole) <= 0.6 * len(batch.points)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One process and two ranks, six steps each, with pictures and a mesh."""
    folder = tmp_path_factory.mktemp("trained")
    settings = (*SHORT, *SHOWN)
    assert run(folder / "one", settings=settings) == 0
    told = finished(started(command(folder / "two", settings=settings)))
    return folder, told


@needs_mpi
def test_two_ranks_make_the_steps_of_one_process(trained):
    folder, (status, _, err) = trained
    assert status == 0, err
    one, two = saved(folder / "one", 6), saved(folder / "two", 6)
    for name, network in one.tensors.items():
        for key, values in network.items():
            np.testing.assert_allclose(two.tensors[name][key], values, atol=1e-4, err_msg=key)
    assert repr(one.state["sampler"]) == repr(two.state["sampler"]) and one.state["jitter"] == two.state["jitter"]


@needs_mpi
def test_rank_0_alone_speaks_and_writes_what_one_process_does(trained):
    folder, (_, out, _) = trained
    assert out.count("trained to step 6") == 1 and out.count("device ") == 1
    names = [{str(path.relative_to(folder / one)) for path in (folder / one).rglob("*")} for one in ("one", "two")]
    files = [{name for name in found if "events" not in name} for found in names]
    assert files[0] == files[1]
    assert len([name for name in names[1] if "events" in name]) == 1
    texts = [(folder / one / LOG_FOLDER / "train.log").read_text() for one in ("one", "two")]
    scalars = [
        [line.split("loss")[1].split(", inv_s")[0] for line in text.splitlines() if "loss" in line] for text in texts
    ]
    assert scalars[0] == scalars[1] and len(scalars[0]) == 3


@needs_mpi
def test_a_run_of_two_goes_on_as_one(trained):
    folder, _ = trained
    for path in (folder / "two" / "checkpoints").glob("ckpt_000006*"):
        path.rename(folder / path.name)
    assert run(folder / "two", "--is_continue", settings=(*SHORT, *SHOWN)) == 0
    one, two = saved(folder / "one", 6), saved(folder / "two", 6)
    for name, network in one.tensors.items():
        for key, values in network.items():
            np.testing.assert_allclose(two.tensors[name][key], values, atol=1e-4, err_msg=key)


@needs_mpi
def test_ranks_that_disagree_are_refused_before_the_first_step(tmp_path):
    other = (*SHORT, "train.batch_size=32")
    status, _, err = finished(started(command(tmp_path / "a"), command(tmp_path / "a", settings=other)))
    assert status == 2
    (told,) = sentences(err)
    assert "the ranks disagree: train.batch_size: 64 on rank 0, 32 on rank 1" in told
    assert not (tmp_path / "a" / "checkpoints").exists()


@needs_mpi
def test_a_mistake_of_all_is_told_once(tmp_path):
    status, _, err = finished(started(command(tmp_path / "a", "--mode", "nothing")))
    assert status == 2 and len(sentences(err)) == 1


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """What two ranks make of the settings of LONG."""
    folder = tmp_path_factory.mktemp("unbroken")
    status, _, err = finished(started(command(folder, settings=LONG)))
    assert status == 0, err
    return saved(folder, LAST)


@needs_mpi
@pytest.mark.parametrize("how", ["mpirun is told to stop", "a rank is killed"])
def test_a_run_that_is_ended_is_saved_leaves_no_process_and_goes_on_to_the_same_end(tmp_path, unbroken, how):
    folder = tmp_path / "ended"
    process = started(command(folder, settings=LONG))
    assert wait_for(lambda: (folder / "checkpoints" / "ckpt_000010.safetensors").exists())
    if how == "mpirun is told to stop":
        process.terminate()
    else:
        os.kill(workers(str(folder))[1], signal.SIGKILL)
    status, _, _ = finished(process)
    assert status != 0
    assert wait_for(lambda: not processes(str(folder)), 15), "a process is left behind"
    last = max((folder / "checkpoints").glob("ckpt_*.safetensors"))
    assert 10 <= int(last.stem[5:]) < LAST and (int(last.stem[5:]) > 10 or how == "a rank is killed")
    status, _, err = finished(started(command(folder, "--is_continue", settings=LONG)))
    assert status == 0, err
    assert contents(saved(folder, LAST)) == contents(unbroken)
