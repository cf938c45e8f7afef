"""Photographs of noise, plain or with what a camera writes into EXIF."""

import numpy as np
from PIL import Image


def picture(height=20, width=30, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def save_with_exif(path, pixels, orientation=None, focal=None):
    exif = Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    if focal is not None:
        exif.get_ifd(0x8769)[0xA405] = focal
    Image.fromarray(pixels).save(path, exif=exif)
