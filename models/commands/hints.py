"""Suggestions for unknown arguments: the flag, mode or key of this program with the same meaning.

Other spellings of a flag are accepted, not only explained: `--is-continue`, `--color`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from models.config.keys import plain
from models.config.strict import nearest

# Flag or key -> its names in other programs, in the form of `plain`.
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
_FLAG_OF = {name: flag for flag, names in FLAGS.items() for name in names.split()}
_MODE_OF = {name: mode for mode, names in MODES.items() for name in names.split()}


def respelt(argv: Sequence[str], flags: Iterable[str]) -> list[str]:
    """The arguments with the spelling of this program; flags may be given with - for _ and as `color`."""
    known = {_alike(flag): flag for flag in flags}
    words = []
    for word in argv:
        name, equals, value = word.partition("=")
        words.append(f"{known.get(_alike(name), name)}{equals}{value}" if name.startswith("--") else word)
    return words


def _alike(name: str) -> str:
    return name.replace("-", "_").replace("color", "colour")


def mode_hint(text: str, modes: Collection[str]) -> str:
    """The suggestion for an unknown mode: by its meaning, else by its spelling."""
    meant = _MODE_OF.get(plain(text))
    return f"; did you mean {meant}?" if meant else nearest(text, modes)


def argument_hint(unknown: Sequence[str], flags: Collection[str], modes: Collection[str]) -> str:
    """The suggestion for the first unknown argument: by its meaning, else the most similar flag.

    A value that follows it, or is part of it, is repeated in the suggested command.
    """
    name, equals, value = unknown[0].partition("=")
    if equals and "." in name and not name.startswith("-"):
        return f"; each key needs its own --set: --set {unknown[0]}"
    if not name.startswith("-"):
        mode = name if name in modes else _MODE_OF.get(plain(name))
        return f"; did you mean --mode {mode}?" if mode else nearest(name, flags)
    if not equals and len(unknown) > 1 and not unknown[1].startswith("-"):
        value = unknown[1]
    if meant := _FLAG_OF.get(plain(name).rpartition(".")[2]):
        return f"; did you mean {meant}?"
    from models.config.keys import key_meant
    from models.methods.conf import known_leaves

    if (key := key_meant(name, known_leaves())) is not None:
        return f"; did you mean --set {key}={value or 'VALUE'}?"
    return nearest(name, flags)
