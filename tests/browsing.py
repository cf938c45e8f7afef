"""A headless browser for tests: Playwright with the installed Chromium."""

from __future__ import annotations

import importlib.util
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import ROOT

from data.io.images import read_image
from data.prepare.load import load_scene
from data.scenes.scene import Scene
from models.conf import load_config
from models.viewer import server
from models.viewer.scene_display import SceneDisplay, pose_of, words

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
DESKTOP, PHONE = (1280, 900), (390, 844)
PATIENCE = 120_000  # milliseconds: without a graphics card, beside other work, a frame may take seconds
FLAGS = ("--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--no-sandbox")
CANVAS = "[...document.querySelectorAll('canvas')].some((canvas) => canvas.clientWidth > 300)"
needs_viser = pytest.mark.skipif(importlib.util.find_spec("viser") is None, reason="viser is optional, and missing")
# Console messages of a browser without a GPU, and of viser's own script, which are no errors of a page.
HARMLESS = ("GPU stall due to ReadPixels", "Automatic fallback to software WebGL", "GL Driver Message", "THREE.Clock")


def browser_path() -> str | None:
    """The first browser that there is; None without one."""
    return next((found for found in map(shutil.which, BROWSERS) if found), None)


def why_not() -> str:
    """Why no page can be tested here; "" where one can."""
    if browser_path() is None:
        return f"no headless browser is installed ({', '.join(BROWSERS)})"
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "Playwright, which drives the browser, is not installed (pip install playwright)"
    return ""


@cache
def demo_scene() -> Scene:
    """The bundled scene."""
    return load_scene(load_config(ROOT / "confs/debug.conf", "", (f"dataset.data_dir={ROOT}/data/demo",)).dataset)


@contextmanager
def displayed(scene: Scene, port: int, is_alone: bool = False) -> Iterator[tuple[SceneDisplay, list[str]]]:
    """A scene in a viewer at this port or a later one, and its messages so far."""
    told: list[str] = []
    running = server.start("127.0.0.1", port, "test", told.append)
    try:
        yield SceneDisplay(running, scene, words("en"), told.append, is_alone), told
    finally:
        server.stop(running)


def address_in(told: Iterable[str]) -> str:
    """The address with its token that a viewer printed, at 127.0.0.1."""
    found = next(filter(None, (re.search(r"http://localhost:\d+\S*", line) for line in told)))
    return found[0].replace("localhost", "127.0.0.1")


@contextmanager
def opened(address: str, size: tuple[int, int] = DESKTOP, locale: str = "en-US") -> Iterator[tuple[Any, list[str]]]:
    """The page at an address and the errors its console has shown so far, without a way to the network."""
    from playwright.sync_api import sync_playwright

    errors: list[str] = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path(), args=list(FLAGS))
        width, height = size
        context = browser.new_context(
            viewport={"width": width, "height": height}, locale=locale, has_touch=size == PHONE
        )
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: _note(errors, message))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: _require_local(errors, request.url))
        page.goto(address, timeout=2 * PATIENCE)  # Jittor may be compiling, and does not respond meanwhile
        try:
            yield page, errors
        finally:
            browser.close()


def _note(errors: list[str], message: Any) -> None:
    """An error or a warning of the console."""
    if message.type in ("error", "warning") and not any(words in message.text for words in HARMLESS):
        errors.append(message.text)


def _require_local(errors: list[str], url: str) -> None:
    """Anything that is fetched from elsewhere is an error."""
    if not url.startswith(("file:", "data:", "blob:", "http://127.0.0.1:", "ws://127.0.0.1:")):
        errors.append(f"fetched {url}")


def picture_of(page: Any, selector: str, folder: Path) -> np.ndarray:
    """What an element looks like, float [h, w, 3]."""
    path = folder / "element.png"
    page.locator(selector).first.screenshot(path=str(path))
    return read_image(path)[..., :3].astype(float)


def on_screen(camera: Any, point: np.ndarray, size: tuple[int, int]) -> tuple[float, float]:
    """Where a point of the working frame is in the window of a viewer."""
    pose = pose_of(camera)
    seen = pose[:3, :3].T @ (point - pose[:3, 3])
    focal = 0.5 * size[1] / np.tan(0.5 * camera.fov)
    return size[0] / 2 + focal * seen[0] / seen[2], size[1] / 2 + focal * seen[1] / seen[2]


def without_fonts(errors: list[str]) -> list[str]:
    """What the console said, but for the fonts that no network brings."""
    return [text for text in errors if "font" not in text.lower()]


def wait_until(page: Any, holds: Callable[[], bool], seconds: float = PATIENCE / 1000) -> bool:
    """Whether a condition holds within these seconds; the page keeps running meanwhile."""
    until = time.monotonic() + seconds
    while not (fulfilled := holds()) and time.monotonic() < until:
        page.wait_for_timeout(200)
    return fulfilled


def slide(page: Any, selector: str, value: int) -> None:
    """Move a slider as a user does."""
    page.eval_on_selector(
        selector,
        "(e, v) => { e.value = v; e.dispatchEvent(new Event('input', { bubbles: true })); "
        "e.dispatchEvent(new Event('change', { bubbles: true })); }",
        value,
    )


def drag(page: Any, selector: str, across: int, down: int = 0) -> None:
    """Drag from the middle of an element."""
    box = page.locator(selector).first.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + across / 2, y + down / 2, steps=4)
    page.mouse.move(x + across, y + down, steps=4)
    page.mouse.up()


def overflows(page: Any) -> bool:
    """Whether the page is wider than its window."""
    return page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth + 1")
