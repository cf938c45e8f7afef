"""Point clouds and meshes from untrusted files: the one door to trimesh's loaders."""

from __future__ import annotations

import io
import warnings
from typing import Any

from data.errors import DAMAGE, reason

# What trimesh raises on damaged files; ImportError: text in an unknown encoding makes it ask for a package.
_DAMAGE = (*DAMAGE, OSError, ImportError, Warning)


class GeometryError(Exception):
    """The file cannot be used; the text says why, as part of a sentence."""


def load_geometry(content: bytes, file_type: str, **options: Any) -> Any:
    """What trimesh makes of a file's content, its warnings held back; `options` are those of `trimesh.load`.

    Without the file's name: trimesh would follow its references to materials and textures. Raises GeometryError for a
    file that is damaged or cut short.
    """
    import trimesh  # half a second, which scenes without such a file do not pay

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
