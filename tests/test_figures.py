"""How renderings compare with photographs, in whole, inside masks and by outlines, and which figure counts first."""

from types import SimpleNamespace

import numpy as np
import pytest
from skimage.metrics import structural_similarity

from data.pixels import to_uint8
from models.plan import Decision, TrainingPlan
from models.results.image_metrics import color_aligned, compare, greyed, mask_first, mean
from models.results.render import RenderedView

RNG = np.random.default_rng(3)
SIZE = 40
BLACK, WHITE, ROOM = np.zeros(3, np.float32), np.ones(3, np.float32), np.float32([0.5, 0.4, 0.3])
MASK = np.zeros((SIZE, SIZE), np.float32)
MASK[10:30, 12:28] = 1.0
OBJECT = RNG.random((SIZE, SIZE, 3), dtype=np.float32)


def photograph(background):
    """The object before a background [3]."""
    return np.where(MASK[..., None] > 0, OBJECT, background)


def rendering(rgb, opacity=MASK):
    return RenderedView(rgb.astype(np.float32), np.zeros_like(rgb), np.zeros_like(MASK), opacity)


def test_the_mask_hides_no_floater():
    """Off the mask a floater leaves the inside as it is; the whole image and the overlap fall."""
    floating = MASK.copy()
    floating[:, :6] = 1.0
    rgb = photograph(BLACK)
    rgb[:, :6] = 0.8
    clean = compare(rendering(photograph(BLACK)), photograph(BLACK) + 0.02, MASK)
    spoilt = compare(rendering(rgb, floating), photograph(BLACK) + 0.02, MASK)
    assert spoilt.psnr_mask == clean.psnr_mask and spoilt.ssim_mask == clean.ssim_mask
    assert spoilt.psnr < clean.psnr - 10 and spoilt.ssim < clean.ssim
    assert spoilt.iou == pytest.approx(320 / 560) and clean.iou == 1.0


def test_ssim_is_that_of_the_published_comparisons():
    options = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "data_range": 1.0}
    ours = compare(rendering(OBJECT * 0.9), photograph(ROOM), MASK)
    expected = structural_similarity(OBJECT * np.float32(0.9), photograph(ROOM), channel_axis=2, **options)
    assert ours.ssim == pytest.approx(expected, abs=1e-5)


def test_an_image_without_error_counts_in_the_mean():
    exact, off = (compare(rendering(OBJECT), OBJECT + error, None) for error in (0.0, 0.1))
    assert exact.psnr == 100.0 and mean([exact, off]).psnr == pytest.approx((100.0 + off.psnr) / 2)


@pytest.mark.parametrize("mask", [None, np.zeros_like(MASK)], ids=["no mask", "empty mask"])
def test_what_cannot_be_compared_has_no_figure(mask):
    found = compare(rendering(OBJECT), photograph(ROOM), mask)
    assert found.psnr > 0 and found.psnr_mask is None and found.ssim_mask is None
    assert found.iou == (None if mask is None else 0.0)
    assert compare(rendering(OBJECT[:9]), OBJECT[:9], None).ssim is None


MASKS = (to_uint8(MASK),) * 2


def scene(background, noise=0.0, masks=MASKS, backdrop=None):
    """What `mask_first` looks at; `backdrop`: that from which the masks were derived."""
    picture = np.clip(photograph(background) + RNG.normal(0.0, noise, OBJECT.shape), 0.0, 1.0)
    return SimpleNamespace(images=(to_uint8(picture),) * 2, masks=masks, backdrop=backdrop)


@pytest.mark.parametrize(
    ("photographs", "masks", "behind", "expected"),
    [
        (scene(ROOM), "given", None, True),  # DTU with masks
        (scene(ROOM), "none", None, False),  # the same without
        (scene(WHITE), "given", WHITE, False),  # Blender's
        (scene(BLACK, 0.005), "given", None, False),
        (scene(ROOM, masks=None), "given", None, False),
        (scene(BLACK, masks=(np.full_like(to_uint8(MASK), 255),) * 2), "given", None, True),
        (scene(ROOM, backdrop=WHITE), "given", WHITE, False),  # rendered before its backdrop
        (scene(ROOM, backdrop=WHITE), "given", None, True),  # by a method that has no backdrop
    ],
)
def test_the_inside_of_the_mask_counts_first_on_photographs(photographs, masks, behind, expected):
    experiment, model = (
        SimpleNamespace(plan=TrainingPlan(masks=Decision(masks))),
        SimpleNamespace(behind=behind),
    )
    context = SimpleNamespace(experiment=experiment, model=model)
    assert mask_first(context, photographs) is expected


def test_a_greyed_background_has_no_colour_and_the_object_keeps_its_own():
    shown = greyed(photograph(ROOM), MASK)
    np.testing.assert_array_equal(shown[MASK > 0], OBJECT[MASK > 0])
    np.testing.assert_allclose(shown[MASK == 0], 0.45, atol=1e-6)


def test_colours_are_aligned_by_an_affine_map_and_shapes_are_not():
    """An image that differs by exposure only is recovered; a uniform one gets the mean colour."""
    inside = MASK > 0
    darker = OBJECT @ np.diag(np.float32([0.5, 0.7, 0.6])) + 0.05
    darker[~inside] = 9.0  # pixels that are not fitted
    aligned = color_aligned(darker, OBJECT, inside)
    np.testing.assert_allclose(aligned[inside], OBJECT[inside], atol=1e-5)
    uniform = color_aligned(np.full_like(OBJECT, 0.2), OBJECT, None)
    np.testing.assert_allclose(uniform, np.broadcast_to(OBJECT.mean(axis=(0, 1)), uniform.shape), atol=1e-5)
