"""Confs for the tests: a whole one as text, and the demo conf with values replaced."""

import dataclasses
from functools import cache
from pathlib import Path

from models.conf import ExperimentConfig, load_config

CONFS = Path(__file__).resolve().parents[1] / "confs"
RECIPES = ("wmask", "womask", "thin_structure", "womask_dtu_large_roi")

# A whole conf in one file, in the spelling of the published ones, with none of the optional keys.
WHOLE = """
general { base_exp_dir = ./exp/x }
dataset { data_dir = ./public_data/x/
          render_cameras_name = cameras_sphere.npz, object_cameras_name = cameras_sphere.npz }
train { learning_rate = 5e-4, learning_rate_alpha = 0.05, end_iter = 1000, batch_size = 512
        validate_resolution_level = 4, use_white_bkgd = False
        save_freq = 10000, val_freq = 2500, val_mesh_freq = 5000, report_freq = 100
        igr_weight = 0.1, mask_weight = 0.1 }
model {
    nerf { }
    sdf_network { d_out = 257, d_in = 3, d_hidden = 256, n_layers = 8 }
    variance_network { init_val = 0.3 }
    rendering_network { d_feature = 256, mode = idr, d_in = 9, d_out = 3, d_hidden = 256, n_layers = 4 }
    neus_renderer { n_samples = 64, n_importance = 64, n_outside = 0, up_sample_steps = 4, perturb = 1.0 }
}
"""


def flat(conf: object, prefix: str = "") -> dict:
    values = {}
    for field in dataclasses.fields(conf):
        value = getattr(conf, field.name)
        key = prefix + field.name
        if dataclasses.is_dataclass(value):
            values |= flat(value, key + ".")
        elif isinstance(value, dict):  # further blocks, which stand beside the fields
            for name, block in value.items():
                values |= flat(block, f"{prefix}{name}.")
        else:
            values[key] = value
    return values


@cache
def demo() -> ExperimentConfig:
    """The demo conf as it is, read once."""
    return load_config(CONFS / "debug.conf")


def changed(**blocks: dict) -> ExperimentConfig:
    """The demo conf with fields replaced: changed(train={"seed": 3}), changed(sdf_network={...})."""
    conf = demo()
    for block, values in blocks.items():
        if hasattr(conf, block):
            conf = dataclasses.replace(conf, **{block: dataclasses.replace(getattr(conf, block), **values)})
        else:
            part = dataclasses.replace(getattr(conf.model, block), **values)
            conf = dataclasses.replace(conf, model=dataclasses.replace(conf.model, **{block: part}))
    return conf


def write_conf(folder: Path, text: str, name: str = "x.conf") -> Path:
    """A conf file in a folder that is made where it is missing; returns its path."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
