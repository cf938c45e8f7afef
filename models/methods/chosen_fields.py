"""The common part of the blocks `model` with selectable fields. Does not import Jittor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from models.config.strict import ConfigError, nearest
from models.fields.conf import ColorConfig, VarianceConfig
from models.fields.registry import COLORS, NERF, RADIANCE, RENDERING_NETWORK, SDF_GRID, SDF_NETWORK, SURFACES
from models.methods.block import ModelConfig

# The key that sets the feature width of a field, for messages.
FEATURES_OF = {SDF_NETWORK: "model.sdf_network.d_out - 1", SDF_GRID: "model.sdf_grid.d_feature"}


DEFAULT = "default"  # the field name that selects the default of the method


@dataclass(frozen=True, kw_only=True)
class ChosenFieldsConfig(ModelConfig):
    """Blocks of fields, some of which the conf selects by name."""

    defaults: ClassVar[Mapping[str, str]] = {}  # the field that DEFAULT selects, by key
    more: Mapping[str, Any] = field(default_factory=dict)  # blocks that are not fields of the dataclass

    def __post_init__(self) -> None:
        for key, name in self.defaults.items():
            if getattr(self, key) == DEFAULT:
                object.__setattr__(self, key, name)

    @classmethod
    def known(cls) -> dict[str, type]:
        """The blocks of all selectable fields."""
        raise NotImplementedError

    @classmethod
    def unused(cls, block: Mapping[str, Any]) -> set[str]:
        """Keys of the given block `model` that the selection does not use: they are checked and discarded."""
        del block
        return set()

    @classmethod
    def further(cls) -> dict[str, type]:
        """The blocks of `more`."""
        own = {entry.name for entry in fields(cls)}
        return {name: block for name, block in cls.known().items() if name not in own}

    def block(self, name: str) -> Any:
        """A block; raises ConfigError if the conf has none of this name."""
        found = self.more.get(name) or getattr(self, name, None)
        if found is None:
            raise ConfigError(
                f"model.{name}: this block is missing; add it, or include a file of confs/base that has it"
            )
        return found

    def check_choice(self, key: str, known: Mapping[str, Any]) -> None:
        """Raises ConfigError if the value of a key is not a known field."""
        if (name := getattr(self, key)) not in known:
            raise ConfigError(f"model.{key} = {name}: there is no such field{nearest(name, known)}")


@dataclass(frozen=True, kw_only=True)
class SurfaceConfig(ChosenFieldsConfig):
    """Blocks of a method with a selectable signed distance and colour."""

    variance_network: VarianceConfig
    defaults = {"surface": SDF_NETWORK, "color": RENDERING_NETWORK}
    surface: str = DEFAULT  # block of the signed-distance field, a key of fields.registry.SURFACES
    color: str = DEFAULT  # block of the colour field, a key of fields.registry.COLORS

    @classmethod
    def known(cls) -> dict[str, type]:
        """See `ChosenFieldsConfig`."""
        return {name: kind.block for name, kind in (SURFACES | COLORS).items()}

    def check_fields(self) -> None:
        """Raises ConfigError for unknown fields and for fields that do not fit each other."""
        self.check_choice("surface", SURFACES)
        self.check_choice("color", COLORS)
        surface = self.block(self.surface)
        surface.check()
        source = FEATURES_OF.get(self.surface, f"the features of model.{self.surface}")
        COLORS[self.color].check(self, surface.features, source)

    @property
    def field_parameters(self) -> int:
        """Trained parameters of signed distance, colour and inv_s."""
        return 1 + self.block(self.surface).parameters + COLORS[self.color].parameters(self)

    @property
    def field_blocks(self) -> tuple[str, ...]:
        """The blocks that determine the weights of signed distance and colour."""
        return (self.surface, *COLORS[self.color].blocks)


@dataclass(frozen=True, kw_only=True)
class RadianceFieldConfig(ChosenFieldsConfig):
    """Blocks of a method with a selectable radiance field."""

    radiance_field: str = DEFAULT  # block of the field, a key of fields.registry.RADIANCE
    rendering_network: ColorConfig | None = None  # the colour network of a density grid

    @classmethod
    def known(cls) -> dict[str, type]:
        """See `ChosenFieldsConfig`."""
        return {name: kind.block for name, kind in RADIANCE.items()}

    @classmethod
    def unused(cls, block: Mapping[str, Any]) -> set[str]:
        """The network of NeRF has no separate colour network."""
        name = block.get("radiance_field", DEFAULT)
        return {RENDERING_NETWORK} if (cls.defaults["radiance_field"] if name == DEFAULT else name) == NERF else set()

    def check_fields(self) -> None:
        """Raises ConfigError for an unknown field, and for blocks that do not fit each other."""
        self.check_choice("radiance_field", RADIANCE)
        RADIANCE[self.radiance_field].check(self)

    @property
    def field_parameters(self) -> int:
        """Trained parameters of the field."""
        return RADIANCE[self.radiance_field].parameters(self)

    @property
    def field_blocks(self) -> tuple[str, ...]:
        """The blocks that determine the weights of the field."""
        return (self.radiance_field,) if self.rendering_network is None else (self.radiance_field, RENDERING_NETWORK)
