"""NeuS in Jittor: the command `neus` (__main__.py), and the functions of the interface as `neus.train` and so on.

In an installation, the files of this folder are in `neus/`, next to the packages `data` and `models`. A process that
uses the functions cannot import other packages with these two names.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

FUNCTIONS = (
    *("read_conf", "prepare", "load_scene", "inspect", "train", "open_model", "render", "render_video"),
    *("extract_mesh", "color_mesh", "evaluate", "reconstruct", "telling"),
)
VALUES = ("Callback", "MeshRequest", "VideoRequest", "EvaluationRequest", "Reconstruction")
__all__ = [*FUNCTIONS, *VALUES]


def __getattr__(name: str) -> Any:
    """A name of the interface, imported at its first use; raises AttributeError for any other."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    search_path = sys.path[:]
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    try:
        for package in ("data", "models"):
            importlib.import_module(package)
    finally:
        sys.path[:] = search_path
    return getattr(importlib.import_module("models.commands.interface"), name)
