"""Structure from motion by pycolmap: features, matches, cameras."""
