"""Several processes in one training: the steps of one process, one folder, one log and one exit."""

import os
import signal

import numpy as np
import pytest
from runs import (
    ROOT,
    SHORT,
    command,
    contents,
    finished,
    needs_mpi,
    process_of_rank,
    processes,
    run,
    saved,
    sentences,
    started,
    wait_for,
)
from trainings import assert_same_gradients, gradients, stopped_after, trainer_of

from data.errors import UserError
from models.conf import load_config
from models.machine.ranks import ALONE, Place, Ranks, cores_of_rank, forget_ranks, place_of
from models.training.gradient import GradientSum

SHOWN = (*SHORT[:3], "train.report_freq=2", "train.val_freq=3", "train.val_mesh_freq=6", "train.mesh_resolution=16")
# Steps that do not depend on how many there are: a run that a signal ends has no last one that could come first.
LONG = ("train.learning_rate_alpha=1", "train.save_freq=10", "train.val_freq=0", "train.val_mesh_freq=0")


def test_what_mpirun_srun_and_nothing_say():
    open_mpi = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}
    slurm = {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1"}
    slurm |= {"SLURM_STEP_TASKS_PER_NODE": "4(x2)"}
    assert place_of(open_mpi | {"OMPI_COMM_WORLD_LOCAL_RANK": "1"}) == Place(3, 4, 1, 4, "mpirun")
    assert place_of(slurm) == Place()  # the script of a job, which srun has not started
    assert place_of(slurm | {"SLURM_STEP_ID": "0"}) == Place(5, 8, 1, 4, "srun")
    assert place_of({"PMI_RANK": "1", "PMI_SIZE": "2"}) == Place(1, 2, 1, 2, "mpiexec")
    in_a_shell = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_ID": "0"}
    alone = dict(open_mpi)
    forget_ranks(alone)
    assert place_of({}) == place_of(in_a_shell) == place_of(alone) == Place()
    with pytest.raises(UserError, match="OMPI_COMM_WORLD_RANK"):
        place_of(open_mpi | {"OMPI_COMM_WORLD_RANK": "4"})


def test_cores_are_shared_out_without_rest():
    shares = [cores_of_rank(list(range(10)), Place(rank, 3, rank, 3)) for rank in range(3)]
    assert sorted(sum(shares, [])) == list(range(10)) and min(map(len, shares)) == 3
    assert [cores_of_rank([4, 5], Place(rank, 3, rank, 3)) for rank in range(3)] == [[4], [5], [4]]


class Told(Ranks):
    """One of three ranks, which is told the counts of the whole batch, and keeps what it would add to the others'."""

    def __init__(self, rank):
        self.place, self.counts, self.sums = Place(rank, 3), None, []

    def sum(self, values):
        self.sums.append(values.copy())
        values[:] = self.counts if len(self.sums) == 1 and self.counts is not None else values


@pytest.mark.slow
@pytest.mark.parametrize("conf", ["debug.conf", "demo.conf"])
def test_the_gradients_of_parts_add_up_to_that_of_the_batch(conf):
    overrides = (f"dataset.data_dir={ROOT}/data/demo", "train.batch_size=500")
    trainer = trainer_of(load_config(ROOT / "confs" / conf, overrides=overrides), steps=2)
    batch = trainer.sampler.next()
    noise = trainer.model.draw_noise(len(batch), trainer.generator)

    def of(group):
        total = GradientSum(
            trainer.model, *group.share(batch, noise), trainer.finished_steps, trainer.optimizer.parameters
        )
        for part in total.prepare_chunks(100):
            total.add(part)
        return total.result()

    counts = sum(one.sums[0] for one in (Told(rank) for rank in range(3)) if of(one))
    parts = [Told(rank) for rank in range(3)]
    for one in parts:
        one.counts = counts
        of(one)
    ends = np.cumsum([value.numel() for value in trainer.optimizer.parameters])
    flat = np.split(sum(one.sums[1].astype(np.float64) for one in parts), ends)
    losses, whole = gradients(trainer, batch, len(batch), noise)
    shaped = {name: part.reshape(value.shape) for (name, value), part in zip(whole.items(), flat, strict=False)}
    assert_same_gradients((dict(zip(of(ALONE).losses, flat[-1], strict=True)), shaped), (losses, whole), slope=2e-4)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The results of 1, 2 and 3 ranks, with pictures and a mesh, and what two of them printed; 0: without mpirun."""
    folder = tmp_path_factory.mktemp("trained")
    assert run(folder / "0", settings=SHOWN) == 0
    told = [finished(started(command(folder / str(count), settings=SHOWN), ranks=count)) for count in (1, 2, 3)]
    assert [status for status, *_ in told] == [0, 0, 0], told
    return folder, told[1]


@pytest.mark.cli
@needs_mpi
def test_ranks_agree_within_rounding_and_one_is_a_process(trained):
    plain, one, *others = (saved(trained[0] / str(count), 6) for count in range(4))
    assert contents(plain) == contents(one)
    for other in others:
        assert other.state["sampler"] == plain.state["sampler"] and other.state["jitter"] == plain.state["jitter"]
        for name, network in plain.tensors.items():
            for key, values in network.items():
                np.testing.assert_allclose(other.tensors[name][key], values, atol=1e-6, err_msg=key)


@pytest.mark.cli
@needs_mpi
def test_rank_0_alone_speaks_and_writes_what_one_process_does(trained):
    folder, (_, out, _) = trained
    assert out.count("trained to step 6") == 1 and out.count("device ") == 1
    alone, two = ([path.relative_to(folder / one) for path in (folder / one).rglob("*")] for one in ("0", "2"))
    assert len(alone) == len(two) and len(set(alone) ^ set(two)) == 2, "only the file of TensorBoard has another name"


@pytest.mark.cli
@needs_mpi
def test_a_resumed_run_of_two_is_the_unbroken_one_bit_for_bit(trained, tmp_path):
    folder = stopped_after(3, trained[0] / "2", tmp_path / "resumed")
    status, _, err = finished(started(command(folder, "--is_continue", settings=SHOWN)))
    assert status == 0, err
    assert contents(saved(folder, 6)) == contents(saved(trained[0] / "2", 6))


@pytest.mark.cli
@needs_mpi
def test_a_mistake_ends_all_ranks_with_one_sentence(tmp_path):
    for flags, words in (
        (((), ("--seed", "3")), "the ranks differ: command line: "),
        ((("--conf", "confs/gaussians.conf"),) * 2, "model.type = gaussians: cannot be shared by 2 ranks; "),
        (((), ("--conf", "none.conf")), "none.conf: no such conf file"),
    ):
        status, _, err = finished(started(*(command(tmp_path / "a", *one) for one in flags)))
        (told,) = sentences(err)
        assert status == 2 and words in told and ("rank 1 (" in told) == ("none.conf" in words)
        assert not (tmp_path / "a" / "checkpoints").exists()


def trained_to(step, folder):
    """The checkpoint of this step, to which two ranks train in a folder, from the newest one there."""
    if not (folder / "checkpoints" / f"ckpt_{step:06d}.safetensors").exists():
        settings = (f"train.end_iter={step}", *LONG)
        status, _, err = finished(started(command(folder, "--is_continue", settings=settings)))
        assert status == 0, err
    return saved(folder, step)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """A folder in which two ranks have trained further than a signal takes to arrive, on most machines."""
    folder = tmp_path_factory.mktemp("unbroken")
    trained_to(100, folder)
    return folder


@pytest.mark.cli
@needs_mpi
@pytest.mark.parametrize("how", ["rank 0 is told to stop", "mpirun is told to stop", "a rank is killed"])
def test_an_ended_run_is_saved_and_goes_on_to_the_same_end(tmp_path, unbroken, how):
    folder = tmp_path / "ended"
    process = started(command(folder, settings=("train.end_iter=1000000", *LONG)))
    assert wait_for(lambda: (folder / "checkpoints" / "ckpt_000010.safetensors").exists())  # after compiling
    if how == "mpirun is told to stop":
        process.terminate()
    elif how == "rank 0 is told to stop":
        os.kill(process_of_rank(str(folder), 0), signal.SIGTERM)
    else:
        os.kill(process_of_rank(str(folder), 1), signal.SIGKILL)
    status, _, err = finished(process)
    assert status != 0
    assert wait_for(lambda: not processes(str(folder))), "a process is left behind"
    last = int(max((folder / "checkpoints").glob("ckpt_*.safetensors")).stem[5:])
    assert last >= 10
    if how == "rank 0 is told to stop":
        assert f"stopped by SIGTERM after step {last}" in err
    end = last - last % 10 + 10
    assert contents(trained_to(end, folder)) == contents(trained_to(end, unbroken))
