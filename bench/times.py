"""Do segments begin when their words are said?

    python -m bench.times --json

Three recordings of ten minutes (bench/spoken.py) with sentences at known times, 0.4 to 8 s apart,
noise at -60 dB between them, pauses over the multiples of 29.2 s, go through the house's survey and
engine. Each segment's start is compared with the moment its first word was really said: known for a
sentence's first word, for another by its place among the letters of its sentence. Words are found
in the truth by alignment; a segment whose first three words are not in it is counted, not judged.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rapidfuzz.distance import Levenshtein

from bench.cuts import folded, planned
from bench.heard import hear_all, quietly
from bench.spoken import Spoken, with_pauses
from pipeline.recording import Segment
from pipeline.transcript.merge import merge

LENGTH_S = 600.0
SEEDS = (11, 12, 13)


def spoken_words(spoken: Spoken) -> list[tuple[str, float, bool]]:
    """Each word, about when it begins, and whether it begins a sentence's line."""
    told = []
    for placed in spoken.placed:
        said = folded(placed.text)
        letters, before = sum(map(len, said)), 0
        for number, word in enumerate(said):
            at_s = placed.start_s + before / letters * (placed.end_s - placed.start_s)
            told.append((word, at_s, number == 0))
            before += len(word)
    return told


def judged(spoken: Spoken, segments: Sequence[Segment]) -> dict[str, Any]:
    """Every judged segment's start with its error, and which lines begin a segment."""
    truth = spoken_words(spoken)
    said = [(word, number) for number, s in enumerate(segments) for word in folded(s.text)]
    steps = Levenshtein.opcodes([word for word, _, _ in truth], [word for word, _ in said])
    partner = {
        step.dest_start + n: step.src_start + n
        for step in steps
        if step.tag == "equal"
        for n in range(step.src_end - step.src_start)
    }
    starts, begun, lost = [], 0, 0
    firsts: dict[int, int] = {}
    for at, (_, number) in enumerate(said):
        firsts.setdefault(number, at)
    for number, segment in enumerate(segments):
        first = firsts.get(number)
        found = next((n for n in range(3) if first is not None and first + n in partner), None)
        if first is None or found is None:
            lost += 1
            continue
        word = max(0, partner[first + found] - found)  # a wrong first word is still the first
        begun += truth[word][2]
        starts.append((segment.start_s, segment.start_s - truth[word][1]))
    return {"starts": starts, "lines": len(spoken.placed), "begun": begun, "not judged": lost}


def told(all_judged: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures over several recordings."""
    starts = [start for one in all_judged for start in one["starts"]]

    def quantiles(errors: Sequence[float]) -> dict[str, Any]:
        apart = np.abs(errors)
        return {
            "segments": len(apart),
            "median_s": round(float(np.median(apart)), 3),
            "p90_s": round(float(np.quantile(apart, 0.9)), 3),
            "worst_s": round(float(apart.max()), 3),
            "late_s": round(float(np.median(errors)), 3),
            "over_1_s": int((apart > 1.0).sum()),
        }

    return {
        "all": quantiles([error for _, error in starts]),
        "first_minute": quantiles([e for at_s, e in starts if at_s < 60.0]),
        "last_minute": quantiles([e for at_s, e in starts if at_s >= LENGTH_S - 60.0]),
        "lines": sum(one["lines"] for one in all_judged),
        "lines_that_begin_a_segment": sum(one["begun"] for one in all_judged),
        "segments_not_judged": sum(one["not judged"] for one in all_judged),
    }


def measured(model: str, home: Path, kept: Path) -> dict[str, Any]:
    recordings = [with_pauses(seed, LENGTH_S) for seed in SEEDS]
    ready = [planned(spoken, overlapping=True) for spoken in recordings]
    heard = hear_all(ready, model=model, home=home, kept=kept)
    found = []
    for spoken, one, said in zip(recordings, ready, heard, strict=True):
        segments = merge(one.plan, said)
        found.append(judged(spoken, segments))
    return {"model": model, "recordings": [s.name for s in recordings], **told(found)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="tiny.en")
    parser.add_argument("--kept", type=Path, help="a folder that keeps what was heard")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        kept = asked.kept or Path(scratch)
        kept.mkdir(parents=True, exist_ok=True)
        told_to = quietly(kept / "engine.log")
        figures = measured(asked.model, kept, kept / "heard")
    print(json.dumps(figures, indent=None if asked.json else 1), file=told_to, flush=True)


if __name__ == "__main__":
    main()
