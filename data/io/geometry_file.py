"""Reads point clouds and meshes from untrusted files with trimesh."""

from __future__ import annotations

import io
import warnings
from typing import Any

from data.errors import DAMAGE, reason

# Exceptions of trimesh for damaged files; ImportError because text in an unknown encoding needs an optional package.
_DAMAGE = (*DAMAGE, OSError, ImportError, Warning)


class GeometryError(Exception):
    """The file cannot be used; the text is a clause that says why."""


def load_geometry(content: bytes, file_type: str, **options: Any) -> Any:
    """Load a file's content with trimesh, without warnings; `options` of `trimesh.load`.

    The file name is not passed, so that trimesh does not open referenced materials and textures. Raises GeometryError
    for a damaged or truncated file.
    """
    import trimesh  # takes half a second, and most scenes do not need it

    log = trimesh.util.log
    was_disabled, log.disabled = log.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", message="string or file could not be read to its end")
            return trimesh.load(io.BytesIO(content), file_type=file_type, process=False, **options)
    except _DAMAGE as error:
        raise GeometryError(reason(error)) from error
    finally:
        log.disabled = was_disabled
