"""Who may look: requests by the viewer's own page, and by those who know the token where others reach the machine.

A browser lets any web page open a websocket to any address, also to 127.0.0.1, and tells the server only the page's
address (`Origin`). A name that an attacker points to 127.0.0.1 would make that page the viewer's own (DNS rebinding):
it shows in `Host`.
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
TOKEN = "token"  # of the address
TOKEN_BYTES = 16
PAGES = ("/", "/index.html")
LOCAL_NAME = "localhost"


@dataclass(frozen=True)
class Access:
    """What a request has to bring."""

    token: str  # "" where this machine alone reaches the viewer
    cookie: str  # the name under which a browser keeps the token

    def refusal(self, request: Request) -> str:
        """Why a request is refused, in a sentence; "" where it is not."""
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
        """Have the browser keep the token that its address brings: the page's websocket has no such address."""
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
    """With a new token where other machines reach `host`."""
    return Access("" if is_loopback(host) else secrets.token_urlsafe(TOKEN_BYTES), f"neus_viewer_{port}")


def is_loopback(host: str) -> bool:
    """Whether this machine alone reaches what listens at `host`; raises OSError for a name of no address."""
    found = {entry[4][0] for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    return all(ipaddress.ip_address(str(address)).is_loopback for address in found)


def _netloc(origin: str) -> str:
    """Host and port of an `Origin`; "" where it names none, as that of a sandboxed page or no address at all."""
    try:
        return urllib.parse.urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _is_local_name(netloc: str) -> bool:
    """Whether a `Host` names this machine from within, at whatever port: a tunnel has another one at its end."""
    try:
        name = urllib.parse.urlsplit(f"//{netloc}").hostname or ""
        return name == LOCAL_NAME or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


@contextlib.contextmanager
def guarded(access: Access) -> Iterator[list[bool]]:
    """Within, a server that is started asks `access` first; the list gets an entry for it.

    viser has no place for such a check: it is put around the one that viser gives to websockets.
    """
    from websockets.asyncio import server as websockets_server

    original, seen = websockets_server.serve, []

    def serve(*arguments: Any, process_request: Answer | None = None, **others: Any) -> Any:
        seen.append(True)
        return original(*arguments, process_request=_checked(access, process_request), **others)

    websockets_server.serve = serve
    try:
        yield seen
    finally:
        websockets_server.serve = original


def _checked(access: Access, answer: Answer | None) -> Answer:
    """`answer`, for requests that `access` admits."""

    def process(connection: Any, request: Request) -> Response | None:
        if sentence := access.refusal(request):
            return connection.respond(http.HTTPStatus.FORBIDDEN, f"{sentence}\n")
        response = None if answer is None else answer(connection, request)
        if response is not None:
            access.admit(request, response)
        return response

    return process
