"""Images or a video in, a scene folder out: frames, features, matches, cameras, masks."""
