"""The ways to a recording's length, ours and those of others, and how long each takes."""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import av
import mutagen
from av.container import InputContainer

from pipeline.errors import EmptyRecording, FairscribeError, PartDown
from pipeline.intake import container
from pipeline.intake.opening import DECODERS, DEMUXERS, NamelessFile
from pipeline.intake.prober import Prober
from pipeline.recording import Probe

PROBE_LIMIT_S = 24 * 3_600.0
"""Longest recording probed here, seconds."""
TIMING_LIMIT_S = 120.0
"""Rounds end then: files of many hours are walked through once."""
EMPTY_REQUESTS = 200
"""For the kernel counts processor time in steps of 10 ms."""


@dataclass(frozen=True)
class Row:
    """A file and what is true of it."""

    path: Path
    expected: str
    true_s: float
    """0 where there is no sound."""

    @property
    def decodable(self) -> bool:
        """Whether there is a length to find."""
        return self.expected in ("ok", "partial")

    def right(self, found_s: float | None) -> bool:
        """Within 2 %, or a quarter of a second: encoders pad that much."""
        return found_s is not None and abs(found_s - self.true_s) <= max(0.02 * self.true_s, 0.25)


Found = Probe | FairscribeError


def probed(prober: Prober, row: Row) -> Found:
    """Through the sandbox, as in service. Raises `PartDown` when that fails."""
    fd = os.open(row.path, os.O_RDONLY)
    try:
        return prober.probe(fd, row.path.name)
    except PartDown:
        raise
    except FairscribeError as refused:
        return refused
    finally:
        os.close(fd)


class Timing:
    """Times files again and again, every way in turn, so that a slow moment is slow for all."""

    def __init__(self, prober: Prober, found: dict[Row, Found]) -> None:
        by_source = {row: f.source for row, f in found.items() if isinstance(f, Probe)}
        self._headers = [row for row, source in by_source.items() if source == "header"]
        self._scans = [row for row, source in by_source.items() if source == "scan"]
        self._prober = prober
        self._ms: dict[tuple[str, Row], list[float]] = defaultdict(list)

    def run(self, rounds: int) -> dict[str, float | None]:
        """Medians, milliseconds; None where no file went that way."""
        ways: list[tuple[str, Callable[[Row], Any]]] = [
            ("ours", _ours),
            ("mutagen", mutagen_s),
            ("pyav", pyav_s),
            ("sandbox", lambda row: probed(self._prober, row)),
        ]
        end_s = time.monotonic() + TIMING_LIMIT_S
        for number in range(-1, rounds):  # the first warms up and does not count
            for row in self._headers:
                turn = (number + 1) % len(ways)
                for name, look in ways[turn:] + ways[:turn]:
                    self._time(name, row, look, counts=number >= 0)
            for row in self._scans:
                self._time("ours", row, _ours, counts=number >= 0)
            if number >= 0 and time.monotonic() > end_s:
                break
        added = [self._of("sandbox", row) - self._of("ours", row) for row in self._headers]
        return {
            "header_ms": _median([self._of("ours", row) for row in self._headers]),
            "scan_ms": _median([self._of("ours", row) for row in self._scans]),
            "fork_ms": _median(added),
            "mutagen_ms": _median([self._of("mutagen", row) for row in self._headers]),
            "pyav_header_ms": _median([self._of("pyav", row) for row in self._headers]),
        }

    def _time(self, name: str, row: Row, look: Callable[[Row], Any], *, counts: bool) -> None:
        start_s = time.perf_counter()
        quietly(look, row)
        if counts:
            self._ms[name, row].append(1_000 * (time.perf_counter() - start_s))

    def _of(self, name: str, row: Row) -> float:
        return statistics.median(self._ms[name, row])


def _ours(row: Row) -> float:
    """What a child of the sandbox does, here."""
    fd = os.open(row.path, os.O_RDONLY)
    try:
        return container.probe(NamelessFile(fd), row.path.name, PROBE_LIMIT_S).duration_s
    finally:
        os.close(fd)


def mutagen_s(row: Row) -> float | None:
    """As people use it: by path, so that it may go by the name."""
    read = mutagen.File(row.path)  # type: ignore[attr-defined]
    return float(read.info.length) if read is not None else None


def pyav_s(row: Row) -> float | None:
    """What FFmpeg reads in the header of the first audio stream, with our list of formats."""
    options = {"format_whitelist": DEMUXERS, "codec_whitelist": ",".join(sorted(DECODERS))}
    with cast(InputContainer, av.open(str(row.path), options=options)) as opened:
        stream = opened.streams.audio[0]
        if stream.duration and stream.time_base:
            return float(stream.duration * stream.time_base)
        return opened.duration / av.time_base if opened.duration else None


def quietly(look: Callable[[Row], float | None], row: Row) -> float | None:
    """Its answer; None when it raises: both libraries raise anything."""
    try:
        return look(row)
    except Exception:
        return None


def fork_cpu_ms(prober: Prober) -> float:
    """Processor time of the sandbox for one request with nothing to do, milliseconds."""
    empty = os.memfd_create("empty")
    before_s = _cpu_s(prober.server_pid)
    for _ in range(EMPTY_REQUESTS):
        with suppress(EmptyRecording):
            prober.probe(empty, "")
    os.close(empty)
    return round(1_000 * (_cpu_s(prober.server_pid) - before_s) / EMPTY_REQUESTS, 3)


def _cpu_s(pid: int) -> float:
    """Seconds a process and the children it has waited for have had a processor."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _median(values: Sequence[float]) -> float | None:
    return round(statistics.median(values), 3) if values else None
