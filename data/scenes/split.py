"""The split of a scene's images into training and held-out images."""

from __future__ import annotations

from collections.abc import Sequence

from data.config import DatasetConfig
from data.errors import SceneError
from data.parsed_scene import ParsedScene, PosedImage


def split(parsed: ParsedScene, conf: DatasetConfig) -> tuple[tuple[PosedImage, ...], tuple[PosedImage, ...]]:
    """(training images, held-out images). Indices count the images that the format does not hold out, from 0.

    `dataset.test_every` = n holds out images 0, n, 2 n, ..., `dataset.test_views` the listed images instead;
    `dataset.train_views` restricts training to the listed images. If one of the first two is given, the images that
    the format holds out are not used at all.
    Raises SceneError for an index that is out of range or in both lists, and if no training image is left.
    """
    own = [image for image in parsed.images if not image.is_held_out]
    test = _checked(conf.test_views, "dataset.test_views", len(own), parsed)
    if conf.test_every and not test:
        test = range(0, len(own), conf.test_every)
    train = _checked(conf.train_views, "dataset.train_views", len(own), parsed) or range(len(own))
    if both := sorted(set(conf.train_views) & set(test)):
        raise SceneError(
            f"{parsed.source}: photograph {both[0]} is in dataset.train_views and held out; remove it from one of them"
        )
    kept = tuple(own[view] for view in train if view not in set(test))
    if not kept:
        raise SceneError(
            f"{parsed.source}: no photograph is left to train on (of {len(own)}); hold out fewer "
            "(dataset.test_every, dataset.test_views)"
        )
    held_out = [own[view] for view in test] or [image for image in parsed.images if image.is_held_out]
    return kept, tuple(held_out)


def _checked(views: Sequence[int], key: str, count: int, parsed: ParsedScene) -> Sequence[int]:
    """`views`; raises SceneError for an index that is out of range or listed twice."""
    for position, view in enumerate(views):
        if not 0 <= view < count:
            raise SceneError(f"{key}: there is no photograph {view}; {parsed.source} has 0 to {count - 1}")
        if view in views[:position]:
            raise SceneError(f"{key}: names photograph {view} twice; name it once")
    return views
