"""How right probes are, and how fast: each file of a list against what is true of it.

    fairscribe bench probe --manifest FILE.tsv [--rounds N] [--json]

FILE.tsv has the columns name, expected (ok, partial: damaged but sound; reject: no sound;
reject_or_recover: either) and true_duration_s; files lie beside it. Probes and surveys go through
the sandbox, as in service.

    decodable   files expected ok or partial; right: found within 2 % or 0.25 s of the true length
    refusable   files expected reject; accepted: those that neither probe nor survey refused
    wrong       decodable files with another length, or refused (found: why)
    header_ms   a file whose header is believed, looked at in this process; scan_ms: one that is
                walked through; medians over files of each file's median over rounds
    fork_ms     what the sandbox adds: a request's time less the work inside, on the files of
                header_ms; fork_cpu_ms: processor time of a request for an empty file, all of it
                (where others use the machine, times of the wall tell of them, too)
    mutagen_ms, pyav_header_ms    mutagen.File and PyAV's header, on these same files, in turn
    mutagen_right, pyav_right     how many of the decodable files each gets right

A probe takes recordings of up to 24 h here, so that a long one is measured; a survey, as in
service, of up to 4 h, so that ten hours in 72 kB are not decoded.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import av
import mutagen
from av.container import InputContainer

from bench.listed import Listed, read_listed
from pipeline.errors import (
    BadRequest,
    EmptyRecording,
    FairscribeError,
    LimitExceeded,
    ParserCrashed,
    PartDown,
)
from pipeline.intake import container
from pipeline.intake.opening import DECODERS, DEMUXERS, NamelessFile
from pipeline.intake.prober import Prober
from pipeline.recording import Probe

PROBE_LIMIT_S = 24 * 3_600.0
SURVEY_LIMIT_S = 4 * 3_600.0
"""Longest recordings taken here, seconds."""
ROUNDS = 7
TIMING_LIMIT_S = 120.0
"""Rounds end then: files of many hours are walked through once."""
EMPTY_REQUESTS = 200
"""For the kernel counts processor time in steps of 10 ms."""
TIMES = ("header_ms", "scan_ms", "fork_ms", "fork_cpu_ms", "mutagen_ms", "pyav_header_ms")
EXPECTED = ("ok", "partial", "reject", "reject_or_recover")
UNSAFE = (ParserCrashed.code, LimitExceeded.code)
"""Files the sandbox was needed for: they are not opened in this process."""


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


def main() -> None:
    asked = argparse.ArgumentParser("fairscribe bench probe")
    asked.add_argument("--manifest", type=Path, required=True, help="the list, tab-separated")
    asked.add_argument("--rounds", type=int, default=ROUNDS, help="times each file is timed")
    asked.add_argument("--json", action="store_true")
    given = asked.parse_args()
    if not 1 <= given.rounds <= 1_000:
        asked.error(f"--rounds {given.rounds}: 1 to 1000 are run")
    try:
        report = measured(read_rows(given.manifest), given.rounds)
    except (BadRequest, PartDown) as refused:
        sys.exit(f"fairscribe bench probe: {refused.message}")
    print(json.dumps(report, ensure_ascii=False) if given.json else told(report), flush=True)


def read_rows(manifest: Path) -> list[Row]:
    """Raises `BadRequest` for a list that cannot be meant, naming its line."""
    rows = [_row(listed) for listed in read_listed(manifest, ("expected", "true_duration_s"))]
    if not rows:
        raise BadRequest(f"{manifest.name} lists no file.")
    return rows


def _row(listed: Listed) -> Row:
    expected, length = listed.said["expected"], listed.said["true_duration_s"]
    if expected not in EXPECTED:
        raise listed.refused(f"expected is one of {', '.join(EXPECTED)}, not {expected!r:.40}.")
    true_s = 0.0
    if expected in ("ok", "partial"):
        with suppress(ValueError):
            true_s = float(length)
        if not 0 < true_s < math.inf:
            raise listed.refused(
                f"true_duration_s is a number of seconds above 0, not {length!r:.40}."
            )
    return Row(listed.file(), expected, true_s)


def measured(rows: Sequence[Row], rounds: int) -> dict[str, Any]:
    """The report. Raises `PartDown` when the sandbox fails."""
    prober = Prober(max_duration_s=PROBE_LIMIT_S)
    try:
        found = {row: _probed(prober, row) for row in rows}
        accepted = _accepted([r for r in rows if r.expected == "reject"], found)
        times = {**Timing(prober, found).run(rounds), "fork_cpu_ms": _fork_cpu_ms(prober)}
    finally:
        prober.close()
    decodable = [row for row in rows if row.decodable]
    wrong = [row for row in decodable if not row.right(_length_s(found[row]))]
    safe = [row for row in decodable if _safe(found[row])]
    return {
        "decodable": len(decodable),
        "right": len(decodable) - len(wrong),
        "refusable": sum(row.expected == "reject" for row in rows),
        "accepted": len(accepted),
        "wrong": [
            {"name": row.path.name, "true_s": row.true_s, "found": _shown(found[row])}
            for row in wrong
        ],
        "accepted_names": [row.path.name for row in accepted],
        **times,
        "mutagen_right": sum(row.right(_quietly(_mutagen_s, row)) for row in safe),
        "pyav_right": sum(row.right(_quietly(_pyav_s, row)) for row in safe),
        "sources": dict(Counter(f.source for f in found.values() if isinstance(f, Probe))),
        "refusals": dict(Counter(f.code for f in found.values() if not isinstance(f, Probe))),
        "rounds": rounds,
        "probe_limit_h": PROBE_LIMIT_S / 3_600,
        "survey_limit_h": SURVEY_LIMIT_S / 3_600,
    }


Found = Probe | FairscribeError


def _probed(prober: Prober, row: Row) -> Found:
    fd = os.open(row.path, os.O_RDONLY)
    try:
        return prober.probe(fd, row.path.name)
    except PartDown:
        raise
    except FairscribeError as refused:
        return refused
    finally:
        os.close(fd)


def _accepted(refusable: Sequence[Row], found: dict[Row, Found]) -> list[Row]:
    """Those that the survey takes for sound, too; what the probe refused is never surveyed."""
    suspects = [row for row in refusable if isinstance(found[row], Probe)]
    if not suspects:
        return []
    prober = Prober(max_duration_s=SURVEY_LIMIT_S)
    try:
        return [row for row in suspects if _surveyed(prober, row)]
    finally:
        prober.close()


def _surveyed(prober: Prober, row: Row) -> bool:
    fd, out = os.open(row.path, os.O_RDONLY), os.memfd_create("packed")
    try:
        prober.survey(fd, out, row.path.name)
        return True
    except PartDown:
        raise
    except FairscribeError:
        return False
    finally:
        os.close(fd)
        os.close(out)


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
            ("mutagen", _mutagen_s),
            ("pyav", _pyav_s),
            ("sandbox", lambda row: _probed(self._prober, row)),
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
        _quietly(look, row)
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


def _mutagen_s(row: Row) -> float | None:
    """As people use it: by path, so that it may go by the name."""
    read = mutagen.File(row.path)  # type: ignore[attr-defined]
    return float(read.info.length) if read is not None else None


def _pyav_s(row: Row) -> float | None:
    """What FFmpeg reads in the header of the first audio stream, with our list of formats."""
    options = {"format_whitelist": DEMUXERS, "codec_whitelist": ",".join(sorted(DECODERS))}
    with cast(InputContainer, av.open(str(row.path), options=options)) as opened:
        stream = opened.streams.audio[0]
        if stream.duration and stream.time_base:
            return float(stream.duration * stream.time_base)
        return opened.duration / av.time_base if opened.duration else None


def _quietly(look: Callable[[Row], float | None], row: Row) -> float | None:
    """Its answer; None when it raises: both libraries raise anything."""
    try:
        return look(row)
    except Exception:
        return None


def _length_s(found: Found) -> float | None:
    return found.duration_s if isinstance(found, Probe) else None


def _shown(found: Found) -> float | str:
    return round(found.duration_s, 3) if isinstance(found, Probe) else found.code


def _safe(found: Found) -> bool:
    return isinstance(found, Probe) or found.code not in UNSAFE


def _fork_cpu_ms(prober: Prober) -> float:
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


def told(report: dict[str, Any]) -> str:
    """The report for people."""
    of = report["decodable"]
    lines = [
        f"{report['right']} of {of} files with sound measured rightly "
        f"(mutagen {report['mutagen_right']}, PyAV's header {report['pyav_right']})",
        *(f"  wrong: {w['name']}: {w['true_s']} s, found {w['found']}" for w in report["wrong"]),
        f"{report['accepted']} of {report['refusable']} files without sound accepted",
        *(f"  accepted: {name}" for name in report["accepted_names"]),
        "measured by " + ", ".join(f"{k}: {n}" for k, n in sorted(report["sources"].items())),
        "refused as " + ", ".join(f"{k}: {n}" for k, n in sorted(report["refusals"].items())),
    ]
    for name in TIMES:
        ms = report[name]
        lines.append(f"{name:<15}" + (f"{ms:8.3f}" if ms is not None else "       -"))
    limits = f"{report['probe_limit_h']:g} h, surveys up to {report['survey_limit_h']:g} h"
    return "\n".join([*lines, f"probes of recordings up to {limits}"])


if __name__ == "__main__":
    main()
