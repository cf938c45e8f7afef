"""Other names: of keys in the version before, which are still read; of keys, flags and modes in other programs, which
messages translate.

Sources: the options of nerfstudio's `ns-train` (https://docs.nerf.studio), of gsplat's `examples/simple_trainer.py`
(https://github.com/nerfstudio-project/gsplat), of the published code of 3D Gaussian splatting, instant-ngp and
nerf-pytorch, and common spellings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

OF_OPEN = ("prune_from", "samples", "section", "cells", "blur_step", "depth_until")
WEIGHTS = {
    "packed": ("free", "points", "curvature"),
    "inside": ("patches",),
    "open": ("patches",),
    "background": ("patches",),
    "photographs": ("exposure",),
    "gaussians": ("opacity", "size", "distortion", "normal"),
}
PATCHES = "train.patches_weight"
# Old key -> new key; "": no longer used.
RENAMED = {f"model.packed.{name}": f"model.inside.{name}" for name in ("prune_from", "hull_margin")}
RENAMED |= {f"model.background.{name}": f"model.open.{name}" for name in OF_OPEN}
RENAMED |= {f"model.{block}.{name}_weight": f"train.{name}_weight" for block in WEIGHTS for name in WEIGHTS[block]}
RENAMED |= {"model.packed.largest_inv_s": "model.inside.largest_inv_s", "model.background.bias": "model.sdf_grid.bias"}
RENAMED |= {"model.patches.weight": PATCHES, "model.patches.begins": "train.patches_from"}
RENAMED |= {"model.packed.points_until": "", "model.photographs.exposure_from": ""}
# Keys that are constants today.
CONSTANT = {
    "gaussians": (
        "absolute beyond color_rate degrees_until densify densify_every densify_from densify_until first_opacity "
        "first_size growth least_opacity least_pull mean_rate mean_rate_end noise opacity_rate reset_every rest_rate "
        "size_rate split_size turn_rate"
    ),
    "packed": "anywhere levels_until network_rate sharpness_rate shell steps_until warm_up",
    "inside": "shell",
    "open": "points_from shell threshold",
    "background": "points_from shell threshold",
    "sdf_grid": "gradient",
    "radiance": "anywhere hull_margin levels_until network_rate steps_until threshold warm_up",
}
RENAMED |= {f"model.{block}.{name}": "" for block, names in CONSTANT.items() for name in names.split()}
# Old defaults, in place of which the new keys have their own.
DEFAULTS = {"model.packed.largest_inv_s": 4.0, "model.background.prune_from": 0.3, "model.background.bias": 0.3}


def renamed(key: str) -> str:
    """The key of today for a key of the version before; the key itself otherwise."""
    return RENAMED.get(key) or key


def outdated_line(found: Mapping[str, str]) -> str:
    """A line on what `migrate` found; "" for nothing."""
    keys = ", ".join(f"{old} ({new})" for old, new in found.items())
    return keys and f"the conf has keys of the version before, read as those in parentheses: {keys}"


def migrate(tree: dict[str, Any]) -> dict[str, str]:
    """Replace the old keys in the nested dicts of a conf; returns them with those of today."""
    model = tree.get("model")
    found: dict[str, str] = {}
    if not isinstance(model, dict):
        return found
    for old, new in RENAMED.items():
        _, block, name = old.split(".")
        if not isinstance(model.get(block), dict) or name not in model[block]:
            continue
        value = model[block].pop(name)
        if old == "model.background.bias" and model.get("sdf_grid", {}).get("bias") == 0.5:
            del model["sdf_grid"]["bias"]  # its default then, which this key replaced without masks
        if old == "model.photographs.exposure_from" and value and model[block].get("exposure"):
            model[block]["exposure"] = "auto"
        if new == PATCHES and new in found.values() and value != tree["train"]["patches_weight"]:
            value = "auto"  # one weight with masks, another one without
        if new and value != DEFAULTS.get(old):
            *blocks, key = new.split(".")
            part = tree
            for each in blocks:
                part = part.setdefault(each, {})
            part[key] = value
        found[old] = new or "no longer used"
    if not model.get("background", True):
        del model["background"]
    return found


# Key -> other names for it, in the form that `plain` returns.
KEYS = {
    "train.end_iter": (
        "max_steps max_num_iterations max_iterations max_iter max_iters iterations iters iter num_iterations num_iters "
        "n_iters steps n_steps num_steps train_steps epochs n_epochs num_epochs max_epochs"
    ),
    "train.batch_size": "batch rays n_rays num_rays n_rand rays_per_batch train_num_rays_per_batch num_rays_per_batch",
    "train.learning_rate": "lr lrate learningrate base_lr init_lr",
    "train.seed": "random_seed rng_seed",
    "train.save_freq": (
        "save_every save_interval save_steps save_iterations checkpoint_iterations checkpoint_every steps_per_save "
        "i_weights"
    ),
    "train.val_freq": (
        "val_every eval_every eval_steps eval_interval test_iterations steps_per_eval_image steps_per_eval_all_images "
        "steps_per_eval_batch i_img val_interval"
    ),
    "train.val_mesh_freq": "mesh_every mesh_freq mesh_interval",
    "train.report_freq": "log_every log_freq log_interval i_print steps_per_log print_freq",
    "train.use_white_bkgd": "white_background white_bkgd white_bg",
    "train.igr_weight": "eikonal_weight eikonal_loss_mult lambda_eikonal",
    "train.mask_weight": "lambda_mask fg_mask_loss_mult",
    "train.tf32": "mixed_precision use_tf32 allow_tf32",
    "train.ema_decay": "ema ema_rate",
    "train.optimizer": "optim optimiser",
    "train.render_chunk": "chunk eval_num_rays_per_chunk chunk_size",
    "train.ray_chunk": "train_chunk micro_batch",
    "train.keep_checkpoints": "keep_last max_to_keep",
    "general.base_exp_dir": (
        "output_dir out_dir outdir output_folder result_dir results_dir save_dir log_dir logdir exp_dir expdir "
        "experiment_dir basedir base_dir model_path work_dir workspace experiment_name expname exp_name run_name"
    ),
    "dataset.data_dir": (
        "data datadir dataset source_path input_dir data_path dataset_dir dataset_path root_dir scene_dir scene "
        "train_data data_root"
    ),
    "dataset.downscale": (
        "data_factor downscale_factor camera_res_scale_factor factor downsample downsample_factor image_scale "
        "num_downscales"
    ),
    "dataset.test_every": "llffhold testskip test_hold hold_every",
    "dataset.refine_cameras": "pose_opt camera_optimizer camera_optimizer_mode optimize_cameras refine_poses",
    "dataset.type": "dataparser data_format dataset_type",
    "model.type": "method method_name network",
    "model.photographs.exposure": "app_opt appearance_embedding",
    "model.gaussians.degree": "sh_degree sh_levels",
    "model.gaussians.most": "cap_max max_gaussians max_points max_gs_num",
    "model.gaussians.first": "init_num_pts num_random init_points",
    "model.gaussians.structure_share": "ssim_lambda lambda_dssim",
    "train.opacity_weight": "opacity_reg",
    "train.size_weight": "scale_reg",
    "train.distortion_weight": "lambda_dist dist_lambda",
    "train.normal_weight": "lambda_normal normal_lambda",
}
# Flag, with its value, -> its names in other programs; mode -> its names.
FLAGS = {
    "--is_continue": "resume continue cont auto_resume load_latest",
    "--checkpoint FILE": (
        "ckpt ckpt_path load_checkpoint load_dir load_config start_checkpoint load load_snapshot snapshot ft_path "
        "weights resume_from pretrained"
    ),
    "--conf FILE": "config cfg config_file config_path conf_file yaml",
    "--overwrite": "force no_reload from_scratch",
    "--gpu N": "gpu_id gpus device_id cuda_device data_device",
    "--device cuda": "cuda use_cuda",
    "--device cpu": "cpu no_cuda",
    "--view": "viewer vis gui with_gui",
    "--port N": "viewer_port websocket_port",
    "--mode prepare --images PATH": "photos photographs pictures video image_dir images_dir image_path input imgs",
    "--frames N": "num_frames_target num_frames n_frames",
    "--minutes M": "time_budget max_minutes max_time",
    "--resolution N": "marching_cubes_res mesh_res grid_resolution num_voxels voxel_res",
    "--mcube_threshold X": "threshold isovalue iso_level density_thresh",
    "--output FILE": "out output_path output_file out_file video_path",
    "--mode evaluate": "eval eval_only test test_only render_test",
    "--mode validate_mesh": "export export_mesh save_mesh extract_mesh only_mesh",
    "--mode render": "render render_only render_video",
    "--mode render --path FILE": "render_traj_path camera_path camera_path_filename trajectory",
    "--decimate N": "target_num_faces n_faces target_faces num_faces",
    "--bbox X0 Y0 Z0 X1 Y1 Z1": "aabb bounding_box obb",
    "--gt FILE": "ground_truth gt_mesh gt_path",
    "--case NAME": "scene_name object_name subject",
    "--cases A,B,C": "scenes",
    "--language en": "lang locale",
    "--mode doctor": "check info",
}
MODES = {
    "train": "fit optimize run training",
    "evaluate": "eval test metrics benchmark",
    "validate_mesh": "mesh export export_mesh extract extract_mesh poisson tsdf marching_cubes",
    "validate_image": "image render_image",
    "render": "video spiral camera_path render_video",
    "prepare": "process_data colmap convert preprocess images process",
    "view": "viewer gui vis show",
    "doctor": "check check_env info version",
    "inspect": "inspection dataset_info",
    "compare": "comparison diff",
    "export_splats": "splats gaussian_splat export_ply",
}
FLAG_OF = {name: flag for flag, names in FLAGS.items() for name in names.split()}
MODE_OF = {name: mode for mode, names in MODES.items() for name in names.split()}
_KEY_OF = {name: key for key, names in KEYS.items() for name in names.split()}
_PARTS = 2  # keys that are identified by their last part, such as `train.end_iter`


def plain(name: str) -> str:
    """A name without its dashes at the start, in lower case, with underscores: `--Max-Steps` is `max_steps`."""
    return name.strip().lstrip("-").lower().replace("-", "_")


def other_name(name: str) -> str | None:
    """The dotted key for another program's name; None for an unknown name.

    For a dotted name (`pipeline.model.sh-degree`), the last two parts are tried first, then the last one.
    """
    parts = plain(name).split(".")
    return _KEY_OF.get("_".join(parts[-2:])) or _KEY_OF.get(parts[-1])


def key_meant(name: str, known: Iterable[str]) -> str | None:
    """The dotted key of `known` that a name refers to: by another program's name for it, or by its last part; else
    None.
    """
    keys, whole = list(known), plain(name)
    if whole in keys:
        return whole
    if (key := other_name(name)) is not None:
        return key if key in keys else None
    last = whole.rpartition(".")[2]
    same = [key for key in keys if key.rpartition(".")[2].lower() == last and key.count(".") < _PARTS]
    return same[0] if len(same) == 1 else None
