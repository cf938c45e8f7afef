"""What a browser may send: every message is checked here against what the page offers, before viser handles it.

viser casts a value to the type of its control, and sets any attribute that a message names; it also takes files and
opens a tunnel to a public server on request. Messages that the page of this viewer does not send are dropped.
"""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import Callable
from typing import Any

from data.limits import FARTHEST_CAMERA

Check = Callable[[Any], bool]
MOST_BYTES = 1 << 25  # of a message, a screenshot
WAITING = 1  # messages of a connection that are received before they are read
LARGEST_SCREENSHOT = 4096  # pixels per side
PNG_HEAD = struct.Struct(">8s8xII")
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
MOST_PIXELS = 1 << 16  # of a window's side
LARGEST_ASPECT = 10.0  # of a window


def _within(low: float, high: float) -> Check:
    return lambda value: isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _list(count: int, is_entry: Check) -> Check:
    return lambda value: isinstance(value, list) and len(value) == count and all(map(is_entry, value))


def _unit(count: int) -> Check:
    """Lists of `count` numbers with a length of about 1."""
    is_list = _list(count, _within(-2.0, 2.0))
    return lambda value: is_list(value) and 0.9 <= math.hypot(*value) <= 1.1


def _optional(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 200


def _is_picture(value: Any) -> bool:
    """A PNG of at most LARGEST_SCREENSHOT per side, or b"", which the page sends where it has none."""
    if not isinstance(value, bytes) or 0 < len(value) < PNG_HEAD.size:
        return False
    signature, *sides = PNG_HEAD.unpack_from(value) if value else (PNG_SIGNATURE,)
    return signature == PNG_SIGNATURE and max(sides, default=0) <= LARGEST_SCREENSHOT


POINT, CORNER = _list(3, _within(-FARTHEST_CAMERA, FARTHEST_CAMERA)), _list(2, _within(-2.0, 2.0))
DIRECTION, TURN = _unit(3), _unit(4)
SIDE, FINITE, INDEX = _within(1, MOST_PIXELS), _within(-1e30, 1e30), _within(0, 2**31)
HANDLE: dict[str, Check] = {"name": _is_text, "owner": _is_text}
RAY: dict[str, Check] = {"ray_origin": POINT, "ray_direction": DIRECTION, "modifier": _optional(_is_text)}
CAMERA: dict[str, Check] = {"wxyz": TURN, "position": POINT, "look_at": POINT, "up_direction": DIRECTION}
CAMERA |= {"fov": _within(0.01, 3.1), "near": FINITE, "far": FINITE, "image_height": SIDE, "image_width": SIDE}
# The fields of each message of the page, with their checks; `owner` may be missing.
FIELDS: dict[str, dict[str, Check]] = {
    "ViewerCameraMessage": CAMERA,
    "TransformControlsUpdateMessage": {**HANDLE, "wxyz": TURN, "position": POINT},
    "TransformControlsDragStartMessage": HANDLE,
    "TransformControlsDragEndMessage": HANDLE,
    "SceneNodeClickMessage": {**HANDLE, **RAY, "instance_index": _optional(INDEX), "screen_pos": CORNER},
    "GetRenderResponseMessage": {"payload": _is_picture, "render_uuid": _is_text},
    "GuiUpdateMessage": {"uuid": _is_text, "updates": lambda value: isinstance(value, dict)},
}
POINTERS: dict[str, dict[str, Check]] = {  # of a ScenePointerMessage, by its event_type
    "click": {**RAY, "event_type": _is_text, "screen_pos": _list(1, CORNER)},
    "rect-select": {name: _optional(check) for name, check in RAY.items()}
    | {"event_type": _is_text, "screen_pos": _list(2, CORNER)},
}


class MessageGate:
    """The messages of all browsers, once the server is known."""

    def __init__(self) -> None:
        self.server: Any = None

    async def admitted(self, connection: Any, handler: Callable[[Any], Any]) -> None:
        """Handle a connection, of which only the messages that this accepts are received."""
        receive = connection.recv

        async def accepted(*arguments: Any, **options: Any) -> Any:
            while not self.accepts(message := await receive(*arguments, **options)):
                await asyncio.sleep(0)  # other connections are served meanwhile
            return message

        vars(connection)["recv"] = accepted
        await handler(connection)

    def accepts(self, message: Any) -> bool:
        """Whether the page can send this message."""
        import msgspec

        try:
            content = msgspec.msgpack.decode(message)
            return self._is_offered(content.pop("type"), content)
        except Exception:  # noqa: BLE001 (whatever cannot be read is not accepted)
            return False

    def _is_offered(self, kind: str, content: dict[str, Any]) -> bool:
        fields = POINTERS[content["event_type"]] if kind == "ScenePointerMessage" else FIELDS[kind]
        if not set(fields) - {"owner"} <= set(content) <= set(fields):
            return False
        if not all(fields[name](value) for name, value in content.items()):
            return False
        if kind == "ViewerCameraMessage":
            return 1 / LARGEST_ASPECT <= content["image_width"] / content["image_height"] <= LARGEST_ASPECT
        if kind == "GuiUpdateMessage":
            control = self.server.gui._gui_input_handle_from_uuid[content["uuid"]]
            return set(content["updates"]) == {"value"} and offers(control, content["updates"]["value"])
        return True


def offers(control: Any, value: Any) -> bool:
    """Whether a control of the page can have this value: one of its options, or a number in its range.

    A control without options, and a number without both bounds, has none.
    """
    if control.disabled:
        return False
    options = getattr(control, "options", None)
    if options is not None:
        return isinstance(value, str) and value in options
    if isinstance(control.value, bool):  # a checkbox or a button
        return isinstance(value, bool)
    is_whole = not isinstance(control.value, int) or float(value).is_integer()
    return is_whole and _within(control.min, control.max)(value)
