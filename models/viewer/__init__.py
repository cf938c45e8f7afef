"""The interactive viewer in the browser, on viser: scenes, meshes, live renderings. viser is optional."""
