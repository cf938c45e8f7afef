"""Confs: HOCON text to frozen dataclasses, strictly. Each room owns its block; this one has what several share."""
