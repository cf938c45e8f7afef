"""What the blocks `model` of methods with a choice of fields have in common. Knows no Jittor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from models.config.strict import ConfigError, nearest
from models.fields.conf import ColorConfig, VarianceConfig
from models.fields.registry import COLORS, NERF, RADIANCE, RENDERING_NETWORK, SDF_GRID, SDF_NETWORK, SURFACES
from models.methods.block import PlainBlock

# Where the width of a field's features is set, for messages.
FEATURES_OF = {SDF_NETWORK: "model.sdf_network.d_out - 1", SDF_GRID: "model.sdf_grid.d_feature"}


DEFAULT = "default"  # as the name of a field: the one that belongs to the method


@dataclass(frozen=True, kw_only=True)
class ChosenFieldsConfig(PlainBlock):
    """Blocks of fields, of which the conf chooses some by name."""

    defaults: ClassVar[Mapping[str, str]] = {}  # what DEFAULT stands for, by key
    more: Mapping[str, Any] = field(default_factory=dict)  # the blocks that are no field of the class

    def __post_init__(self) -> None:
        for key, name in self.defaults.items():
            if getattr(self, key) == DEFAULT:
                object.__setattr__(self, key, name)

    @classmethod
    def known(cls) -> dict[str, type]:
        """The blocks of all fields that may be chosen."""
        raise NotImplementedError

    @classmethod
    def unused(cls, block: Mapping[str, Any]) -> set[str]:
        """Keys of the given block `model` that its choices do not need: they are checked and left out."""
        del block
        return set()

    @classmethod
    def further(cls) -> dict[str, type]:
        """The blocks of `more`."""
        own = {entry.name for entry in fields(cls)}
        return {name: block for name, block in cls.known().items() if name not in own}

    def block(self, name: str) -> Any:
        """A block; raises ConfigError where the conf has none of this name."""
        found = self.more.get(name) or getattr(self, name, None)
        if found is None:
            raise ConfigError(f"model.{name}: this block is missing and has no default; add it")
        return found

    def check_choice(self, key: str, known: Mapping[str, Any]) -> None:
        """Raises ConfigError where the value of a key is none of the known fields."""
        if (name := getattr(self, key)) not in known:
            raise ConfigError(f"model.{key} = {name}: there is no such field{nearest(name, known)}")


@dataclass(frozen=True, kw_only=True)
class SurfaceConfig(ChosenFieldsConfig):
    """A signed distance and a colour."""

    variance_network: VarianceConfig
    defaults = {"surface": SDF_NETWORK, "color": RENDERING_NETWORK}
    surface: str = DEFAULT  # the block of the signed-distance field, one of fields.registry.SURFACES
    color: str = DEFAULT  # the block of the colour field, one of fields.registry.COLORS

    @classmethod
    def known(cls) -> dict[str, type]:
        """See `ChosenFieldsConfig`."""
        return {name: kind.block for name, kind in (SURFACES | COLORS).items()}

    def check_fields(self) -> None:
        """Raises ConfigError for fields that do not exist or do not fit each other."""
        self.check_choice("surface", SURFACES)
        self.check_choice("color", COLORS)
        surface, color = self.block(self.surface), self.block(self.color)
        surface.check()
        color.check(surface.features, FEATURES_OF.get(self.surface, f"the features of model.{self.surface}"))

    @property
    def field_parameters(self) -> int:
        """Trained numbers of the signed distance, the colour and the sharpness."""
        return 1 + self.block(self.surface).parameters + self.block(self.color).parameters


@dataclass(frozen=True, kw_only=True)
class RadianceFieldConfig(ChosenFieldsConfig):
    """A radiance field."""

    radiance_field: str = DEFAULT  # the block of the field, one of fields.registry.RADIANCE
    rendering_network: ColorConfig | None = None  # the colour of a density grid

    @classmethod
    def known(cls) -> dict[str, type]:
        """See `ChosenFieldsConfig`."""
        return {name: kind.block for name, kind in RADIANCE.items()}

    @classmethod
    def unused(cls, block: Mapping[str, Any]) -> set[str]:
        """NeRF's network has no colour network of its own."""
        name = block.get("radiance_field", DEFAULT)
        return {RENDERING_NETWORK} if (cls.defaults["radiance_field"] if name == DEFAULT else name) == NERF else set()

    def check_fields(self) -> None:
        """Raises ConfigError for a field that does not exist, and for blocks that do not fit each other."""
        self.check_choice("radiance_field", RADIANCE)
        RADIANCE[self.radiance_field].check(self)

    @property
    def field_parameters(self) -> int:
        """Trained numbers of the field."""
        return RADIANCE[self.radiance_field].parameters(self)

    @property
    def field_blocks(self) -> tuple[str, ...]:
        """The blocks that the field's weights depend on."""
        return (self.radiance_field,) if self.rendering_network is None else (self.radiance_field, RENDERING_NETWORK)
