"""Several works on one scene in a process decode it once."""

from models.checkpoints.scenes import scene_cache, training_scene
from models.commands import interface


def test_the_first_scene_is_decoded_once_while_it_is_kept():
    conf, smaller = (interface.read_conf("debug.conf", overrides=more) for more in ([], ["dataset.downscale=2"]))
    with scene_cache():
        scene = training_scene(conf)
        assert training_scene(conf) is scene
        assert training_scene(smaller).size(0) == tuple(side // 2 for side in scene.size(0))
        assert training_scene(smaller) is not training_scene(smaller), "one scene is kept"
        assert training_scene(conf) is scene
    assert training_scene(conf) is not scene
