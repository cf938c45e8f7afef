"""The server of the viewer: check that viser is installed, choose a port, start and stop it."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import io
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from data.errors import UserError
from models.viewer.access import LOCAL_NAME, TOKEN, access_to, guarded

if TYPE_CHECKING:
    import viser

PACKAGE = "viser"
LOOPBACK = "127.0.0.1"
FIRST_PORT, LAST_PORT, PORT = 1024, 65535, 8080  # ports below require root
DAYLIGHT = 1.2  # from all sides, so that no side of a mesh is dark
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
    access = access_to(host, chosen)
    with guarded(access) as guards, contextlib.redirect_stdout(io.StringIO()):  # viser prints a banner
        server = viser.ViserServer(host=host, port=chosen, label=title, verbose=False)
    if not guards:
        stop(server)
        raise UserError(
            f"access to the viewer cannot be restricted with {PACKAGE} {viser.__version__}; run `pip install -r "
            "requirements-view.txt`, or open report.html"
        )
    server.gui.configure_theme(show_logo=False, show_share_button=False)
    # Without environment reflections and shadows, which take half of the start-up time of a browser without a GPU.
    server.scene.configure_environment_map(None)
    server.scene.configure_default_lights(cast_shadow=False)
    server.scene.add_light_ambient("/daylight", intensity=DAYLIGHT)
    if (port := server.get_port()) != chosen:  # another program took the port meanwhile
        say(f"port {chosen} is in use; the viewer uses {port}")
    name = LOCAL_NAME if host == LOOPBACK else f"[{host}]" if ":" in host else host
    say(f"viewer: http://{name}:{port}{f'/?{TOKEN}={access.token}' if access.token else ''} (Ctrl-C stops it)")
    return server


def stop(server: viser.ViserServer) -> None:
    """Stop the server without its message."""
    with contextlib.redirect_stdout(io.StringIO()):
        server.stop()
