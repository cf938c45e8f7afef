"""Broken scenes of every format through the command line: one sentence, exit status 2, nothing written."""

from dataclasses import replace

import numpy as np
import pytest
from broken_scenes import BROKEN, CAMERAS, READERS, WRITERS
from runs import ROOT
from scene_writers import make_views, write_blender, write_ngp
from synthetic_scene import write_scene

import exp_runner


def listing(folder):
    return sorted((str(path.relative_to(folder)), path.is_dir() or path.stat().st_size) for path in folder.rglob("*"))


def train(folder, *settings):
    """Start a training on the scene; all these end before Jittor is loaded."""
    paths = (f"dataset.data_dir={folder}", f"general.base_exp_dir={folder.parent / 'exp'}", "dataset.test_dir=")
    flags = [flag for setting in (*paths, *settings) for flag in ("--set", setting)]
    return exp_runner.main(["--conf", str(ROOT / "confs/debug.conf"), *flags])


def assert_refused(folder, words, capfd, *settings):
    before = listing(folder.parent)
    assert train(folder, *settings) == 2
    out, err = capfd.readouterr()
    assert out == "" and err.startswith("error: ") and err.endswith("\n") and err[:-1].isprintable()
    assert [word for word in words if word not in err] == [], err
    assert listing(folder.parent) == before


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_scene_stops_the_command_line(name, tmp_path, capfd):
    kind, break_it, words = BROKEN[name]
    WRITERS[kind](tmp_path / "teapot")
    READERS[kind](tmp_path / "teapot", None)  # it is whole before
    break_it(tmp_path / "teapot" / CAMERAS[kind])
    assert_refused(tmp_path / "teapot", ["teapot", *words], capfd, f"dataset.type={kind}", "train.mask_weight=0")
    assert train(tmp_path / "teapot", "train.mask_weight=0") == 2  # recognised, where it still can be
    assert capfd.readouterr().err.count("\n") == 1


def outwards(folder):
    """Cameras of a good scene, each turned round."""
    written = write_scene(folder, n_views=6)
    turned = written.c2w @ np.diag([-1.0, 1, -1, 1])
    camera = np.zeros((6, 3, 4))
    camera[:] = written.intrinsics @ np.linalg.inv(turned)[:, :3]
    worlds = camera @ np.linalg.inv(written.scale_mat)
    named = {f"world_mat_{i}": world for i, world in enumerate(worlds)}
    np.savez(folder / "cameras_sphere.npz", **named, **{f"scale_mat_{i}": written.scale_mat for i in range(6)})


def round_table(folder):
    """A ring of cameras that look outwards: no two pictures have anything in common."""
    views = make_views(distorted=False, alike=True)
    write_blender(folder, [replace(view, right=-view.right, forward=-view.forward) for view in views])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "settings", "words"),
    [
        (outwards, (), ["cameras_sphere.npz", "6 of 6 cameras look away", "--roi"]),
        (round_table, (), ["transforms_train.json", "look away"]),
        (lambda folder: write_ngp(folder, make_views()), ("dataset.roi=90 90 90 1",), ["look away", "--roi"]),
        (lambda folder: write_ngp(folder, make_views()), ("dataset.roi=0 0 0",), ['--roi "0 0 0"', "four numbers"]),
        (lambda folder: write_ngp(folder, make_views()), ("dataset.roi=0 0 0 -1",), ["radius > 0"]),
        (lambda folder: write_ngp(folder, make_views()), ("dataset.roi=0 0 0 1e3",), ["inside the unit sphere"]),
        (lambda folder: write_ngp(folder, make_views()), ("dataset.type=obj",), ["dataset.type = 'obj'", "one of"]),
        (lambda folder: write_ngp(folder, make_views()), ("dataset.type=llff",), ["has no poses_bounds.npy"]),
        (lambda folder: write_ngp(folder, make_views()), ("dataset.test_every=1",), ["no photograph is left"]),
        (lambda folder: write_ngp(folder, make_views()), ("dataset.test_views=[9]",), ["there is no photograph 9"]),
        (lambda folder: write_ngp(folder, make_views()), ("dataset.downscale=0",), ["dataset.downscale = 0"]),
        (lambda folder: write_ngp(folder, make_views()), ("train.mask_weight=0.1",), ["has no masks"]),
    ],
)
def test_what_cannot_be_trained_on_stops_the_command_line(write, settings, words, tmp_path, capfd):
    write(tmp_path / "teapot")
    assert_refused(tmp_path / "teapot", words, capfd, "train.mask_weight=0", *settings)
