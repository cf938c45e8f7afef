"""A resumed training uses masks as it did before."""

import shutil

import pytest
from synthetic_scene import write_scene
from test_fast_background import CONF, OPEN
from test_fast_neus import SHORT
from toys import run_conf


@pytest.mark.slow
def test_a_run_goes_on_with_masks_or_without_as_it_began(tmp_path, capsys):
    write_scene(tmp_path / "scene", n_views=8)
    settings = (*OPEN, *SHORT, f"dataset.data_dir={tmp_path}/scene", 'dataset.test_dir=""')
    settings += ("dataset.masks_from_backdrop=False",)
    weighted, weightless = (*settings, "train.mask_weight=0.5"), (*settings, "train.mask_weight=0")
    for name, first, then, words in (
        ("masked", weighted, weightless, "with masks, and train.mask_weight = 0 does not use them"),
        ("plain", weightless, weighted, "without masks, and train.mask_weight = 0.5 uses those of scene; pass --set"),
    ):
        assert run_conf(CONF, tmp_path / name, "--case", "x", settings=first) == 0
        assert run_conf(CONF, tmp_path / name, "--case", "x", "--is_continue", settings=then) == 2
        assert words in capsys.readouterr().err
    shutil.rmtree(tmp_path / "scene/mask")
    assert run_conf(CONF, tmp_path / "masked", "--case", "x", "--is_continue", settings=weighted) == 2
    assert "with masks, and scene has none; restore them" in capsys.readouterr().err
