"""A mended copy of Jittor's sources, on which the program runs with every supported Python and NumPy.

Jittor compiles itself from the folder that it is imported from: the copy is in the folder of Jittor's caches, shared by
all virtual environments, and the installed package stays as it is. In the copy a few texts are replaced (`changes`),
and what is never used is left out.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.metadata
import os
import shutil
import sys
import tempfile
from pathlib import Path

from data.errors import UserError
from data.io.lock import waited_for
from models.machine.jittor_changes import CHANGES, UNUSED, Change

PACKAGES = ("jittor", "jittor_utils")
PREFIX, SCRATCH = "source-", "making-source-"
REQUIREMENT = "jittor>=1.3.11,<1.3.12"
INSTALL = "pip install -r requirements.txt"
INSTALL_ALONE = f'pip install --no-deps "{REQUIREMENT}"'  # where its own requirement of NumPy 1 cannot be met
REINSTALL = 'pip install --force-reinstall --no-deps "jittor==1.3.11.0"'
FIRST_OF_NUMPY_2 = (3, 13)  # the first Python for which there is no NumPy 1


def use(caches: Path) -> Path:
    """Make `import jittor` find the mended copy below `caches`, made if needed; returns its folder.

    Raises UserError if Jittor is not installed, is another version, or was imported before.
    """
    folder = mended(caches)
    for name in PACKAGES:
        module = sys.modules.get(name)
        if module is not None and not (module.__file__ or "").startswith(str(folder)):
            raise UserError(
                f"{name} was imported before this program, which uses a mended copy of it: import neus (or "
                "models.machine.backend.jt) first, then jittor"
            )
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return folder


def mended(caches: Path) -> Path:
    """The folder below `caches` with the mended copy, made if needed. Of several processes one makes it."""
    root, version = installed(), importlib.metadata.version("jittor")
    key = hashlib.sha256(repr((CHANGES, UNUSED)).encode()).hexdigest()[:12]
    folder = caches / f"{PREFIX}{version}-{key}"
    if not folder.is_dir():
        caches.mkdir(parents=True, exist_ok=True)
        with waited_for(caches):
            if not folder.is_dir():
                _make(root, folder, version)
    return folder


def installed() -> Path:
    """The folder that contains Jittor's installed packages, without importing them; raises UserError if none does."""
    paths = [path for path in sys.path if not Path(path).name.startswith(PREFIX)]
    found = [importlib.machinery.PathFinder.find_spec(name, paths) for name in PACKAGES]
    origins = [Path(spec.origin) for spec in found if spec is not None and spec.origin is not None]
    if len(origins) < len(PACKAGES):
        raise UserError(f"Jittor is not installed in {sys.prefix}: {remedy()}")
    return origins[0].parent.parent


def remedy() -> str:
    """The command that installs Jittor for this Python."""
    return INSTALL if sys.version_info < FIRST_OF_NUMPY_2 else INSTALL_ALONE


def _make(root: Path, folder: Path, version: str) -> None:
    """Copy the packages below `root` to a temporary folder with the changes, and rename it."""
    for left in folder.parent.glob(f"{SCRATCH}*"):  # from killed processes: the lock excludes running ones
        shutil.rmtree(left, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=folder.parent))
    try:
        for name in PACKAGES:
            ignored = shutil.ignore_patterns(*UNUSED, "__pycache__")
            # Contents only: the installed files may be read-only.
            shutil.copytree(root / name, scratch / name, ignore=ignored, copy_function=shutil.copyfile)
        for path in (scratch, *scratch.rglob("*")):
            if path.is_dir():
                path.chmod(0o755)
        for change in CHANGES:
            apply(change, scratch, version)
        os.rename(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def apply(change: Change, root: Path, version: str) -> None:
    """Replace the text in a copy of Jittor `version` below `root`.

    Raises UserError, naming the version, if the text is not found as often as in the version that it was written for.
    """
    path = root / change.file
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if text.count(change.old) != change.times:
        raise UserError(
            f"Jittor {version} has another {change.file} than Jittor 1.3.11.0, which this program is for: {REINSTALL}"
        )
    path.write_text(text.replace(change.old, change.new), encoding="utf-8")
