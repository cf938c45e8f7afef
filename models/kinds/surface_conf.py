"""What the blocks `model` of all surfaces have in common: the choice of fields. Knows no Jittor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from models.config.strict import ConfigError, nearest
from models.fields.conf import VarianceConfig
from models.fields.registry import COLORS, RENDERING_NETWORK, SDF_GRID, SDF_NETWORK, SURFACES
from models.kinds.block import PlainBlock

# Where the width of a field's features is set, for messages.
FEATURES_OF = {SDF_NETWORK: "model.sdf_network.d_out - 1", SDF_GRID: "model.sdf_grid.d_feature"}


@dataclass(frozen=True, kw_only=True)
class SurfaceConfig(PlainBlock):
    """The fields, each chosen by the name of its block."""

    variance_network: VarianceConfig
    surface: str = SDF_NETWORK  # the block of the signed-distance field, one of fields.registry.SURFACES
    color: str = RENDERING_NETWORK  # the block of the colour field, one of fields.registry.COLORS
    more: Mapping[str, Any] = field(default_factory=dict)  # the blocks of fields that are no field of this class

    @classmethod
    def further(cls) -> dict[str, type]:
        """The blocks of `more`."""
        own = {entry.name for entry in fields(cls)}
        return {name: kind.block for name, kind in (SURFACES | COLORS).items() if name not in own}

    def block(self, name: str) -> Any:
        """The block of a field; raises ConfigError where the conf has none."""
        found = self.more.get(name) or getattr(self, name, None)
        if found is None:
            raise ConfigError(f"model.{name}: this block is missing and has no default; add it")
        return found

    def check_fields(self) -> None:
        """Raises ConfigError for fields that do not exist or do not fit each other."""
        for key, known in (("surface", SURFACES), ("color", COLORS)):
            if getattr(self, key) not in known:
                name = getattr(self, key)
                raise ConfigError(f"model.{key} = {name}: there is no such field{nearest(name, known)}")
        surface, color = self.block(self.surface), self.block(self.color)
        surface.check()
        color.check(surface.features, FEATURES_OF.get(self.surface, f"the features of model.{self.surface}"))

    @property
    def field_parameters(self) -> int:
        """Trained numbers of the surface, its colour and its sharpness."""
        return 1 + self.block(self.surface).parameters + self.block(self.color).parameters
