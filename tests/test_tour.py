"""docs/tour.ipynb goes from photographs to a mesh: run with few steps."""

import importlib.util
import sys

import pytest

from docs import make_tour

pytestmark = pytest.mark.slow

needs_kernel = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("nbclient", "ipykernel")),
    reason="nbclient and ipykernel, which run notebooks, are not installed",
)


def test_the_notebook_is_the_one_of_its_program():
    assert make_tour.NOTEBOOK.read_text(encoding="utf-8") == make_tour.notebook(), "run `python -m docs.make_tour`"
    assert len(make_tour.CELLS) == 10


@needs_kernel
def test_its_ten_cells_run(tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    variables = {"TOUR_STEPS": "60", "TOUR_PHOTOS": "--count 20 --width 240", "TOUR_OUT": str(tmp_path / "tour")}
    for name, value in (variables | {"JUPYTER_DATA_DIR": f"{tmp_path}/jupyter", "IPYTHONDIR": f"{tmp_path}/i"}).items():
        monkeypatch.setenv(name, value)
    found = nbformat.read(make_tour.NOTEBOOK, as_version=4)
    client = NotebookClient(found, timeout=900, resources={"metadata": {"path": str(make_tour.NOTEBOOK.parent)}})
    client.create_kernel_manager()
    client.km.kernel_spec.argv[0] = sys.executable  # this one, whatever is registered by the name
    client.execute()
    outputs = [output for cell in found.cells if cell.cell_type == "code" for output in cell.outputs]
    shown = {kind for output in outputs for kind in output.get("data", {})}
    assert {"image/png", "text/html"} <= shown
    assert all((tmp_path / "tour" / name).is_file() for name in ("report.html", "mesh.glb", "orbit.mp4"))
