"""From images or a video to a scene folder: frames, features, matches, cameras, masks."""
