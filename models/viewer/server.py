"""The server of the viewer: check that viser is installed, choose a port, start and stop it, and control access.

Every request needs the token of the printed address, whatever its path: other users of a machine can connect to its
127.0.0.1, too. The page gets it as a cookie. Web pages of other origins on the same machine would send that cookie, so
the `Origin` of a request must be the viewer's own page.

viser casts a value to the type of its control, and sets any attribute that a message names; it also takes files and
opens a tunnel to a public server on request. Messages that the page of this viewer does not send are dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hmac
import http
import http.cookies
import importlib.util
import io
import logging
import math
import secrets
import socket
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from data.errors import UserError

if TYPE_CHECKING:
    import viser
    from websockets.http11 import Request, Response

Answer = Callable[[Any, "Request"], "Response | None"]  # None: the connection becomes a websocket
TOKEN = "token"  # name of the query parameter
LOCAL_NAME = "localhost"
MOST_MESSAGE_BYTES, MOST_CONTROL_BYTES = 1 << 25, 1 << 16  # of a screenshot, and of any other message
MOST_WAITING = 1  # messages of a connection that are received before they are read
# The messages of viser's page, besides GuiUpdateMessage, which `offers` checks.
PAGE_MESSAGES = {
    *("ViewerCameraMessage", "TransformControlsUpdateMessage", "TransformControlsDragStartMessage"),
    *("TransformControlsDragEndMessage", "SceneNodeClickMessage", "ScenePointerMessage", "GetRenderResponseMessage"),
}
LARGEST_NUMBER = 1e6  # of a message; the scene is the unit sphere
LARGEST_SIDE, LARGEST_ASPECT = 16384, 8.0  # pixels of a browser's picture, and width / height or height / width
LEAST_ROTATION = 1e-3  # largest component of a quaternion that can be normalised


@dataclass(frozen=True)
class Access:
    """The requirements of a request."""

    token: str
    cookie: str  # name of the cookie with the token

    def refusal(self, request: Request) -> str:
        """The reason why a request is rejected, one sentence; "" if it is accepted."""
        host = request.headers.get("Host", "").lower()
        if any(origin.partition("://")[2].lower() != host for origin in request.headers.get_all("Origin")):
            return "The request comes from another web page; the viewer accepts only its own page."
        tokens = (self._token_in_address(request), self._token_in_cookie(request))
        if any(hmac.compare_digest(token.encode(errors="replace"), self.token.encode()) for token in tokens):
            return ""
        return "The token is missing or wrong; open the complete address that the program prints."

    def admit(self, request: Request, response: Response) -> None:
        """Set the token of the address as a cookie: the websocket of the page has no such address."""
        response.headers["Content-Security-Policy"] = "frame-ancestors 'self'"
        response.headers["Referrer-Policy"] = "no-referrer"
        if self._token_in_address(request) == self.token:
            response.headers["Set-Cookie"] = f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"

    def _token_in_address(self, request: Request) -> str:
        return urllib.parse.parse_qs(request.path.partition("?")[2]).get(TOKEN, [""])[-1]

    def _token_in_cookie(self, request: Request) -> str:
        cookies: http.cookies.SimpleCookie = http.cookies.SimpleCookie()
        for text in request.headers.get_all("Cookie"):
            with contextlib.suppress(http.cookies.CookieError):
                cookies.load(text)
        return cookies[self.cookie].value if self.cookie in cookies else ""


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
            if len(message) > MOST_CONTROL_BYTES:
                kind = Literal["GetRenderResponseMessage"]
                fields: list[Any] = [("type", kind), ("payload", bytes), ("render_uuid", str, "")]
                screenshot = msgspec.defstruct("Screenshot", fields, forbid_unknown_fields=True)
                return bool(msgspec.msgpack.decode(message, type=screenshot))
            content = msgspec.msgpack.decode(message)
            if content["type"] != "GuiUpdateMessage":
                is_usable = is_camera if content["type"] == "ViewerCameraMessage" else are_finite
                return content["type"] in PAGE_MESSAGES and is_usable(content)
            control = self.server.gui._gui_input_handle_from_uuid[content["uuid"]]
            return set(content["updates"]) == {"value"} and offers(control, content["updates"]["value"])
        except Exception:  # noqa: BLE001 (whatever cannot be read is not accepted)
            return False


def are_finite(value: Any) -> bool:
    """Whether all numbers of a message are finite and at most LARGEST_NUMBER."""
    if isinstance(value, dict | list):
        return all(map(are_finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, int | float) or abs(value) <= LARGEST_NUMBER


def is_camera(content: Any) -> bool:
    """Whether the message has a rotation, vectors, an angle of view and the sides of a browser's picture."""
    rotation, vectors = content["wxyz"], [content[name] for name in ("position", "look_at", "up_direction")]
    width, height, fov = content["image_width"], content["image_height"], content["fov"]
    numbers = [*rotation, *(number for vector in vectors for number in vector), width, height, fov]
    return (
        all(isinstance(number, int | float) for number in numbers)
        and are_finite(numbers)
        and (len(rotation), *map(len, vectors)) == (4, 3, 3, 3)
        and max(map(abs, rotation)) > LEAST_ROTATION
        and 0 < fov < math.pi
        and 1 <= width <= LARGEST_SIDE
        and 1 <= height <= LARGEST_SIDE
        and 1 / LARGEST_ASPECT <= width / height <= LARGEST_ASPECT
    )


def offers(control: Any, value: Any) -> bool:
    """Whether a control of the page can have this value: one of its options, or a number in its range.

    A control without options, and a number without both bounds, has none.
    """
    if control.disabled:
        return False
    options = getattr(control, "options", None)
    if options is not None:
        return isinstance(value, str) and value in options
    if isinstance(control.value, bool) or isinstance(value, bool):  # a checkbox or a button
        return isinstance(control.value, bool) and isinstance(value, bool)
    is_whole = not isinstance(control.value, int) or float(value).is_integer()
    return is_whole and control.min <= value <= control.max


@contextlib.contextmanager
def guarded(access: Access, gate: MessageGate) -> Iterator[list[bool]]:
    """Servers that are started within check `access` first, and each message; the list gets an entry for each of them.

    viser has no interface for such a check, so the function that viser passes to websockets is wrapped.
    """
    from websockets.asyncio import server as websockets_server

    original, seen = websockets_server.serve, []

    def serve(handler: Any, *arguments: Any, process_request: Answer | None = None, **others: Any) -> Any:
        seen.append(True)
        others |= {"max_size": MOST_MESSAGE_BYTES, "max_queue": MOST_WAITING}
        others["process_request"] = _checked(access, process_request)
        return original(lambda connection: gate.admitted(connection, handler), *arguments, **others)

    vars(websockets_server)["serve"] = serve
    try:
        yield seen
    finally:
        vars(websockets_server)["serve"] = original


def _checked(access: Access, answer: Answer | None) -> Answer:
    """`answer` for requests that `access` accepts."""

    def process(connection: Any, request: Request) -> Response | None:
        if sentence := access.refusal(request):
            return connection.respond(http.HTTPStatus.FORBIDDEN, f"{sentence}\n")
        response = None if answer is None else answer(connection, request)
        if response is not None:
            access.admit(request, response)
        return response

    return process


LOOPBACK = "127.0.0.1"
FIRST_PORT, LAST_PORT, PORT = 1024, 65535, 8080  # ports below require root
TRIES = 20  # ports tried after a busy one


def require_viser(flag: str) -> None:
    """Raises UserError if viser is not installed."""
    if importlib.util.find_spec("viser") is None:
        raise UserError(
            f"{flag}: the Python package viser is missing; run `pip install -r requirements-view.txt`, or "
            "open report.html, which needs no package"
        )


def free_port(host: str, port: int, say: Callable[[str], None]) -> int:
    """`port`, or the next free one, which is logged; raises UserError if none is free on `host`."""
    if not host:  # an empty host binds all addresses
        raise UserError(f"--host: is empty; use {LOOPBACK} for this machine only, 0.0.0.0 for access from the network")
    for tried in range(port, min(port + TRIES, LAST_PORT) + 1):
        try:
            _bind(host, tried)
        except (OSError, UnicodeError) as error:  # UnicodeError: not a host name
            if getattr(error, "errno", None) == errno.EADDRINUSE:
                continue
            why = getattr(error, "strerror", None) or error
            raise UserError(
                f"--host {host}: this machine cannot listen there ({why}); use {LOOPBACK} for this machine "
                "only, 0.0.0.0 for access from the network"
            ) from error
        if tried != port:
            say(f"port {port} is in use; the viewer uses {tried}")
        return tried
    raise UserError(f"--port {port}: this port and the next {TRIES} are in use; choose another one")


def _bind(host: str, port: int) -> None:
    """Raises OSError if no server can bind `port` at one of the addresses of `host`."""
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # the option that asyncio sets
            probe.bind(address)


def start(host: str, port: int, title: str, say: Callable[[str], None]) -> viser.ViserServer:
    """Start a server and log its address; raises UserError if it cannot be started."""
    import viser

    chosen = free_port(host, port, say)
    logging.getLogger("websockets").setLevel(logging.CRITICAL)  # no message for a closed tab
    access, gate = Access(secrets.token_urlsafe(16), f"neus_viewer_{chosen}"), MessageGate()
    with guarded(access, gate) as guards, contextlib.redirect_stdout(io.StringIO()):  # viser prints a banner
        server = viser.ViserServer(host=host, port=chosen, label=title, verbose=False)
    if not guards:
        stop(server)
        raise UserError(
            f"access to the viewer cannot be restricted with viser {viser.__version__}; run `pip install -r "
            "requirements-view.txt`, or open report.html"
        )
    gate.server = server
    server._thread_executor._max_workers = 1  # requests of all browsers are handled one after another
    server.gui.configure_theme(show_logo=False, show_share_button=False)
    # Without environment reflections and shadows, which take half of the start-up time of a browser without a GPU.
    server.scene.configure_environment_map(None)
    server.scene.configure_default_lights(cast_shadow=False)
    server.scene.add_light_ambient("/daylight", intensity=1.2)  # from all sides, so that no side of a mesh is dark
    if (port := server.get_port()) != chosen:  # another program took the port meanwhile
        say(f"port {chosen} is in use; the viewer uses {port}")
    name = LOCAL_NAME if host == LOOPBACK else f"[{host}]" if ":" in host else host
    say(f"viewer: http://{name}:{port}/?{TOKEN}={access.token} (Ctrl-C stops it)")
    return server


def stop(server: viser.ViserServer) -> None:
    """Stop the server without its message."""
    with contextlib.redirect_stdout(io.StringIO()):
        server.stop()
