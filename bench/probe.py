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
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.listed import Listed, read_listed
from bench.ways import (
    PROBE_LIMIT_S,
    Found,
    Row,
    Timing,
    fork_cpu_ms,
    mutagen_s,
    probed,
    pyav_s,
    quietly,
)
from pipeline.errors import (
    BadRequest,
    FairscribeError,
    LimitExceeded,
    ParserCrashed,
    PartDown,
)
from pipeline.intake.prober import Prober
from pipeline.recording import Probe

SURVEY_LIMIT_S = 4 * 3_600.0
"""Longest recording surveyed here, seconds."""
ROUNDS = 7
TIMES = ("header_ms", "scan_ms", "fork_ms", "fork_cpu_ms", "mutagen_ms", "pyav_header_ms")
EXPECTED = ("ok", "partial", "reject", "reject_or_recover")
UNSAFE = (ParserCrashed.code, LimitExceeded.code)
"""Files the sandbox was needed for: they are not opened in this process."""


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
        found = {row: probed(prober, row) for row in rows}
        accepted = _accepted([r for r in rows if r.expected == "reject"], found)
        times = {**Timing(prober, found).run(rounds), "fork_cpu_ms": fork_cpu_ms(prober)}
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
        "mutagen_right": sum(row.right(quietly(mutagen_s, row)) for row in safe),
        "pyav_right": sum(row.right(quietly(pyav_s, row)) for row in safe),
        "sources": dict(Counter(f.source for f in found.values() if isinstance(f, Probe))),
        "refusals": dict(Counter(f.code for f in found.values() if not isinstance(f, Probe))),
        "rounds": rounds,
        "probe_limit_h": PROBE_LIMIT_S / 3_600,
        "survey_limit_h": SURVEY_LIMIT_S / 3_600,
    }


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


def _length_s(found: Found) -> float | None:
    return found.duration_s if isinstance(found, Probe) else None


def _shown(found: Found) -> float | str:
    return round(found.duration_s, 3) if isinstance(found, Probe) else found.code


def _safe(found: Found) -> bool:
    return isinstance(found, Probe) or found.code not in UNSAFE


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
