"""The files of an experiment folder that its page links to."""

from __future__ import annotations

from pathlib import Path

# Key of the text in words.json, pattern below the experiment folder, and how many of its names, each in all formats:
# names begin with the step, so the last ones are the newest.
LINKED = (
    ("file_mesh", "report/mesh.ply", 1),
    ("file_mesh", "meshes/*.*", 1),
    ("file_image", "report/report.png", 1),
    ("file_image", "validations_fine/*.png", 1),
    ("file_video", "render/*.mp4", 3),
    ("file_metrics", "report/metrics.json", 1),
    ("file_metrics", "report/metrics.csv", 1),
    ("file_checkpoint", "checkpoints/ckpt_*.safetensors", 1),
    ("file_conf", "recording/config.conf", 1),
    ("file_log", "logs/*.log", 1),
)


def linked_files(folder: Path) -> list[list[str]]:
    """The present files as [key of the text, path from `folder`]; none of a folder that cannot be read."""
    found = []
    for what, pattern, most in LINKED:
        try:
            files = sorted(path for path in folder.glob(pattern) if path.is_file())
        except OSError:
            continue
        newest = sorted({path.stem for path in files})[-most:]
        found += [[what, path.relative_to(folder).as_posix()] for path in files if path.stem in newest]
    return found
