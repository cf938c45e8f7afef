"""What a trained model gives: pictures, meshes, videos, figures; each in the folder the published code uses."""
