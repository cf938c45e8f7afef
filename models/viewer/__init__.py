"""The interactive viewer in the browser, based on viser: scenes, meshes, live renderings. viser is optional."""
