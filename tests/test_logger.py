"""Theorems about the run's log: what is written can be read back, nothing is overwritten, nothing stops a training."""

import struct

from tensorboardX.proto.event_pb2 import Event, SessionLog

from models.runs import logger
from models.runs.logger import RunLogger


def read_events(folder):
    """All events below folder/logs, read from the TFRecord framing by hand: length, its CRC, bytes, their CRC."""
    events = []
    for path in sorted((folder / "logs").glob("events.out.tfevents.*")):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            events.append(Event.FromString(data[12 : 12 + length]))
            data = data[16 + length :]
    return events


def read_scalars(folder):
    return [(e.step, value.tag, value.simple_value) for e in read_events(folder) for value in e.summary.value]


def read_text(folder):
    return (folder / "logs" / "train.log").read_text(encoding="utf-8")


def test_a_resumed_run_appends_to_both_logs_and_tells_tensorboard(tmp_path, monkeypatch):
    monkeypatch.setattr(logger, "FLUSH_SECONDS", 0.0)
    with RunLogger(tmp_path, quiet=True) as log:
        log.info("first run")
        log.scalars(1, {"Loss/loss": 1.0})
        assert read_scalars(tmp_path) == [(1, "Loss/loss", 1.0)]  # a crash would lose none
    with RunLogger(tmp_path, quiet=True, resumed_at=1) as log:
        log.info("second run")
        log.scalars(1, {"Loss/loss": 2.0})
    text = read_text(tmp_path)
    assert text.index("first run") < text.index("second run")
    assert read_scalars(tmp_path) == [(1, "Loss/loss", 1.0), (1, "Loss/loss", 2.0)]
    starts = [event for event in read_events(tmp_path) if event.session_log.status == SessionLog.START]
    assert [event.step for event in starts] == [1]


def test_an_unusable_folder_costs_one_warning_for_each_log(tmp_path, capsys):
    (tmp_path / "logs").write_text("a file where the folder should be")
    with RunLogger(tmp_path, quiet=True) as log:
        for step in range(3):
            log.info("text")
            log.scalars(step, {"Loss/loss": 1.0})
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 2 and "text log" in warnings[0] and "TensorBoard log" in warnings[1]
    assert all(str(tmp_path / "logs") in line for line in warnings)
