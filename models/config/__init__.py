"""Confs: strict conversion of HOCON text to frozen dataclasses, and the blocks that several packages share."""
