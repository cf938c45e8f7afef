"""Links and pipes among what a preparation writes on are named."""

import os

import pytest
import rendered_photographs

from data.errors import UserError
from data.prepare.pipeline import Request, prepare

pytestmark = pytest.mark.slow  # it prepares photographs

NO_FILES = [("link", ".prepare.lock"), ("link", "colmap.log"), ("link", "database")]
NO_FILES += [("pipe", ".prepare.lock"), ("pipe", "colmap.log")]


@pytest.mark.parametrize(("kind", "name"), NO_FILES)
def test_what_is_no_file_of_ours_is_named_and_not_written_through(tmp_path, kind, name):
    rendered_photographs.write_photographs(tmp_path / "photos", 3)
    (tmp_path / "elsewhere").mkdir()
    path = tmp_path / "scene" / "prepare" / name
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "elsewhere") if kind == "link" else os.mkfifo(path)
    with pytest.raises(UserError, match=rf"prepare/{name}: is .*remove it$"):
        prepare(Request(tmp_path / "photos", tmp_path / "scene", frames=6), str)
    assert os.path.lexists(path) and list((tmp_path / "elsewhere").iterdir()) == []
