"""Device selection from driver, GPU and toolkits, on simulated machines: each works, or the message gives the fix."""

import os

import pytest
from cuda_machines import driver, facts, gpu, toolkit

from models.machine.cuda import choice as conclusions
from models.machine.cuda import detect
from models.machine.cuda.choice import conclude
from models.machine.cuda.home import visible
from models.machine.ranks import OPEN_MPI, own_gpu

ALL = conclusions.PIP_ALL
NEW, OLD = driver((13, 0), version="580.65"), driver((12, 2), version="535.104")


def plan_of(found, *toolkits, gpu=0):
    conclusion = conclude(facts(found, *toolkits), gpu)
    assert conclusion.plan is not None and conclusion.reason == "", conclusion.reason
    return conclusion.plan


def reason_of(found, *toolkits, gpu=0):
    conclusion = conclude(facts(found, *toolkits), gpu)
    assert conclusion.plan is None and "\n" not in conclusion.reason and not conclusion.reason.endswith(".")
    return conclusion.reason


# what works


def test_every_toolkit_of_12_and_13_works_with_a_driver_of_its_version():
    for release in ((12, 0), (12, 9), (13, 0), (13, 9)):
        assert plan_of(driver((release[0], 0)), toolkit(release)).toolkit.release == release


@pytest.mark.parametrize(
    ("capability", "release", "code", "is_translated"),
    [
        (75, (13, 0), 75, False),
        (75, (12, 0), 75, False),
        (120, (13, 0), 120, False),  # Jittor ends at 9.0, the toolkit does not
        (88, (12, 4), 86, False),  # code for 8.6 runs on 8.8; that for 8.7, a board with its processor, does not
        (87, (12, 4), 87, False),
        (122, (13, 0), 121, False),
        (100, (12, 4), 90, True),  # newer than the toolkit: the driver translates
        (130, (13, 0), 121, True),
    ],
)
def test_a_card_gets_its_own_code_or_the_nearest_that_runs_on_it(capability, release, code, is_translated):
    plan = plan_of(driver((13, 5), gpu(capability)), toolkit(release))
    assert (plan.codes, plan.is_translated) == ((code,), is_translated)


# what does not, and the remedy


DEAD, OLDEST = driver((13, 0), problem="it finds no GPU"), driver((11, 4), version="470.57")
V100, P40, K40 = (gpu(capability, name) for capability, name in ((70, "V100"), (61, "P40"), (35, "K40")))
TURING = ["(capability ", "from capability 7.5 (Turing, 2018) on: use --device cpu"]
T13, T12, ALONE = toolkit((13, 0)), toolkit((12, 4)), toolkit((12, 4), without=("cuda_runtime.h", "cudart"))
NO_BLAS_12 = toolkit((12, 4), without=("cublas",))
PAST = "older than CUDA 13.0 (/cuda-13.0/bin/nvcc): "
RUNTIME = "pip install nvidia-cuda-runtime-cu12 nvidia-cuda-cccl-cu12"
REFUSED = {
    "no driver": (None, [T13], ["no NVIDIA driver is installed"]),
    "driver without a card": (DEAD, [T13], ["no NVIDIA GPU", "finds no"]),
    "driver that was updated": (driver((13, 0), problem=detect.STATUSES[803]), [], ["restart the machine"]),
    "old card, too old a driver": (driver((11, 4), V100, version="470.57"), [], TURING),
    "old card, CUDA 12": (driver((12, 4), V100), [T12], ["V100", "7.0", *TURING]),
    "old card, CUDA 13": (driver((13, 0), P40), [T13], ["P40", "6.1", *TURING]),
    "very old card, no nvcc": (driver((12, 4), K40), [], ["K40", "3.5", *TURING]),
    "too old a driver": (OLDEST, [toolkit((12, 0))], ["470.57", "11.4", "580", ALL]),
    "old driver, new toolkit": (OLD, [T13], ["12.2", f"{PAST}update it to 580 or newer, or install a CUDA 12 toolkit"]),
    "toolkit 11": (NEW, [toolkit((11, 8))], ["11.8", "12.0 to 13.x", ALL]),
    "toolkit without the card": (driver(), [toolkit(codes=(100,))], ["10.0 and newer", "CUDA 12 toolkit"]),
    "new card": (driver((12, 0), gpu(120, "5090")), [T12], ["does not know it", "update the driver"]),
    "no cuBLAS 12": (OLD, [NO_BLAS_12], ["libcublas.so", "pip install nvidia-cublas-cu12"]),
    "an nvcc alone": (OLD, [ALONE], ["cuda_runtime.h and libcudart.so", RUNTIME]),
}


@pytest.mark.parametrize(("found", "toolkits", "words"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_work_says_what_is_wrong_and_what_to_do(found, toolkits, words):
    reason = reason_of(found, *toolkits)
    assert [word for word in words if word not in reason] == [], reason


def test_a_card_that_is_not_there_is_named_with_how_many_there_are():
    assert "2 GPUs" in reason_of(driver((13, 0), gpu(), gpu()), toolkit(), gpu=2)


# the driver


DRIVERS = {"print('[13000, 100, []]')": "finds no GPU", "print('[13000, 42, []]')": "status 42"}
DRIVERS |= {"import os; os.abort()": "does not respond", "print('what?')": "does not respond"}


@pytest.mark.parametrize(("program", "words"), DRIVERS.items(), ids=DRIVERS)
def test_a_driver_that_does_not_work_is_told_of(monkeypatch, program, words):
    monkeypatch.setattr(detect, "is_installed", lambda: True)
    monkeypatch.setattr(detect, "QUESTION", program)
    assert words in reason_of(detect.ask(dict(os.environ)), toolkit())


CHOSEN = [(0, "GPU-7", "GPU-7"), (0, "2,3", "2,3"), (1, "2,3", "3"), (1, "GPU-7, GPU-9", "GPU-9"), (0, "", "")]


def test_a_card_is_counted_among_those_that_the_user_has_chosen():
    for number, named, expected in (*CHOSEN, (1, "", ""), (0, "-1", "-1"), (1, "-1", "-1")):
        assert visible(number, {"CUDA_VISIBLE_DEVICES": named})["CUDA_VISIBLE_DEVICES"] == expected
    assert [visible(number, {})["CUDA_VISIBLE_DEVICES"] for number in (0, 2)] == ["0", "2"]


@pytest.mark.parametrize(("chosen", "gpu"), [(None, 2), ("4,5,6", 2), ("5", 1), ("GPU-7", 1), ("", 1)])
def test_each_rank_of_a_machine_takes_a_card_of_its_own_or_the_given_one(chosen, gpu):
    ranks = dict(zip(OPEN_MPI, "1212", strict=True))
    environment = ranks if chosen is None else ranks | {"CUDA_VISIBLE_DEVICES": chosen}
    assert own_gpu(1, environment) == gpu
    assert own_gpu(1, {name: value for name, value in environment.items() if name not in ranks}) == 1
