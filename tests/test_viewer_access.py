"""Who may look through the viewer: its own page, from this machine, or with the token of the printed address."""

import contextlib
import re
import socket
from types import SimpleNamespace

import pytest
from browsing import needs_viser

from data.errors import UserError
from models.viewer import server
from models.viewer.server import Access


def asking(path="/", **headers):
    """A request of a browser."""
    from websockets.datastructures import Headers

    return SimpleNamespace(path=path, headers=Headers({"Host": "localhost:8080", **headers}))


SOCKET = {"Upgrade": "websocket"}
ACCESS = Access("secret", "viewer")


COOKIE = {"Cookie": "viewer=secret"}
EVIL, BOX = "http://evil.example", {"Host": "box:8080", "Origin": "http://box:8080"}
REQUESTS = [
    ({"Host": "127.0.0.1:8080", "Origin": "http://127.0.0.1:8080", **COOKIE}, True),
    # the near end of an SSH tunnel
    ({"Host": "localhost:9999", "Origin": "http://LOCALHOST:9999", **COOKIE}, True),
    ({}, False),  # another user of the machine
    # the second is another server on the same machine
    *(({"Origin": origin, **COOKIE}, False) for origin in (EVIL, "http://localhost:3000", "null", "http://[")),
    ({"Host": "evil.example:8080", "Origin": f"{EVIL}:8080"}, False),  # DNS rebinding: it has no cookie
    (BOX, False),
    ({**BOX, "Cookie": "a=b; viewer=secret"}, True),
    ({**BOX, "Origin": EVIL, "Cookie": "viewer=secret"}, False),
    ({**BOX, "Cookie": "viewer=secrets"}, False),
    ({**BOX, "Cookie": "viewer=secre; ;;=[, x=secret"}, False),
]


@needs_viser
@pytest.mark.parametrize(("request_of", "is_admitted"), REQUESTS)
def test_a_websocket_is_for_the_viewers_own_page(request_of, is_admitted):
    assert (ACCESS.refusal(asking(**SOCKET, **request_of)) == "") == is_admitted
    # whatever the path, and without an upgrade, too
    for path in ("/", "//", "/./", "/index.html/", "/%2e", "/x.js", "/?token=\udcc3"):
        assert (ACCESS.refusal(asking(path, **request_of)) == "") == is_admitted
    assert (ACCESS.refusal(asking("/?token=secret", **SOCKET, **request_of)) == "") or not is_admitted


def asked_of(port, headers, path="/"):
    """The first line of what a server answers, and all of it."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as line:
        head = {"Host": f"127.0.0.1:{port}", "Connection": "close", **headers}
        line.sendall("\r\n".join([f"GET {path} HTTP/1.1", *(f"{k}: {v}" for k, v in head.items()), "", ""]).encode())
        found = b""
        while b"\r\n\r\n" not in found and (part := line.recv(65536)):
            found += part
    return found.split(b"\r\n")[0].decode(), found.decode(errors="replace")


def of_a_socket(port, origin):
    """What a browser sends for a page at `origin`."""
    import viser

    keys = {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13"}
    keys |= {"Connection": "Upgrade", "Sec-WebSocket-Protocol": f"viser-v{viser.__version__}"}
    return {**SOCKET, **keys, "Origin": origin}


@contextlib.contextmanager
def viewer_at(host, port):
    """A running viewer; yields its port and what it said."""
    told = []
    running = server.start(host, port, "test", told.append)
    try:
        yield running.get_port(), told
    finally:
        server.stop(running)


@needs_viser
@pytest.mark.parametrize(("host", "name"), [("0.0.0.0", r"0\.0\.0\.0"), ("127.0.0.1", "localhost")])
def test_a_viewer_asks_for_its_token(monkeypatch, host, name):
    with viewer_at(host, 9330) as (port, told):
        path = re.search(rf"http://{name}:{port}(/\?token=\S{{16,}}) ", told[-1])[1]
        own = of_a_socket(port, f"http://127.0.0.1:{port}")
        assert " 403 " in asked_of(port, {})[0] and " 403 " in asked_of(port, own)[0]
        first, answer = asked_of(port, {}, path)
        cookie = re.search(r"Set-Cookie: ([^;]+); Path=/; HttpOnly; SameSite=Strict", answer)[1]
        assert " 200 " in first and " 101 " in asked_of(port, {**own, "Cookie": cookie})[0]
    monkeypatch.setattr(server, "guarded", lambda access, gate: contextlib.nullcontext([]))
    with pytest.raises(UserError, match="access to the viewer cannot be restricted"):
        server.start("127.0.0.1", 9340, "test", str)
