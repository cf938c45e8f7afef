"""The server of the viewer: check that viser is installed, choose a port, start and stop it, and control access.

Every request needs the token of the printed address, whatever its path: other users of a machine can connect to its
127.0.0.1, too. A browser lets any web page open a websocket to any address, including 127.0.0.1, and sends the server
only the address of that page (`Origin`). If an attacker's name resolves to 127.0.0.1 (DNS rebinding), `Origin` looks
like the viewer's own page, but `Host` contains that name.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import http
import http.cookies
import importlib.util
import io
import ipaddress
import logging
import secrets
import socket
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from data.errors import UserError
from models.viewer.messages import MOST_BYTES, WAITING, MessageGate

if TYPE_CHECKING:
    import viser
    from websockets.http11 import Request, Response

Answer = Callable[[Any, "Request"], "Response | None"]  # None: the connection becomes a websocket
TOKEN = "token"  # name of the query parameter
LOCAL_NAME = "localhost"


@dataclass(frozen=True)
class Access:
    """The requirements of a request."""

    token: str
    cookie: str  # name of the cookie with the token
    is_local: bool  # whether only this machine can connect

    def refusal(self, request: Request) -> str:
        """The reason why a request is rejected, one sentence; "" if it is accepted."""
        hosts, origins = request.headers.get_all("Host"), request.headers.get_all("Origin")
        if len(hosts) != 1 or (self.is_local and not _is_local_name(hosts[0])):
            return "The viewer accepts connections from this machine only; open it as localhost or 127.0.0.1."
        if any(_netloc(origin) != hosts[0].lower() for origin in origins):
            return "The request comes from another web page; the viewer accepts only its own page."
        if any(map(self._fits, (self._in_address(request), self._in_cookie(request)))):
            return ""
        return "The token is missing or wrong; open the complete address that the program prints."

    def admit(self, request: Request, response: Response) -> None:
        """Set the token of the address as a cookie: the websocket of the page has no such address."""
        response.headers["Content-Security-Policy"] = "frame-ancestors 'self'"
        response.headers["Referrer-Policy"] = "no-referrer"
        if self._fits(self._in_address(request)):
            response.headers["Set-Cookie"] = f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"

    def _fits(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(errors="replace"), self.token.encode())

    def _in_address(self, request: Request) -> str:
        return urllib.parse.parse_qs(request.path.partition("?")[2]).get(TOKEN, [""])[-1]

    def _in_cookie(self, request: Request) -> str:
        cookies: http.cookies.SimpleCookie = http.cookies.SimpleCookie()
        for text in request.headers.get_all("Cookie"):
            with contextlib.suppress(http.cookies.CookieError):
                cookies.load(text)
        return cookies[self.cookie].value if self.cookie in cookies else ""


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to `host`; raises OSError if the name has no address."""
    found = {entry[4][0] for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    return all(ipaddress.ip_address(str(address)).is_loopback for address in found)


def _netloc(origin: str) -> str:
    """Host and port of an `Origin`; "" if it has none, as for a sandboxed page."""
    try:
        return urllib.parse.urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _is_local_name(netloc: str) -> bool:
    """Whether a `Host` names this machine, at any port: an SSH tunnel may use another one."""
    try:
        name = urllib.parse.urlsplit(f"//{netloc}").hostname or ""
        return name == LOCAL_NAME or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


@contextlib.contextmanager
def guarded(access: Access, gate: MessageGate) -> Iterator[list[bool]]:
    """Servers that are started within check `access` first, and each message; the list gets an entry for each of them.

    viser has no interface for such a check, so the function that viser passes to websockets is wrapped.
    """
    from websockets.asyncio import server as websockets_server

    original, seen = websockets_server.serve, []

    def serve(handler: Any, *arguments: Any, process_request: Answer | None = None, **others: Any) -> Any:
        seen.append(True)
        others |= {"process_request": _checked(access, process_request), "max_size": MOST_BYTES, "max_queue": WAITING}
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


PACKAGE = "viser"
LOOPBACK = "127.0.0.1"
FIRST_PORT, LAST_PORT, PORT = 1024, 65535, 8080  # ports below require root
TRIES = 20  # ports tried after a busy one


def require_viser(flag: str) -> None:
    """Raises UserError if viser is not installed."""
    if importlib.util.find_spec(PACKAGE) is None:
        raise UserError(
            f"{flag}: the Python package {PACKAGE} is missing; run `pip install -r requirements-view.txt`, or "
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
    access, gate = Access(secrets.token_urlsafe(16), f"neus_viewer_{chosen}", is_loopback(host)), MessageGate()
    with guarded(access, gate) as guards, contextlib.redirect_stdout(io.StringIO()):  # viser prints a banner
        server = viser.ViserServer(host=host, port=chosen, label=title, verbose=False)
    if not guards:
        stop(server)
        raise UserError(
            f"access to the viewer cannot be restricted with {PACKAGE} {viser.__version__}; run `pip install -r "
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
