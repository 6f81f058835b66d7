"""Are words lost or doubled where a long speech is cut?

    python -m bench.cuts --json
    python -m bench.cuts --packing

Eight recordings of five minutes in which nobody pauses (bench/spoken.py) go through the house's
survey and its engine, with cuts as they are and, beside them, as they were: windows filled to 30 s,
cut at the quietest place of the last 5 s, no overlap. Heard words are aligned with the spoken ones;
what is missing or too much within 3 s of a cut is counted, and in the rest of the recording too: so
much the model gets wrong by itself. When a word was spoken is known to a part of its sentence.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rapidfuzz.distance import Levenshtein

from bench.heard import Ready, hear_all, quietly
from bench.sets import make_set
from bench.spoken import Spoken, gapless, read_aloud
from pipeline.intake.pack import quietest, write_packed
from pipeline.intake.speech import speech_spans
from pipeline.recording import SAMPLE_RATE_HZ, WINDOW_LIMIT_S, Plan
from pipeline.scheduling.windows import FILL_S, plan_windows
from pipeline.transcript.merge import merge

NEAR_S = 3.0
LENGTH_S = 300.0


@dataclass
class Count:
    """Errors of words in some part of recordings."""

    words: int = 0
    lost: int = 0
    added: int = 0
    changed: int = 0

    def __add__(self, other: Count) -> Count:
        """The errors of both."""
        return Count(
            self.words + other.words,
            self.lost + other.lost,
            self.added + other.added,
            self.changed + other.changed,
        )

    def told(self) -> dict[str, Any]:
        """With the rates, per 100 words."""
        rates = {
            f"{kind}_%": round(100 * getattr(self, kind) / max(1, self.words), 2)
            for kind in ("lost", "added", "changed")
        }
        return {**vars(self), **rates}


def recordings() -> list[Spoken]:
    """Five of the shipped sentences, three by espeak-ng where it is installed."""
    read = [
        read_aloud(6, LENGTH_S, "en-us", 175),
        read_aloud(7, LENGTH_S, "en-gb", 190),
        read_aloud(8, LENGTH_S, "en-us+f3", 200),
    ]
    return [gapless(seed, LENGTH_S) for seed in range(1, 6)] + [r for r in read if r is not None]


def planned(spoken: Spoken, *, overlapping: bool) -> Ready:
    """A recording surveyed: its plan and its windows."""
    spans = [speech_spans(spoken.samples)]
    windows = plan_windows(
        spans,
        quietest=lambda *place: quietest([spoken.samples], *place),
        overlapping=overlapping,
        limit_s=FILL_S if overlapping else WINDOW_LIMIT_S,
    )
    out = io.BytesIO()
    write_packed(windows, [spoken.samples], out)
    packed = out.getvalue()
    plan = Plan(
        duration_s=len(spoken.samples) / SAMPLE_RATE_HZ,
        speech_s=sum(span.length_s for span in spans[0]),
        channels=("mono",),
        channel_reason="",
        windows=windows,
    )
    return Ready(
        plan,
        tuple(packed[w.first_sample * 2 : (w.first_sample + w.sample_count) * 2] for w in windows),
    )


def cuts_s(plan: Plan) -> list[float]:
    """Where speech was cut: each window's end that the next one's beginning meets or overlaps."""
    ends = [w.pieces[-1].start_s + w.pieces[-1].length_s for w in plan.windows]
    begins = [w.pieces[0].start_s + w.overlap_s for w in plan.windows]
    return [end for end, next_ in zip(ends, begins[1:], strict=False) if abs(end - next_) < 0.01]


def folded(text: str) -> list[str]:
    """Words as they are compared: small letters and digits."""
    return re.findall(r"[a-z0-9']+", text.lower())


def judged(spoken: Spoken, text: str, moments_s: Sequence[float]) -> tuple[Count, Count]:
    """Errors near the moments, and elsewhere."""
    truth: list[str] = []
    at_s: list[float] = []
    for placed in spoken.placed:
        said = folded(placed.text)
        letters = sum(map(len, said))
        before = 0
        for word in said:
            share = (before + len(word) / 2) / letters
            at_s.append(placed.start_s + share * (placed.end_s - placed.start_s))
            before += len(word)
        truth += said
    near, far = Count(), Count()

    def place(index: int) -> Count:
        moment_s = at_s[min(index, len(at_s) - 1)]
        return near if any(abs(moment_s - m) <= NEAR_S for m in moments_s) else far

    for index in range(len(truth)):
        place(index).words += 1
    for step in Levenshtein.editops(truth, folded(text)):
        count = place(step.src_pos)
        if step.tag == "delete":
            count.lost += 1
        elif step.tag == "insert":
            count.added += 1
        else:
            count.changed += 1
    return near, far


def measured(model: str, home: Path, kept: Path, first: int) -> dict[str, Any]:
    """The figures of both ways of cutting, over the first so many recordings."""
    spoken = recordings()[:first]
    ways = {"overlap": True, "no overlap": False}
    plans = {(s.name, way): planned(s, overlapping=on) for s in spoken for way, on in ways.items()}
    heard = hear_all(list(plans.values()), model=model, home=home, kept=kept)
    texts = {key: (plans[key].plan, said) for key, said in zip(plans, heard, strict=True)}
    answer: dict[str, Any] = {"model": model, "recordings": [s.name for s in spoken]}
    for way in ways:
        answer[way] = {"windows": 0, "cuts": 0, "near": Count(), "elsewhere": Count()}
    for one in spoken:
        both = [moment for way in ways for moment in cuts_s(texts[one.name, way][0])]
        for way in ways:
            plan, said = texts[one.name, way]
            text = " ".join(segment.text for segment in merge(plan, said))
            near, _ = judged(one, text, cuts_s(plan))
            _, far = judged(one, text, both)
            mine = answer[way]
            mine["windows"] += len(plan.windows)
            mine["cuts"] += len(cuts_s(plan))
            mine["near"] += near
            mine["elsewhere"] += far
    for way in ways:
        answer[way] |= {k: answer[way][k].told() for k in ("near", "elsewhere")}
        busy = [h.busy_s for key in texts if key[1] == way for h in texts[key][1].values()]
        answer[way]["busy_s"] = round(sum(busy), 1)
    return answer


def packing() -> dict[str, Any]:
    """Windows of calls against fixed cuts of 30 s, ten minutes of speech of each set; no engine."""
    answer = {}
    for name in ("calls0", "calls40", "calls60", "long"):
        with tempfile.TemporaryDirectory() as folder:
            made = make_set(name, 600.0, Path(folder))
        windows = sum(len(recording.plan.windows) for recording in made)
        fixed = sum(math.ceil(recording.duration_s / WINDOW_LIMIT_S) for recording in made)
        overlaps = sum(w.overlap_s > 0 for recording in made for w in recording.plan.windows)
        answer[name] = {
            "recordings": len(made),
            "windows": windows,
            "fixed": fixed,
            "ratio": round(windows / fixed, 2),
            "overlaps": overlaps,
        }
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="tiny.en")
    parser.add_argument("--kept", type=Path, help="a folder that keeps what was heard")
    parser.add_argument("--recordings", type=int, default=8, help="the first so many of them")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--packing", action="store_true", help="count windows of calls instead")
    asked = parser.parse_args()
    if asked.packing:
        print(json.dumps(packing()))
        return
    with tempfile.TemporaryDirectory() as scratch:
        kept = asked.kept or Path(scratch)
        kept.mkdir(parents=True, exist_ok=True)
        told_to = quietly(kept / "engine.log")
        figures = measured(asked.model, kept, kept / "heard", asked.recordings)
    print(json.dumps(figures, indent=None if asked.json else 1), file=told_to, flush=True)


if __name__ == "__main__":
    main()
