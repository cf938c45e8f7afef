"""Several processes in one training: the same steps as one process, one folder, one log and one exit."""

import itertools
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
from models.training.sharing import Cut, share_of
from packed_samples import batch_of, on_host
from ranks import finished, needs_mpi, processes, sentences, started, wait_for, workers
from runs import ROOT, SHORT, command, contents, run, saved

from data.errors import UserError
from models.estimators.batch import PackedBatch
from models.estimators.packed import OccupancyEstimator
from models.machine.ranks import cores, ranks
from models.machine.ranks.place import Place, be_alone, place_of
from models.methods.protocol import PlainModel
from models.monitoring.logger import LOG_FOLDER

SHOWN = ("train.report_freq=2", "train.val_freq=3", "train.val_mesh_freq=6", "train.mesh_resolution=16")
CHUNKED = (*SHORT, *SHOWN, "train.ray_chunk=10")
COMMON = Cut(is_common=True)
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
    assert place_of({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}) == Place(starter="mpirun")
    in_a_shell = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_ID": "0"}
    assert place_of({}) == place_of(in_a_shell) == Place()
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


@pytest.mark.slow
def test_one_process_is_all_of_its_ranks():
    values = np.ones(3, np.float32)
    ranks.ALONE.add(values)
    assert values.tolist() == [1, 1, 1] and ranks.ALONE.everyone("x") == ["x"] and ranks.ALONE.part(7) == slice(0, 7)


@pytest.mark.slow
def test_differences_are_told_with_the_rank_that_has_them():
    of_all = [{"machine": "a", "x": 1, "y": 2}, {"machine": "b", "x": 1, "y": 2}, {"machine": "c", "x": 1, "y": 3}]
    assert ranks.differences(of_all[:2]) == []
    assert ranks.differences(of_all) == ["y: 2 on rank 0, 3 on rank 2 (c)"]
    assert ranks.differences([{"machine": "a"}, of_all[2]])[1] == "y: None on rank 0, 3 on rank 1 (c)"


def packed(lengths, free):
    """A batch of rays with so many samples, and `free` of none."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    points = np.zeros((int(offsets[-1]) + free, 3), np.float32)
    return batch_of(offsets, points, points)


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_packed_rays_are_shared_out_by_their_samples(parts):
    batch = packed([1, 1, 1, 1, 100, 1, 1, 1, 90, 3], 10)
    borders = batch.borders(parts)
    assert borders[0] == 0 and borders[-1] == 10 and np.all(np.diff(borders) > 0) and len(borders) == parts + 1
    whole, *found = (
        len(on_host(one).points) for one in (batch, *(batch.part(*borders[at : at + 2]) for at in range(parts)))
    )
    assert sum(found) == whole
    if parts == 2:
        assert max(found) <= 0.6 * whole


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One process and two ranks, six steps each in chunks, with pictures and a mesh."""
    folder = tmp_path_factory.mktemp("trained")
    assert run(folder / "one", settings=CHUNKED) == 0
    told = finished(started(command(folder / "two", settings=CHUNKED)))
    return folder, told


@pytest.mark.cli
@needs_mpi
def test_two_ranks_make_the_steps_of_one_process_bit_for_bit(trained):
    folder, (status, _, err) = trained
    assert status == 0, err
    one, two = saved(folder / "one", 6), saved(folder / "two", 6)
    assert contents(one) == contents(two)
    assert repr(one.state["sampler"]) == repr(two.state["sampler"]) and one.state["jitter"] == two.state["jitter"]


@pytest.mark.cli
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


@pytest.mark.cli
@needs_mpi
def test_a_film_of_two_ranks_is_that_of_one_process_and_written_once(trained, tmp_path):
    folder, _ = trained
    asked = ("--mode", "render", "--seconds", "0.2", "--fps", "10", "--show", "colour,mesh", "--resolution", "16")
    assert run(folder / "one", *asked, "--output", str(tmp_path / "one"), settings=CHUNKED) == 0
    status, out, err = finished(
        started(command(folder / "one", *asked, "--output", str(tmp_path / "two"), settings=CHUNKED))
    )
    assert status == 0 and out.count("2 frames") == 1, err
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert one == two and len([name for name in one if name.endswith(".png")]) == 2


@pytest.mark.cli
@needs_mpi
def test_a_run_of_two_goes_on_as_one(trained):
    folder, _ = trained
    for path in (folder / "two" / "checkpoints").glob("ckpt_000006*"):
        path.rename(folder / path.name)
    assert run(folder / "two", "--is_continue", settings=CHUNKED) == 0
    assert contents(saved(folder / "one", 6)) == contents(saved(folder / "two", 6))


@pytest.fixture(scope="module")
def by_default(tmp_path_factory):
    """The results of 1, 2 and 3 ranks for a conf without chunk size; 0: one process without mpirun."""
    folder = tmp_path_factory.mktemp("default")
    assert run(folder / "0") == 0
    for count in (1, 2, 3):
        status, _, err = finished(started(command(folder / str(count)), ranks=count))
        assert status == 0, err
    return [saved(folder / str(count), 6) for count in range(4)]


@pytest.mark.cli
@needs_mpi
def test_one_two_and_three_ranks_are_equal_bit_for_bit_by_default(by_default):
    _, one, two, three = by_default
    assert contents(one) == contents(two) == contents(three)


@pytest.mark.cli
@needs_mpi
def test_ranks_differ_from_one_process_without_mpirun_by_roundings(by_default):
    plain, *_, three = by_default
    for name, network in plain.tensors.items():
        for key, values in network.items():
            np.testing.assert_allclose(three.tensors[name][key], values, atol=1e-6, err_msg=key)


@pytest.mark.cli
@needs_mpi
@pytest.mark.parametrize("densify", ["adaptive", "mcmc"])
def test_splats_of_two_ranks_are_those_of_one_process(tmp_path, densify):
    conf = ("--conf", str(ROOT / "confs/gaussians.conf"))
    settings = (
        *SHORT,
        "model.gaussians.first=300",
        f"model.gaussians.densify={densify}",
        "model.gaussians.least_pull=1e-6",
    )
    settings += ("model.gaussians.densify_every=2", "dataset.downscale=2")
    assert run(tmp_path / "one", *conf, settings=settings) == 0
    status, _, err = finished(started(command(tmp_path / "two", *conf, settings=settings)))
    assert status == 0, err
    one, two = saved(tmp_path / "one", 6), saved(tmp_path / "two", 6)
    assert contents(one) == contents(two) and len(one.tensors["splats"]["means"]) != 300


def shares(batch, cut, size):
    """Of each rank."""
    found = []
    for rank in range(size):
        one = ranks.Ranks()
        one.place = Place(rank, size)
        model = OccupancyEstimator if isinstance(batch, PackedBatch) else PlainModel
        found.append(share_of(model.__new__(model), batch, None, one, cut))
    return found


def pieces(batch, cut, size):
    """Of all ranks, as they would stand in the batch: what is in each."""
    return [
        share.batch.rgb[start:stop].tobytes()
        for share in shares(batch, cut, size)
        for start, stop in itertools.pairwise(share.borders)
    ]


def rows(count):
    """A batch of rays that are told from each other."""
    return replace(packed([1] * count, 0), rgb=np.arange(3.0 * count, dtype=np.float32).reshape(-1, 3))


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    "lengths",
    [[1] * 512, list(range(1, 300)), [50] * 100 + [1] * 400, [1] * 3],
    ids=["even", "rising", "falling", "few"],
)
def test_the_pieces_are_the_same_whatever_the_number_of_ranks(size, lengths):
    batch = replace(packed(lengths, 10), rgb=rows(len(lengths)).rgb)
    one = pieces(batch, COMMON, 1)
    assert len(one) == min(4, len(lengths)) and pieces(batch, COMMON, size) == one
    assert b"".join(one) == batch.rgb.tobytes()
    assert [len(share.batch) for share in shares(batch, COMMON, size)] == np.diff(batch.borders(size)).tolist()


@pytest.mark.slow
@pytest.mark.parametrize(("count", "piece", "size"), [(64, 10, 2), (64, 10, 3), (64, 10, 7), (512, 64, 3), (65, 64, 2)])
def test_ranks_take_whole_chunks_of_the_conf_and_at_least_one_each(count, piece, size):
    batch = rows(count)
    assert pieces(batch, Cut(piece), size) == pieces(batch, Cut(piece), 1)
    assert all(len(share.borders) > 1 for share in shares(batch, Cut(piece), size))


@pytest.mark.slow
def test_shares_stay_as_they_are_where_there_are_too_few_pieces():
    batch = rows(64)
    assert [len(shares(batch, cut, 3)[2].batch) for cut in (Cut(), Cut(32), Cut(16))] == [21, 21, 16]
    assert [shares(batch, cut, 3)[2].borders for cut in (Cut(), Cut(32), Cut(16))] == [None, None, [0, 16]]
    assert shares(rows(2), COMMON, 2)[0].borders is None and shares(batch, COMMON, 4)[0].borders is None


@pytest.mark.cli
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


@pytest.mark.cli
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
