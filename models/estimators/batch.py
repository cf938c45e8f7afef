"""A batch of packed samples: rays of random pixels of all images, and their samples in occupied cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from models.structs import MASK_THRESHOLD


@dataclass(frozen=True)
class PackedBatch:
    """R rays with at least one sample each, and points that belong to no ray; S samples in all."""

    rgb: np.ndarray  # [R, 3] in [0, 1]
    mask: np.ndarray | None  # [R, 1] in [0, 1], None for a scene without masks
    view: np.ndarray  # [R] int32, index of the image
    offsets: np.ndarray  # int32 [R + 1]
    points: np.ndarray  # [S, 3]; those from offsets[R] on are random points of the hull
    directions: np.ndarray  # [S, 3]
    step: np.ndarray  # [1], the length of each interval
    depths: np.ndarray | None = None  # [S, 1], where there is a background
    far_offsets: np.ndarray | None = None  # int32 [R + 1], of the samples of the background; None without
    far_points: np.ndarray | None = None  # [F, 3], contracted
    far_directions: np.ndarray | None = None  # [F, 3]
    far_depths: np.ndarray | None = None  # [F, 1]
    # int32 [1]: number of SfM points, which are the first of the samples that belong to no ray; None without.
    anchors: np.ndarray | None = None
    every: np.ndarray | None = None  # int32 [1], the patch of one in so many rays is compared; None: of no ray

    def __len__(self) -> int:
        """R."""
        return len(self.rgb)

    def part(self, start: int, stop: int) -> PackedBatch:
        """The rays start..stop-1, with no samples but theirs; the last ray is followed by the points of none."""
        stop = min(stop, len(self))
        first, last = self.offsets[start], self.offsets[stop] if stop < len(self) else len(self.points)
        return PackedBatch(
            self.rgb[start:stop],
            None if self.mask is None else self.mask[start:stop],
            self.view[start:stop],
            self.offsets[start : stop + 1] - first,
            self.points[first:last],
            self.directions[first:last],
            self.step,
            None if self.depths is None else self.depths[first:last],
            *self._far_part(start, stop),
            self.anchors if self.anchors is None or stop == len(self) else np.zeros_like(self.anchors),
            self.every,
        )

    def _far_part(self, start: int, stop: int) -> tuple[np.ndarray | None, ...]:
        """What lies beyond the region of the rays start..stop-1."""
        if self.far_offsets is None:
            return (None,) * 4
        first, last = self.far_offsets[start], self.far_offsets[stop]
        samples = (values[first:last] for values in (self.far_points, self.far_directions, self.far_depths))
        return self.far_offsets[start : stop + 1] - first, *samples

    def borders(self, parts: int) -> list[int]:
        """Where `parts` parts of at least a ray each begin, and R: their samples are about as many."""
        ends = self.offsets.astype(np.int64) + (0 if self.far_offsets is None else self.far_offsets)
        every = ends[-1] + len(self.points) - self.offsets[-1]
        found = [0]
        for number in range(1, parts):
            wanted = int(np.searchsorted(ends, every * number / parts))
            found.append(min(max(wanted, found[-1] + 1), len(self) - parts + number))
        return [*found, len(self)]

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything by name."""
        return {name: array for name, array in vars(self).items() if array is not None}

    def is_free_ray(self) -> np.ndarray:
        """Whether each ray passes beside the object by its mask, bool [R]."""
        return self.mask[:, 0] <= MASK_THRESHOLD

    def of_rays(self, is_such: np.ndarray) -> np.ndarray:
        """Whether each sample lies on one of such rays, bool [R]: float32 [S, 1]."""
        flags = np.zeros((len(self.points), 1), np.float32)
        flags[: self.offsets[-1], 0] = np.repeat(is_such, np.diff(self.offsets))
        return flags

    def is_anchor(self) -> np.ndarray:
        """Whether each sample is an SfM point, float32 [S, 1]."""
        flags = np.zeros((len(self.points), 1), np.float32)
        flags[self.offsets[-1] : self.offsets[-1] + int(self.anchors[0])] = 1.0
        return flags

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> PackedBatch:
        """The inverse of `arrays`; raises KeyError, TypeError or ValueError where these are others."""
        batch = cls(**{"mask": None} | dict(arrays))
        rays, samples = len(batch.rgb), len(batch.points)
        far = 0 if batch.far_points is None else len(batch.far_points)
        beyond = {"far_points": (far, 3), "far_directions": (far, 3), "far_depths": (far, 1), "depths": (samples, 1)}
        expected = {
            "rgb": (rays, 3),
            "view": (rays,),
            "offsets": (rays + 1,),
            "points": (samples, 3),
            "directions": (samples, 3),
            "step": (1,),
        } | ({} if batch.mask is None else {"mask": (rays, 1)})
        expected |= {} if batch.far_offsets is None else beyond | {"far_offsets": (rays + 1,)}
        expected |= {name: (1,) for name in ("anchors", "every") if getattr(batch, name) is not None}
        for name, shape in expected.items():
            array = getattr(batch, name)
            is_whole = name in ("view", "offsets", "far_offsets", "anchors", "every")
            if array.shape != shape or array.dtype != (np.int32 if is_whole else np.float32):
                raise ValueError(f"its {name} are {array.dtype} of shape {list(array.shape)}")
        if batch.anchors is not None and not 0 <= batch.anchors[0] <= samples - batch.offsets[-1]:
            raise ValueError("its SfM points are not among its samples")
        if batch.every is not None and batch.every[0] < 1:
            raise ValueError("its share of rays to be compared is none")
        if rays == 0 or batch.offsets[0] != 0 or (np.diff(batch.offsets) < 0).any() or batch.offsets[-1] > samples:
            raise ValueError("its samples do not belong to its rays")
        return batch

    def words(self) -> dict[str, np.ndarray]:
        """The same by what it is, for messages."""
        named = {
            "the samples of the rays (the cameras)": np.hstack([self.points, self.directions]),
            "the colours of the photographs": self.rgb,
        }
        return named if self.mask is None else named | {"the masks": self.mask}
