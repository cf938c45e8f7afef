"""Fields with surfaces that are known, as models.surface marches them: P points float32 [P, 3] -> [P]."""

from dataclasses import dataclass

import numpy as np

BOX = (np.full(3, -1.0), np.full(3, 1.0))


@dataclass
class Analytic:
    """A `models.surface.rules.Field` that counts its queries and can fail after some."""

    function: object
    bounded: bool = True
    quantity: str = "the field"
    evened: object = None
    most: int | None = None
    queries: int = 0

    def outward(self, points):
        self.queries += len(points)
        if self.most is not None and self.queries > self.most:
            raise KeyboardInterrupt
        return self.function(points)[:, None]


def sphere(points, center=(0.1, 0.05, -0.02), radius=0.7):
    return np.linalg.norm(points - np.float32(center), axis=1) - np.float32(radius)


def torus(points):
    return np.hypot(np.linalg.norm(points[:, :2], axis=1) - 0.6, points[:, 2]) - 0.2


def thin(points):
    """A wire, a sheet thinner than a coarse cell, and a bead by itself."""
    wire = np.maximum(np.hypot(points[:, 0] - 0.2, points[:, 1] - 0.1) - 0.015, np.abs(points[:, 2]) - 0.8)
    sheet = np.max(np.abs(points + np.float32([0.3, 0.0, 0.0])) - np.float32([0.012, 0.5, 0.5]), axis=1)
    return np.minimum(np.minimum(wire, sheet), sphere(points, (0.6, 0.6, 0.6), 0.03))


def cut_off(points):
    """A distance that is correct only up to 0.05."""
    return np.clip(torus(points), -0.05, 0.05)


def minus_density(points):
    """Minus a density: 30 inside, almost 0 outside."""
    return -30.0 / (1.0 + np.exp(np.minimum(60.0 * torus(points), 80.0)))


def steep_in_a_corner(points):
    """A sphere, and a spike between the samples of the coarse lattice, much steeper than a distance."""
    spike = np.linalg.norm(points - np.float32([0.7071, 0.7071, 0.7071]), axis=1)
    return np.minimum(sphere(points, (-0.3, -0.3, -0.3), 0.4), 12.0 * (spike - 0.05))
