"""The three groups of a scene's photographs: training, validation, which may decide, and test, which is measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from data.errors import SceneError
from data.parsed_scene import ParsedScene, PosedImage
from data.scenes.config import DatasetConfig

TRAINING, VALIDATION, TEST = "training", "validation", "test"  # the groups in messages, metrics and reports


@dataclass(frozen=True)
class Split:
    """The groups; each photograph is in one at most."""

    training: tuple[PosedImage, ...]
    validation: tuple[PosedImage, ...]  # decide on the training; without any, training photographs do
    test: tuple[PosedImage, ...]  # not read before `evaluate`


def split(parsed: ParsedScene, conf: DatasetConfig) -> Split:
    """The groups, by the order of the images. Indices count those that the format does not hold out, from 0.

    The validation images are those of `dataset.validation_views`. The test images are those of `dataset.test_views`,
    else 0, n, 2 n, ... for `dataset.test_every` = n without validation images, else those that the format holds out,
    which otherwise are not used. The others, or those of `dataset.train_views`, are trained on.
    Raises SceneError for an index that is out of range or in two lists, and if no training image is left.
    """
    own = [image for image in parsed.images if not image.is_held_out]
    train, validation, test = (
        _checked(getattr(conf, key), f"dataset.{key}", len(own), parsed)
        for key in ("train_views", "validation_views", "test_views")
    )
    if conf.test_every and not test:
        test = [view for view in range(0, len(own), conf.test_every) if view not in validation]
    twice = sorted(view for view, count in Counter([*train, *validation, *test]).items() if count > 1)
    if twice:
        raise SceneError(
            f"{parsed.source}: photograph {twice[0]} is in two of dataset.train_views, dataset.validation_views and "
            "dataset.test_views (or test_every); leave it in one"
        )
    held_out = {*validation, *test}
    kept = tuple(own[view] for view in train or range(len(own)) if view not in held_out)
    if not kept:
        raise SceneError(
            f"{parsed.source}: no photograph is left to train on (of {len(own)}); hold out fewer "
            "(dataset.test_every, dataset.test_views, dataset.validation_views)"
        )
    measured = [own[view] for view in test] or [image for image in parsed.images if image.is_held_out]
    return Split(kept, tuple(own[view] for view in validation), tuple(measured))


def _checked(views: Sequence[int], key: str, count: int, parsed: ParsedScene) -> Sequence[int]:
    """`views`; raises SceneError for an index that is out of range or listed twice."""
    for position, view in enumerate(views):
        if not 0 <= view < count:
            raise SceneError(f"{key}: there is no photograph {view}; {parsed.source} has 0 to {count - 1}")
        if view in views[:position]:
            raise SceneError(f"{key}: names photograph {view} twice; name it once")
    return views
