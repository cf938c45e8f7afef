"""All modes, in the order of the help page. To add one, write its module in this package and add it here."""

from __future__ import annotations

from models.commands import (
    compare,
    doctor,
    evaluate,
    export_splats,
    inspect,
    interpolate,
    plan,
    prepare,
    reconstruct,
    render,
    train,
    validate_image,
    validate_mesh,
    view,
)

OF_MODELS = (train, validate_mesh, validate_image, interpolate, render, evaluate, export_splats)
OTHERS = (compare, view, prepare, reconstruct, inspect, plan, doctor)
COMMANDS = tuple(module.COMMAND for module in (*OF_MODELS, *OTHERS))
BY_NAME = {command.name: command for command in COMMANDS}
# For the message about an unknown mode: first the modes whose value is their name.
MODE_NAMES = tuple(command.title for command in sorted(COMMANDS, key=lambda command: command.is_named is not None))
