"""PNG files whose chunks do not add up: refused before OpenCV sees them."""

import cv2
import pytest
from test_images import GOOD_PNG, png

from data.io.headers import ImageError
from data.io.images import read_image

PNG_HEAD = GOOD_PNG[:33]


def test_a_png_whose_parts_do_not_add_up_is_refused_before_decoding(tmp_path, monkeypatch):
    for content, reason in (
        (PNG_HEAD + b"\xf0\0\0\0IDATx" + GOOD_PNG[41:], "truncated"),  # a chunk of 4 GB
        (PNG_HEAD + PNG_HEAD[8:] + GOOD_PNG[33:], "damaged"),  # two headers
        (PNG_HEAD + GOOD_PNG[-12:-4], "damaged"),  # an end without its checksum
        (GOOD_PNG[33:41].join([GOOD_PNG[:8], GOOD_PNG[8:]]), "damaged"),  # no header in front
        (png(60, 80, 8, 0, b"", (b"acTL", b"\0\0\0\2\0\0\0\0")), "animation"),
        (png(16000, 16000, 8, 0, b"\0"), "too many for its"),
    ):
        (tmp_path / "a.png").write_bytes(content)
        monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("decoded"))
        with pytest.raises(ImageError, match=reason):
            read_image(tmp_path / "a.png")
