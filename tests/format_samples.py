"""A small scene in each format as the format's own tools lay it out: names, keys, key order, indents and rounding.

Only the pictures are blank. The numbers are those of real files, shortened to two or three frames.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np


def blank_png(path: Path, width: int, height: int, channels: int = 3) -> None:
    """A black (RGBA: transparent) PNG, encoded here."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, {3: 2, 4: 6}[channels], 0, 0, 0)
    rows = zlib.compress(bytes((1 + channels * width) * height))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b""))


# The renderer script of the NeRF paper: float32 matrices printed in full, "rotation" in radians, RGBA of 800 x 800.
BLENDER = """{
    "camera_angle_x": 0.6911112070083618,
    "frames": [
        {
            "file_path": "./SPLIT/r_0",
            "rotation": 0.012566370614359171,
            "transform_matrix": [
                [
                    -0.9999021887779236,
                    0.004192245192825794,
                    -0.013345719315111637,
                    -0.05379832163453102
                ],
                [
                    -0.013988681137561798,
                    -0.2996590733528137,
                    0.95394366979599,
                    3.845470428466797
                ],
                [
                    -4.656612873077393e-10,
                    0.9540371894836426,
                    0.29968830943107605,
                    1.2080823183059692
                ],
                [
                    0.0,
                    0.0,
                    0.0,
                    1.0
                ]
            ]
        }
    ]
}"""

# colmap2nerf.py for one OPENCV camera: integers written as floats, "sharpness", paths as they were given to it; and a
# frame whose picture was deleted later.
NGP = """{
  "camera_angle_x": 0.7481849417937728,
  "camera_angle_y": 1.2193576119562444,
  "fl_x": 1375.52,
  "fl_y": 1374.49,
  "k1": 0.0578421,
  "k2": -0.0805099,
  "k3": 0,
  "k4": 0,
  "p1": -0.000980296,
  "p2": 0.00015575,
  "is_fisheye": false,
  "cx": 554.558,
  "cy": 965.268,
  "w": 1080.0,
  "h": 1920.0,
  "aabb_scale": 4,
  "frames": [
    {
      "file_path": "./images/0001.png",
      "sharpness": 31.752987436300323,
      "transform_matrix": [
        [0.8926439112348871, 0.08799600283226543, 0.4420900262071262, 3.168359405609479],
        [0.4464189982715247, -0.03675452191179031, -0.8940689141475064, -5.4794898611466945],
        [-0.062425682580756266, 0.995442519072023, -0.07209178487538156, -0.9791660699008925],
        [0.0, 0.0, 0.0, 1.0]
      ]
    },
    {
      "file_path": "./images/0002.png",
      "sharpness": 34.478819913413005,
      "transform_matrix": [
        [0.8919526257584003, 0.08782115052710009, 0.44351774741451677, 3.10241135906331],
        [0.4476030653989872, -0.03306799514380148, -0.8936207456066606, -5.5301731439147535],
        [-0.06381255888968038, 0.9955872404475701, -0.06880409907698369, -0.9857965684289505],
        [0.0, 0.0, 0.0, 1.0]
      ]
    }
  ]
}"""

# ns-process-data for one OPENCV camera.
NERFSTUDIO = """{
    "w": 540,
    "h": 960,
    "fl_x": 687.76,
    "fl_y": 687.245,
    "cx": 277.279,
    "cy": 482.634,
    "k1": 0.0578421,
    "k2": -0.0805099,
    "p1": -0.000980296,
    "p2": 0.00015575,
    "camera_model": "OPENCV",
    "frames": [
        {
            "file_path": "images/frame_00001.png",
            "transform_matrix": [
                [0.8926439112348871, 0.08799600283226543, 0.4420900262071262, 3.168359405609479],
                [0.4464189982715247, -0.03675452191179031, -0.8940689141475064, -5.4794898611466945],
                [-0.062425682580756266, 0.995442519072023, -0.07209178487538156, -0.9791660699008925],
                [0.0, 0.0, 0.0, 1.0]
            ],
            "colmap_im_id": 1
        }
    ],
    "applied_transform": [
        [1.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 1.0, 0.0],
        [-0.0, -1.0, -0.0, -0.0]
    ],
    "ply_file_path": "sparse_pc.ply"
}"""
SPARSE_PC = """ply
format ascii 1.0
element vertex 2
property float x
property float y
property float z
property uint8 red
property uint8 green
property uint8 blue
end_header
-0.352091 1.070312 -0.500118 186 161 120
1.250000 0.031250 12.750000 13 14 15
"""


def write_blender_sample(folder: Path) -> None:
    """transforms_train/val/test.json and a picture each; test/ holds a depth picture too, as published."""
    for split in ("train", "val", "test"):
        blank_png(folder / split / "r_0.png", 800, 800, channels=4)
        (folder / f"transforms_{split}.json").write_text(BLENDER.replace("SPLIT", split))
    blank_png(folder / "test" / "r_0_depth_0001.png", 800, 800, channels=4)


def write_ngp_sample(folder: Path) -> None:
    """transforms.json and the first photograph."""
    blank_png(folder / "images" / "0001.png", 1080, 1920)
    (folder / "transforms.json").write_text(NGP)


def write_nerfstudio_sample(folder: Path) -> None:
    """transforms.json, images/ with its reduced copies, sparse_pc.ply and the COLMAP model beside them."""
    for name, scale in (("images", 1), ("images_2", 2), ("images_4", 4)):
        blank_png(folder / name / "frame_00001.png", 540 // scale, 960 // scale)
    (folder / "transforms.json").write_text(NERFSTUDIO)
    (folder / "sparse_pc.ply").write_text(SPARSE_PC)
    (folder / "colmap" / "sparse" / "0").mkdir(parents=True)
    for name in ("cameras.bin", "images.bin", "points3D.bin"):
        (folder / "colmap" / "sparse" / "0" / name).write_bytes(struct.pack("<Q", 0))


def write_llff_sample(folder: Path) -> None:
    """poses_bounds.npy as imgs2poses.py saves it, images/ of the size in it, images_8/; two photographs.

    The first pose is a camera at the origin that looks along COLMAP's z axis.
    """
    first = np.array([[0, 1, 0, 0, 3024], [1, 0, 0, 0, 4032], [0, 0, -1, 0, 3260.5263328805895]], dtype=np.float64)
    second = first.copy()
    second[:, 3] = 0.25, -0.125, 0.5
    np.save(folder / "poses_bounds.npy", np.stack([[*pose.ravel(), 11.3, 97.6] for pose in (first, second)]))
    for name in ("IMG_4026.png", "IMG_4027.png"):
        blank_png(folder / "images" / name, 4032, 3024)
        blank_png(folder / "images_8" / name, 504, 378)
