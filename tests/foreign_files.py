"""Files of other programs with the cameras of the bundled scene."""

import json

import numpy as np

from data.io.images import read_image

OPENGL = np.diag([1.0, -1.0, -1.0, 1.0])


def require_true(parsed, posed):
    """The cameras of `parsed` show the centre of the object where the true ones do, to a hundredth of a pixel."""
    places = np.array([[4.0, -7.0, 1.5, 1.0], [4.6, -6.5, 1.9, 1.0]]).T
    assert len(parsed.images) == len(posed)
    for found, true in zip(parsed.images, posed, strict=True):
        pixels = [image.lens.intrinsics @ (np.linalg.inv(image.c2w) @ places)[:3] for image in (found, true)]
        assert np.allclose(*(pixel[:2] / pixel[2] for pixel in pixels), atol=0.01), found.path.name


def transforms(folder, posed, names, own=lambda name: {}, **shared):
    height, width = read_image(posed[0].path).shape[:2]
    intrinsics = posed[0].lens.intrinsics
    lens = {"fl_x": intrinsics[0, 0], "fl_y": intrinsics[1, 1], "cx": intrinsics[0, 2] + 0.5, "w": width, "h": height}
    frames = [
        {"file_path": name, "transform_matrix": (image.c2w @ OPENGL).tolist(), **own(name)}
        for name, image in zip(names, posed, strict=True)
    ]
    (folder / "transforms.json").write_text(
        json.dumps({**lens, "cy": intrinsics[1, 2] + 0.5, **shared, "frames": frames})
    )


def metashape(folder, posed, cameras, calibration="", sensors="", components=""):
    intrinsics = posed[0].lens.intrinsics
    height, width = read_image(posed[0].path).shape[:2]
    size = f'<resolution width="{width}" height="{height}"/>'
    lens = calibration or (
        f"<f>{intrinsics[0, 0]}</f><cx>{intrinsics[0, 2] + 0.5 - width / 2}</cx>"
        f"<cy>{intrinsics[1, 2] + 0.5 - height / 2}</cy>"
    )
    given = f'<calibration class="adjusted">{size}{lens}</calibration>'
    text = f'<sensor id="0" type="frame">{size}{given}</sensor>' + sensors.format(size=size, given=given)
    parts = f"<chunk><sensors>{text}</sensors><components>{components}</components><cameras>{cameras}</cameras></chunk>"
    (folder / "cameras.xml").write_text(f"<document>{parts}</document>")


def camera(number, name, c2w=None, **more):
    attributes = " ".join(f'{key}="{value}"' for key, value in {"sensor_id": 0, **more}.items())
    numbers = "" if c2w is None else f"<transform>{' '.join(f'{value:.12g}' for value in c2w.ravel())}</transform>"
    return f'<camera id="{number}" label="{name}" {attributes}>{numbers}</camera>'
