"""The conf block `model`: its interface, common to all methods, and the common part of those with selectable fields.

Does not import Jittor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from models.config.strict import ConfigError, nearest
from models.fields.conf import ColorConfig, VarianceConfig
from models.fields.registry import COLORS, RADIANCE, RENDERING_NETWORK, SDF_GRID, SDF_NETWORK, SURFACES

# A parameter with its gradient, its two moments, and the new weight and moments of a step.
TRAINED_COPIES = 7
# The key that sets the feature width of a field, for messages.
FEATURES_OF = {SDF_NETWORK: "model.sdf_network.d_out - 1", SDF_GRID: "model.sdf_grid.d_feature"}
DEFAULT = "default"  # the field name that selects the default of the method


class ModelConfig(Protocol):
    """The block `model`: a frozen dataclass with keys and sub-blocks as fields. Most members have a default."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    needs_masks: ClassVar[bool] = True  # whether train.mask_weight above 0 is an error for a scene without masks
    sees_from_within: ClassVar[bool] = False  # whether cameras may be inside the region of interest
    choices: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # keys that select a field by the name of its block
    type: str

    @classmethod
    def further(cls) -> dict[str, Any]:
        """The selectable blocks that are not fields of the dataclass, with their dataclasses."""
        own = cls.__dataclass_fields__
        return {name: kind.block for known in cls.choices.values() for name, kind in known.items() if name not in own}

    def block(self, name: str) -> Any:
        """A block below `model`."""
        return getattr(self, name)

    def check(self) -> None:
        """Raises ConfigError for inconsistent values."""
        return

    @property
    def network_blocks(self) -> tuple[str, ...]:
        """The blocks that determine the shapes of the weights."""
        return ()

    @property
    def parameters(self) -> int:
        """The number of trained parameters; the maximum if it changes during training."""

    @property
    def ray_numbers(self) -> int:
        """A lower bound of the float32 numbers that a step stores per entry of a batch."""
        return 0

    @property
    def sizes(self) -> tuple[str, ...]:
        """The keys below `model` on which the memory of a step depends: numbers of samples, or of Gaussians."""
        return ()

    def fitting(self, free: int, size: tuple[int, int]) -> str:
        """A line for `--mode plan`: how much of the model fits `free` bytes for images of (width, height); or ""."""
        return ""


@dataclass(frozen=True, kw_only=True)
class ChosenFieldsConfig(ModelConfig):
    """Blocks of fields, some of which the conf selects by name."""

    defaults: ClassVar[Mapping[str, str]] = {}  # the field that DEFAULT selects, by key
    more: Mapping[str, Any] = field(default_factory=dict)  # the blocks of `further`

    def __post_init__(self) -> None:
        for key, name in self.defaults.items():
            if getattr(self, key) == DEFAULT:
                object.__setattr__(self, key, name)

    def block(self, name: str) -> Any:
        """See `ModelConfig`; raises ConfigError if the conf has none of this name."""
        block = self.more.get(name) or getattr(self, name, None)
        if block is None:
            raise ConfigError(
                f"model.{name}: this block is missing; add it, or include a file of confs/base that has it"
            )
        return block

    def check_choices(self) -> None:
        """Raises ConfigError if the value of a key of `choices` is not a known field."""
        for key, known in self.choices.items():
            if (name := getattr(self, key)) not in known:
                raise ConfigError(f"model.{key} = {name}: there is no such field{nearest(name, known)}")


@dataclass(frozen=True, kw_only=True)
class SurfaceConfig(ChosenFieldsConfig):
    """Blocks of a method with a selectable signed distance and colour."""

    variance_network: VarianceConfig
    defaults: ClassVar[Mapping[str, str]] = {"surface": SDF_NETWORK, "color": RENDERING_NETWORK}
    choices: ClassVar[Mapping[str, Mapping[str, Any]]] = {"surface": SURFACES, "color": COLORS}
    surface: str = DEFAULT  # block of the signed-distance field, a key of fields.registry.SURFACES
    color: str = DEFAULT  # block of the colour field, a key of fields.registry.COLORS

    def check_fields(self) -> None:
        """Raises ConfigError for unknown fields and for fields that do not fit each other."""
        self.check_choices()
        self.block(self.surface).check()
        self._fitted()

    def _fitted(self) -> tuple[int, tuple[str, ...]]:
        features = self.block(self.surface).features
        return self.block(self.color).fits(
            self, features, FEATURES_OF.get(self.surface, f"the features of model.{self.surface}")
        )

    @property
    def field_parameters(self) -> int:
        """Trained parameters of signed distance, colour and inv_s."""
        return 1 + self.block(self.surface).parameters + self._fitted()[0]

    @property
    def field_blocks(self) -> tuple[str, ...]:
        """The blocks that determine the weights of signed distance and colour."""
        return (self.surface, *self._fitted()[1])


@dataclass(frozen=True, kw_only=True)
class RadianceFieldConfig(ChosenFieldsConfig):
    """Blocks of a method with a selectable radiance field."""

    choices = {"radiance_field": RADIANCE}
    radiance_field: str = DEFAULT  # block of the field, a key of fields.registry.RADIANCE
    rendering_network: ColorConfig | None = None  # the colour network of a density grid

    def check_fields(self) -> None:
        """Raises ConfigError for an unknown field, and for blocks that do not fit each other."""
        self.check_choices()
        self.block(self.radiance_field).fits(self)

    @property
    def parameters(self) -> int:
        """Trained parameters of the field."""
        return self.block(self.radiance_field).fits(self)[0]

    @property
    def network_blocks(self) -> tuple[str, ...]:
        """The blocks that determine the weights of the field."""
        return self.block(self.radiance_field).fits(self)[1]
