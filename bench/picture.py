"""The picture of the queue in the README: `python -m bench.picture` makes it again.

In: nothing; everything is started in a throw-away folder with the echo engine, the shipped
recordings are submitted several times over, and in the middle of the work `fairscribe queue` is
typed into a terminal of 110 columns. Out: docs/queue.svg, what that terminal showed. Another
command may be given: `python -m bench.picture docs/jobs.svg list --limit 12`.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from bench.demo import CLI, RECORDINGS, ask, everything_up, throwaway_home

TARGET = Path(__file__).resolve().parents[1] / "docs" / "queue.svg"
COMMAND = ("queue", "--limit", "6")
COLUMNS, LINES = 110, 40
LOOK_S = 4.0
"""How long to look at a command that goes on by itself before Ctrl-C."""

BUSY = {"ENGINE": "echo", "SLOTS": "4", "ECHO_FIXED_S": "5"}
"""Slow enough that recordings wait."""

REDRAWN = re.compile(r"(?:\r?\x1b\[2K|\x1b\[1A\x1b\[2K|\x1b\[H|\x1b\[2J)+")
"""How a live table goes back to its first line."""


def main(argv: Sequence[str]) -> int:
    """Take the picture; the exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # leave no folder behind then either
        signal.signal(number, lambda *_: sys.exit(1))
    target, command = (Path(argv[0]), tuple(argv[1:])) if argv else (TARGET, COMMAND)
    files = sorted(str(file) for file in RECORDINGS.iterdir() if file.suffix != ".json")
    with throwaway_home() as home, everything_up(home, **BUSY) as (_, env):
        for batch in ("monday", "tuesday", "wednesday"):
            argv = [*CLI, "submit", *files, "--batch-id", batch]
            subprocess.run(argv, env=env, stdout=subprocess.DEVNULL, check=True)
        wait_until_busy(env)
        shown = seen(typed(command, env))
    target.write_text(picture(f"fairscribe {' '.join(command)}", shown), "utf-8")
    print(f"{target}: {target.stat().st_size} bytes")
    return 0


def wait_until_busy(env: dict[str, str]) -> None:
    """Until recordings wait for the engine and for the survey. Exits when they never do."""
    for _ in range(60):
        waiting = ask(env, "queue")["waiting"]
        if waiting["transcribe"] >= 3 and waiting["survey"] >= 3:
            return
        time.sleep(0.3)
    raise SystemExit(f"nobody waits: {waiting}")


def typed(command: Sequence[str], env: dict[str, str]) -> str:
    """All that `fairscribe COMMAND` sends to a terminal until it ends, or is ended by Ctrl-C."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    env = {**env, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(LINES)}
    process = subprocess.Popen(
        [*CLI, *command], env=env, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said, ends_s = b"", time.monotonic() + LOOK_S
    while True:
        left_s = ends_s - time.monotonic()
        if left_s <= 0 and process.poll() is None:
            process.send_signal(signal.SIGINT)
            left_s = LOOK_S
        if not select.select([ours], [], [], max(0.0, left_s))[0] and process.poll() is not None:
            break
        try:
            chunk = os.read(ours, 65_536)
        except OSError:  # Linux says so when nobody has the other end any more
            break
        said += chunk
    process.wait()
    os.close(ours)
    return said.decode()


def seen(said: str) -> str:
    """What stands on the screen at the end: of a live table its last state."""
    said = re.sub(r"\x1b\[\?\d+[hl]|\x1b\[\d*K(?<!2K)", "", said).replace("\r\n", "\n")
    drawn = [state for state in REDRAWN.split(said) if state.strip()]
    return drawn[-1].rstrip() if drawn else ""


def picture(title: str, shown: str) -> str:
    """An SVG of a terminal. It names no font to be fetched: who looks at it asks nobody else."""
    screen = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    screen.print(Text.from_ansi(shown), soft_wrap=True)
    plain = re.sub(r"\s*@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return screen.export_svg(
        title=title, theme=DIMMED_MONOKAI, code_format=plain, unique_id="queue"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
