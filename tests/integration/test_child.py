"""A child hears its signals, however we were started ourselves."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from workers import child


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_a_signal_that_a_background_shell_ignores_reaches_a_child(
    tmp_path: Path, number: signal.Signals
) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        process = child.spawn(["sleep", "30"], tmp_path / "log")
    finally:
        signal.signal(number, before)
    try:
        process.send_signal(number)
        assert process.wait(5) == -number
    finally:
        process.kill()
        process.wait()
