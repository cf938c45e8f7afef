"""Which photographs of a capture are trained on, and which are held out to judge the result."""

from __future__ import annotations

from collections.abc import Sequence

from data.config import DatasetConfig
from data.errors import SceneError
from data.parsed_scene import ParsedScene, PosedImage


def split(parsed: ParsedScene, conf: DatasetConfig) -> tuple[tuple[PosedImage, ...], tuple[PosedImage, ...]]:
    """(to train on, held out). Numbers count the capture's photographs from 0, those its format holds out left out.

    `dataset.test_every` = n holds out photographs 0, n, 2 n, ...; `dataset.test_views` the ones it lists;
    `dataset.train_views` trains on no others than it lists. Where one of the first two is given, it replaces the
    format's own choice, whose photographs are then left out altogether.
    Raises SceneError for a number that is out of range or in both lists, and where nothing is left to train on.
    """
    own = [image for image in parsed.images if not image.is_held_out]
    test = _checked(conf.test_views, "dataset.test_views", len(own), parsed)
    if conf.test_every:
        test = range(0, len(own), conf.test_every)
    train = _checked(conf.train_views, "dataset.train_views", len(own), parsed) or range(len(own))
    if both := sorted(set(conf.train_views) & set(test)):
        raise SceneError(
            f"{parsed.source}: photograph {both[0]} is in dataset.train_views and held out; leave it out of one"
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
    """`views`, each once and in range."""
    for position, view in enumerate(views):
        if not 0 <= view < count:
            raise SceneError(f"{key}: there is no photograph {view}; {parsed.source} has 0 to {count - 1}")
        if view in views[:position]:
            raise SceneError(f"{key}: names photograph {view} twice; name it once")
    return views
