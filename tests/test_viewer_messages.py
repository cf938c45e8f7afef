"""What a client may send to the viewer: values that the page offers, in messages of the page."""

import asyncio
import math
import time
from pathlib import Path

import pytest
from browsing import address_in, demo_scene, displayed, needs_viser
from runs import ROOT

from data.errors import UserError
from models.commands.interface import read_conf
from models.results.experiment import Experiment
from models.viewer.live_render import LiveRenderer
from models.viewer.server import MessageGate
from models.viewer.sessions import add_tools
from models.viewer.tools import ConfKeys, ExportPanel

pytestmark = needs_viser
CAMERA = {"type": "ViewerCameraMessage", "wxyz": [1.0, 0, 0, 0], "position": [0.0, 0, -5], "fov": 1.0, "near": 0.01}
CAMERA |= {"far": 1000.0, "image_height": 200, "image_width": 300, "look_at": [0.0, 0, 0], "up_direction": [0.0, 1, 0]}
MOVED = {"type": "TransformControlsUpdateMessage", "name": "/region", "wxyz": [1, 0, 0, 0], "position": [0, 0, 0.5]}
CLICK = {"type": "ScenePointerMessage", "event_type": "click", "ray_origin": [0, 0, -5], "ray_direction": [0, 0, 1]}
CLICK |= {"screen_pos": [[0.5, 0.5]], "modifier": None}
BOX = {"type": "ScenePointerMessage", "event_type": "rect-select", "ray_origin": None, "ray_direction": None}
BOX |= {"screen_pos": [[0.1, 0.1], [0.5, 0.5]], "modifier": None}
ODD = (
    None,
    float("nan"),
    float("inf"),
    -1,
    0,
    1e30,
    10**400,
    "x",
    "/../x.ply",
    b"",
    [],
    {},
    [1e30] * 3,
    [[1]] * 2,
    True,
)
UNKNOWN = ("ShareUrlRequest", "FileTransferStartUpload", "RunJavascriptMessage", "GuiRemoveMessage", "NoMessage")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page with all controls, and the lines that were said."""
    folder = tmp_path_factory.mktemp("page")
    with displayed(demo_scene(), 9500) as (stage, told):
        LiveRenderer(stage)
        keys = ConfKeys(ROOT / "confs/debug.conf", folder)
        panel = ExportPanel(stage, add_tools(stage, keys, 1, folder, told.append))
        yield stage.server, panel, told


@pytest.fixture
def accepts(page):
    import msgspec

    gate = MessageGate()
    gate.server = page[0]
    return lambda content: gate.accepts(content if isinstance(content, bytes) else packed(msgspec, content))


def packed(msgspec, content):
    try:
        return msgspec.msgpack.encode(content)
    except OverflowError:  # a number that the format does not hold
        return b""


def test_every_control_of_the_page_takes_what_it_offers_and_nothing_else(page, accepts):
    controls = page[0].gui._gui_input_handle_from_uuid
    assert len(controls) > 20
    for uuid, control in controls.items():

        def sent(value, name="value", uuid=uuid):
            return accepts({"type": "GuiUpdateMessage", "uuid": uuid, "updates": {name: value}})

        options, is_number = getattr(control, "options", None), hasattr(control, "min")
        good = options or ((control.min, control.max) if is_number else (True, False))
        bad = [value for value in ODD if value not in good and not (is_number and value in (0, True))]
        bad += [control.max + 1, control.min - 1, True] if is_number else []
        assert control.disabled or all(map(sent, good)), control.label
        assert not any(map(sent, bad)), control.label
        assert not any(sent(5, name) for name in ("update_cb", "props", "removed", "sync_cb", "uuid"))


@pytest.mark.parametrize("message", [CAMERA, MOVED, CLICK, BOX])
def test_messages_of_the_page_are_accepted(accepts, message):
    assert accepts(message) and not accepts({**message, "type": "GetRenderRequestMessage"})


@pytest.mark.parametrize(
    "change",
    [
        *({"wxyz": value} for value in ([0, 0, 0, 0], [math.nan, 0, 0, 1], [0, 0, 1], ["1", 0, 0, 0], 1, None)),
        *({"position": value} for value in ([1e300, 0, 0], [0, 0], "abc")),
        *({"fov": value} for value in (0, -1, 4, math.nan, "1")),
        *({"image_width": value} for value in (0, -5, 3_000_000, 10, math.inf, "9")),
        {"image_height": 0},
    ],
    ids=str,
)
def test_a_camera_that_no_browser_has_is_dropped(accepts, change):
    assert not accepts({**CAMERA, **change})


@pytest.mark.parametrize(("message", "name"), [(MOVED, "position"), (CLICK, "ray_origin"), (BOX, "screen_pos")])
def test_numbers_that_are_not_finite_are_dropped(accepts, message, name):
    assert not any(accepts({**message, name: [value, 0, 0]}) for value in (math.nan, -math.inf, [math.nan], 1e300))


def test_only_a_screenshot_is_large(accepts):
    screenshot = {"type": "GetRenderResponseMessage", "payload": bytes(1 << 20), "render_uuid": "a"}
    assert (
        accepts(screenshot)
        and not accepts({**screenshot, "more": 1})
        and not accepts({**CLICK, "more": bytes(1 << 20)})
    )
    assert not accepts({**screenshot, "payload": [0] * (1 << 20)})


def test_other_messages_are_dropped(accepts):
    assert not any(accepts({"type": kind}) for kind in UNKNOWN)
    assert not any(map(accepts, (b"", b"\xc1", b"\x91" * 100_000, b"\xff" * 100, [], 5, {"type": []})))


def test_a_client_writes_nothing_outside_and_changes_nothing(page):
    """Fifty clients send what the page does not offer, and then what it does."""
    import msgspec
    import viser
    import websockets

    server, panel, told = page
    address = address_in(told).replace("http", "ws")
    uuid = panel.format._impl.uuid

    async def client(number):
        subprotocols, sent = [f"viser-v{viser.__version__}"], [CAMERA, b"\xc1" * 1000, {"type": "ShareUrlRequest"}]
        sent += [of("/../../victim.ply"), of(".obj" if number == 49 else ".xyz"), CAMERA]
        async with websockets.connect(address, subprotocols=subprotocols, max_size=None, open_timeout=60) as line:
            for message in sent:
                await line.send(message if isinstance(message, bytes) else msgspec.msgpack.encode(message))
            for _ in range(200):
                if panel.format.value == ".obj" and number in server.get_clients():
                    break
                await asyncio.sleep(0.1)

    def of(value):
        return {"type": "GuiUpdateMessage", "uuid": uuid, "updates": {"value": value}}

    async def all_of_them():
        await asyncio.gather(*map(client, range(50)))

    asyncio.run(all_of_them())
    assert panel.format.value == ".obj"


def test_requests_of_all_browsers_are_handled_one_after_another(page):
    running, most = [], []

    def work():
        running.append(1)
        most.append(len(running))
        time.sleep(0.01)
        running.pop()

    for future in [page[0]._thread_executor.submit(work) for _ in range(20)]:
        future.result()
    assert max(most) == 1


def test_results_have_names_of_files_in_their_folder(tmp_path):
    experiment = Experiment(read_conf("debug.conf"), tmp_path / "exp", demo_scene(), None)
    assert experiment.path("meshes", "a.ply") == tmp_path / "exp/meshes/a.ply"
    for name in ("../a.ply", "00000006/../../../a.ply", "/a.ply", "", "..", str(Path("b") / "a.ply")):
        with pytest.raises(UserError, match="is not the name of a file in"):
            experiment.path("meshes", name)
