"""The stages of benchmarks/gpu.sh, in the order in which they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ALWAYS, FIRST, REST = "always", "first", "rest"
# Tests of the operations in their native form and against the reference; none simulates another machine.
TESTS = (
    *("cuda_forms", "splats", "grid", "march", "packed", "hits", "patches", "nerf", "fields", "native_sampling"),
    *("splat_wander", "guard_update", "optimizer", "volrend", "sampling", "renderer", "finite"),
)
# One per model type: a repeated run, and a resumed one.
RESUMES = ("training_runs", "nerf_runs", "fast_neus", "gaussians")
GOLDEN = ("tests/parity.py", "tests/golden/wmask_small.npz", "tests/golden/womask_small.npz")
IMPORTANCE, FAST, FLAT = (0, 16, 32, 64, 128, 256), (2**13, 2**16, 2**18), 2000
REHEARSED_IMPORTANCE, REHEARSED_FAST, REHEARSED_FLAT = (0, 8), (512, 1024), 8
REDUCED = (
    *("train.end_iter=8", "train.batch_size=64", "train.mesh_resolution=32", "train.val_freq=8"),
    *("train.val_mesh_freq=0", "train.save_freq=8", "train.validate_resolution_level=8"),
)
PATIENCE = 10  # factor of the limits without a GPU


@dataclass(frozen=True)
class Stage:
    """A command with a limit in seconds."""

    name: str
    limit: int
    command: tuple[str, ...]
    call: str = FIRST  # runs in every call, in the first, or in the second
    beside: bool = False  # starts together with the stage before it


@dataclass(frozen=True)
class Place:
    """What the commands depend on."""

    device: str  # "cuda", or "cpu" to test the stages
    python: str
    work: Path
    peer: str  # a checkout of the published code, or ""

    @property
    def is_rehearsal(self) -> bool:
        """Whether all sizes are reduced."""
        return self.device == "cpu"


def place_of(environment: Mapping[str, str]) -> Place:
    """The place that benchmarks/gpu.sh exported."""
    return Place(environment["DEVICE"], environment["PYTHON"], Path(environment["WORK"]), environment.get("PEER", ""))


def stages(place: Place) -> list[Stage]:
    """All stages on a device; the cache of a machine without a GPU is not kept."""
    limit = PATIENCE if place.is_rehearsal else 1
    listed = [*_preparation(), *_first(place), *_rest(place)]
    return [Stage(**(vars(stage) | {"limit": limit * stage.limit})) for stage in listed]


def _preparation() -> list[Stage]:
    script = ("bash", "benchmarks/gpu.sh")
    return [
        Stage("facts", 30, (*script, "facts"), ALWAYS),
        Stage("unpack", 60, (*script, "unpack"), ALWAYS, beside=True),
        Stage("packages", 60, (*script, "packages"), ALWAYS),
    ]


def _first(place: Place) -> list[Stage]:
    fast = _numbers(REHEARSED_FAST if place.is_rehearsal else FAST)
    kernels = (place.python, "-m", "benchmarks.gpu_kernels", place.device, str(place.work))
    found = [
        Stage("compile", 260, _steps(place, "compile", "--once", "--fast", *fast)),
        Stage("parity", 260, _on_device(place, *GOLDEN), beside=True),
        Stage("splats", 260, _tests(place, ("splats",)), beside=True),
        Stage("build", 260, (*kernels, "--build"), beside=True),
        Stage("kernels", 60, kernels),
        Stage("steps", 90, _steps(place, "steps")),
        *([Stage("peer", 60, _steps(place, "peer", "--peer", place.peer))] if place.peer else []),
        Stage("trace", 30, _steps(place, "trace", "--trace")),
        Stage("trace_tf32", 30, _steps(place, "trace_tf32", "--trace", "--tf32")),
        Stage("fast", 60, _steps(place, "fast", "--fast", *fast)),
        *_trained(place, "bunny", "fast", 50, 40, FIRST, _reference(place)),
        # Of two steps of the released size with everything compiled. One pass, so that no memory is restored.
        Stage("ncu", 80, ("ncu", *_ncu(place), *_steps(place, "ncu", "--profiled"))),
    ]
    if not place.is_rehearsal:
        found.append(Stage("cache", 40, ("bash", "benchmarks/gpu.sh", "cache")))
    return found


def _rest(place: Place) -> list[Stage]:
    importance = _numbers(REHEARSED_IMPORTANCE if place.is_rehearsal else IMPORTANCE)
    flat = str(REHEARSED_FLAT if place.is_rehearsal else FLAT)
    return [
        *_trained(place, "bunny_full", "fast", 200, 60, REST, _reference(place)),
        *_trained(place, "lego", "fast_nerf", 300, 60, REST, (f"dataset.data_dir={_scene(place, 'lego')}",)),
        *_trained(place, "gaussians", "gaussians", 240, 60, REST, (f"dataset.data_dir={_scene(place, 'lego')}",)),
        Stage("doctor", 600, _program(place, "--mode", "doctor"), REST),
        Stage("tests", 600, _tests(place, ("march",) if place.is_rehearsal else TESTS), REST, beside=True),
        Stage("resume", 600, _tests(place, RESUMES, "-k", "bit_for_bit or equal_six"), REST, beside=True),
        *_trained(place, "demo", "demo", 200, 60, REST),
        Stage("parity_tf32", 300, _on_device(place, "--tf32", *GOLDEN), REST),
        *_trained(place, "demo_tf32", "demo", 200, 60, REST, ("train.tf32=true",)),
        Stage("sweep", 300, _steps(place, "sweep", "--importance", *importance), REST),
        Stage("flat", 300, _steps(place, "flat", "--flat", flat), REST),
    ]


def _trained(
    place: Place, name: str, conf: str, limit: int, evaluation: int, call: str, settings: tuple[str, ...] = ()
) -> list[Stage]:
    """A training of at most `limit` seconds, the start included, and the evaluation of what it reached."""
    chosen = (f"general.base_exp_dir={runs(place.work) / name}", *settings, *(REDUCED if place.is_rehearsal else ()))
    given = ("--conf", f"confs/{conf}.conf", *(word for setting in chosen for word in ("--set", setting)))
    resolution = "32" if place.is_rehearsal else "256"
    train = _program(place, "--mode", "train", "--overwrite", *given)
    evaluate = _program(place, "--mode", "evaluate", "--resolution", resolution, *given)
    return [Stage(f"{name}_train", limit, train, call), Stage(name, evaluation, evaluate, call)]


def runs(work: Path) -> Path:
    """The folder of the trainings, by the names of their stages."""
    return work / "runs"


def _scene(place: Place, name: str) -> Path:
    return place.work / "site" / "scenes" / name


def _reference(place: Place) -> tuple[str, ...]:
    """Settings of the bunny, its ground truth included."""
    bunny = _scene(place, "bunny")
    return f"dataset.data_dir={bunny}", "dataset.test_every=8", f"dataset.reference_mesh={bunny / 'gt_unit.ply'}"


def _program(place: Place, *arguments: str) -> tuple[str, ...]:
    return place.python, "exp_runner.py", "--device", place.device, *arguments


def _steps(place: Place, name: str, *arguments: str) -> tuple[str, ...]:
    rehearse = ("--rehearse",) if place.is_rehearsal else ()
    out = str(place.work / f"{name}.json")
    return place.python, "-m", "benchmarks.gpu_steps", out, "--device", place.device, *rehearse, *arguments


def _on_device(place: Place, *arguments: str) -> tuple[str, ...]:
    return place.python, "-m", "benchmarks.on_device", place.device, *arguments


def _tests(place: Place, names: tuple[str, ...], *arguments: str) -> tuple[str, ...]:
    """pytest with what the libraries print: the report of a crash would be lost with what pytest has captured."""
    files = (f"tests/test_{name}.py" for name in names)
    return _on_device(place, "pytest", "-vv", "-s", "--tb=short", *files, *arguments)


def _ncu(place: Place) -> tuple[str, ...]:
    return (
        *("--profile-from-start", "off", "--clock-control", "none", "--cache-control", "none", "--csv"),
        *("--metrics", "gpu__time_duration.sum", "--print-units", "base", "--log-file", str(place.work / "ncu.csv")),
    )


def _numbers(values: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(str(value) for value in values)
