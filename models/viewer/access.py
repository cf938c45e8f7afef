"""Access control of the viewer: only its own page, and only with the token if other machines can connect.

A browser lets any web page open a websocket to any address, including 127.0.0.1, and sends the server only the address
of that page (`Origin`). If an attacker's name resolves to 127.0.0.1 (DNS rebinding), `Origin` looks like the viewer's
own page, but `Host` contains that name.
"""

from __future__ import annotations

import contextlib
import hmac
import http
import http.cookies
import ipaddress
import secrets
import socket
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from websockets.http11 import Request, Response

Answer = Callable[[Any, "Request"], "Response | None"]  # None: the connection becomes a websocket
TOKEN = "token"  # name of the query parameter
TOKEN_BYTES = 16
PAGES = ("/", "/index.html")
LOCAL_NAME = "localhost"


@dataclass(frozen=True)
class Access:
    """The requirements of a request."""

    token: str  # "" if only this machine can connect
    cookie: str  # name of the cookie with the token

    def refusal(self, request: Request) -> str:
        """The reason why a request is rejected, one sentence; "" if it is accepted."""
        hosts, origins = request.headers.get_all("Host"), request.headers.get_all("Origin")
        if len(hosts) != 1 or not (self.token or _is_local_name(hosts[0])):
            return "The viewer accepts connections from this machine only; open it as localhost or 127.0.0.1."
        if any(_netloc(origin) != hosts[0].lower() for origin in origins):
            return "The request comes from another web page; the viewer accepts only its own page."
        is_open = request.path.partition("?")[0] not in PAGES and "Upgrade" not in request.headers
        if is_open or not self.token or any(map(self._fits, (self._in_address(request), self._in_cookie(request)))):
            return ""
        return "The token is missing or wrong; open the complete address that the program prints."

    def admit(self, request: Request, response: Response) -> None:
        """Set the token of the address as a cookie: the websocket of the page has no such address."""
        response.headers["Content-Security-Policy"] = "frame-ancestors 'self'"
        response.headers["Referrer-Policy"] = "no-referrer"
        if self.token and self._fits(self._in_address(request)):
            response.headers["Set-Cookie"] = f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"

    def _fits(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())

    def _in_address(self, request: Request) -> str:
        return urllib.parse.parse_qs(request.path.partition("?")[2]).get(TOKEN, [""])[-1]

    def _in_cookie(self, request: Request) -> str:
        cookies: http.cookies.SimpleCookie = http.cookies.SimpleCookie()
        for text in request.headers.get_all("Cookie"):
            with contextlib.suppress(http.cookies.CookieError):
                cookies.load(text)
        return cookies[self.cookie].value if self.cookie in cookies else ""


def access_to(host: str, port: int) -> Access:
    """Access with a new token if other machines can connect to `host`."""
    return Access("" if is_loopback(host) else secrets.token_urlsafe(TOKEN_BYTES), f"neus_viewer_{port}")


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
def guarded(access: Access) -> Iterator[list[bool]]:
    """Servers that are started within check `access` first; the list gets one entry for each of them.

    viser has no interface for such a check, so the function that viser passes to websockets is wrapped.
    """
    from websockets.asyncio import server as websockets_server

    original, seen = websockets_server.serve, []

    def serve(*arguments: Any, process_request: Answer | None = None, **others: Any) -> Any:
        seen.append(True)
        return original(*arguments, process_request=_checked(access, process_request), **others)

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
