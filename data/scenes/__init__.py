"""From a capture to what is trained on: the scene, the photographs held out, the pixels drawn."""
