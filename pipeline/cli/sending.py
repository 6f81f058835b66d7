"""One submission under way: what is missing, what was sent, how fast; told to whoever looks on."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from pipeline.cli import show
from pipeline.cli.collect import Found, NotSent, as_text
from pipeline.cli.journal import Journal, Sent
from pipeline.cli.submit import GivenUp, key_of

NAMED = 10
"""So many of what the service did not take are named; the rest is counted."""


class Sending:
    """The recordings of one submission and what became of them."""

    def __init__(self, journal: Journal, recordings: Sequence[Found], lost: list[NotSent]) -> None:
        """`lost`: what was found to be no recording before."""
        self.batch_id = journal.batch_id
        self._journal = journal
        self._recordings = recordings
        self.lost = list(lost)
        """What became no job, with the reasons."""
        self._total = len(recordings) + len(lost)
        self._size_bytes: dict[str, int] = {}
        self._jobs: dict[tuple[str, int], dict[str, Any]] = {}
        for one in recordings:
            self._recall(one)
        self.before = len(self._jobs)
        """How many an earlier run has sent."""
        self.missing = [one for one in recordings if (one.given, one.nth) not in self._jobs]
        """What is to be sent now."""
        self._progress: Progress | None = None
        self._bar: TaskID | None = None
        self._sent_bytes = 0
        if journal.resumes:
            self._tell_resumed()

    def _recall(self, one: Found) -> None:
        """Look up whether it was sent, as it is now."""
        state = None
        if one.path is not None:
            with suppress(OSError):  # opening it will tell
                state = one.path.stat()
            self._size_bytes[one.given] = state.st_size if state else 0
        if one.path is None or state is not None:
            sent = self._journal.sent.get(key_of(self.batch_id, one, state))
            if sent is not None:
                self._jobs[one.given, one.nth] = sent.job

    @property
    def jobs(self) -> list[dict[str, Any]]:
        """The jobs of all that was sent, now or before, in the order they were named."""
        places = ((one.given, one.nth) for one in self._recordings)
        return [self._jobs[place] for place in places if place in self._jobs]

    def note(self, one: Found, outcome: Sent | NotSent) -> None:
        """What became of one."""
        if isinstance(outcome, Sent):
            self._journal.note(outcome)
            self._jobs[one.given, one.nth] = outcome.job
        else:
            self.lost.append(outcome)
            if not isinstance(outcome, GivenUp):
                tell_unsent(outcome)
        if self._progress is not None and self._bar is not None:
            size = self._size_bytes.get(one.given, 0) if isinstance(outcome, Sent) else 0
            self._progress.update(self._bar, advance=1)
            self._draw_speed(size)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Draw a bar meanwhile, where there is a terminal."""
        console = show.to_stderr()
        if not console.is_terminal:
            yield
            return
        columns = (
            TextColumn("sending"),
            BarColumn(),
            TextColumn("{task.completed} of {task.total}"),
        )
        with Progress(
            *columns, TextColumn("{task.fields[speed]}"), TimeElapsedColumn(), console=console
        ) as self._progress:
            total = len(self._recordings)
            self._bar = self._progress.add_task("", total=total, completed=self.before, speed="")
            yield

    def _draw_speed(self, size_bytes: int) -> None:
        assert self._progress is not None
        self._sent_bytes += size_bytes
        task = self._progress.tasks[0]
        elapsed_s = max(task.elapsed or 0.0, 0.1)
        files_a_s = (task.completed - self.before) / elapsed_s
        speed = f"{files_a_s:.1f} files/s, {self._sent_bytes / elapsed_s / 1e6:.2f} MB/s"
        self._progress.update(task.id, speed=speed)

    def end(self) -> None:
        """All was tried: forget the submission, or say what is missing and how to go on."""
        gone = [one for one in self.lost if isinstance(one, GivenUp)]
        for one in gone[:NAMED]:
            tell_unsent(one)
        if len(gone) > NAMED:
            _say(f"not sent: {len(gone) - NAMED:,} more")
        if not self.lost:
            self._journal.remove()
        elif self._jobs:
            _say(f"{self._counts()}, batch {show.printable(self.batch_id)}; {AGAIN}")

    def tell_interrupted(self) -> None:
        """Ctrl-C: how far it came and how to go on."""
        _say(f"interrupted: {self._counts()}, batch {show.printable(self.batch_id)}; {AGAIN}")

    def _tell_resumed(self) -> None:
        count = f"{self.before:,} of {len(self._recordings):,}"
        _say(f"resuming batch {show.printable(self.batch_id)}: {count} were sent")
        known = {sent.given for sent in self._journal.sent.values()}
        for one in self.missing:
            if one.given in known and one.nth == 0:
                _say(f"it changed since it was sent and goes again: {show.printable(one.given)}")

    def _counts(self) -> str:
        return f"{len(self._jobs):,} of {self._total:,} were sent"


AGAIN = "the same command sends what is missing"


def as_json(one: NotSent) -> dict[str, Any]:
    """What became no job, for a program."""
    return {"path": as_text(one.path), "line": one.line, "reason": one.reason}


def tell_unsent(one: NotSent) -> None:
    """One line for what became no job."""
    line = f" (line {one.line})" if one.line else ""
    _say(f"not sent{line}: {show.printable(one.path)}: {one.reason}")


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)
