"""The sides of the region of interest that no camera shows, in words for a photographer."""

from __future__ import annotations

import numpy as np

from data.scenes.scene import Scene

# A surface patch is well observed by a camera within this angle of its normal; beyond, foreshortening reduces it to
# less than 0.7 of its size.
SEEN_ANGLE = 45.0  # degrees


def missing_sides(scene: Scene) -> str:
    """The sides without a camera within SEEN_ANGLE of them, "" if there are none.

    The front is the side of the photograph nearest to the mean of the cameras; left and right are those of its
    photographer. Nothing is said of what is below, where an object stands, or if cameras are inside the region.
    """
    places = scene.c2w[:, :3, 3]
    if np.linalg.norm(places, axis=1).min() <= 1.0:
        return ""
    directions = places / np.linalg.norm(places, axis=1, keepdims=True)
    up = -scene.c2w[:, :3, 1].mean(axis=0) if scene.frame is None else scene.scene_to_world[2, :3]  # the world's z axis
    up = up / np.maximum(np.linalg.norm(up), np.finfo(float).tiny)
    level = directions - np.outer(directions @ up, up)
    first = int(np.argmax(level @ level.mean(axis=0)))
    front = level[first] / np.maximum(np.linalg.norm(level[first]), np.finfo(float).tiny)
    right = np.cross(up, front)
    sides = {"the left": -right, "the right": right, "behind": -front, "above": up}
    least = np.cos(np.radians(SEEN_ANGLE))
    missing = [name for name, side in sides.items() if (directions @ side).max() < least]
    return f"{', '.join(missing)} (the front is that of {scene.photographs[first]})" if missing else ""
