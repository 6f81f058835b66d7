"""How well work is foretold: real vLLM hears recordings of known words, alone and in a full batch.

    fairscribe bench predict [--model tiny.en|base] [--slots N] [--speech-s S] [--corpus FOLDER]
                             [--json]

`alone`: one window at a time. `shared`: as many windows in flight as there are slots, recordings in
a mixed order. Told is the share of variance (R^2) of what recordings, and single windows, took:

    share      of the engine's busy time, divided among the windows in service (alone: all of it)
    elapsed    from hand-over to answer, summed over a recording's windows
    passed     from a recording's first hand-over to its last answer

that is foretold by

    speech     a straight line through seconds of speech
    reference  the work model of buckets, times the engine's speed (one median)
    learned    the work model as learned (pipeline/scheduling/learning.py)
    hindsight  the same, knowing how many tokens there were: the rest is the clock's, not the words'

Each is fitted on one half and judged on the other, both ways. `base` also hears German and French
where the shared corpus lies beside the checkout; what is too little to say anything is named.
`foreign` is the share of the machine that other processes used meanwhile: it disturbs all times.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from bench.demo import throwaway_home
from bench.foretold import Job, Run, Took, passed, summary, told
from bench.pipeline import foreign_load
from bench.sets import CORPUS, Recording, make_set, surveyed
from pipeline.engine import Prepared, SpeechEngine
from pipeline.steps.hear import hear
from pipeline.weights import find_model
from workers.vllm_engine import VllmEngine

SETS = {"short": 0.35, "calls40": 0.4, "long": 0.25}
"""Of each kind this part of the speech: lengths from a few seconds to minutes."""

SPEECH_S = {"tiny.en": 900.0, "base": 600.0}

OTHERS = {
    "lang_de_8k.wav": "de",
    "lang_fr_8k.wav": "fr",
    "speech_sr_french.aiff": "fr",
    "speech_linto_bonjour.wav": "fr",
}
"""Recordings of the corpus in other languages than English."""


def main() -> None:
    asked = arguments()
    out = quiet_stdout()
    # left by unwinding: vLLM's child must see its parent's signals
    report = asyncio.run(measure(asked))
    print(json.dumps(report) if asked.json else "\n".join(told(report)), file=out, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("fairscribe bench predict")
    parser.add_argument("--model", default="tiny.en", choices=sorted(SPEECH_S))
    parser.add_argument("--slots", type=int, default=0, help="0: the device's own")
    parser.add_argument("--speech-s", type=float, help="seconds of English speech")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="where other languages lie")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    asked.speech_s = asked.speech_s or SPEECH_S[asked.model]
    return asked


def quiet_stdout() -> TextIO:
    """The real stdout; whatever else writes there, as vLLM does, writes to stderr from now on."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return out


async def measure(asked: argparse.Namespace) -> dict[str, Any]:
    with throwaway_home() as home:
        jobs = english(asked.speech_s, home)
        jobs += others(asked.corpus) if asked.model != "tiny.en" else []
        engine = VllmEngine(find_model(asked.model, home), slots=asked.slots)
        await engine.start()
        try:
            ready = [
                [await engine.prepare(pcm, language=j.language) for pcm in j.pcm] for j in jobs
            ]
            await shared(engine, jobs, ready)  # the first pass is slower, and not counted
            runs = {"alone": await alone(engine, jobs, ready)}
            runs["shared"] = await shared(engine, jobs, ready)
        finally:
            await engine.stop()
    return {"model": asked.model, "slots": engine.slots, **summary(jobs, runs)}


def english(speech_s: float, home: Path) -> list[Job]:
    """Recordings of known words, as bench/sets.py mixes them."""
    jobs = []
    for name, share in SETS.items():
        folder = home / name
        folder.mkdir()
        jobs += [_job(r) for r in make_set(name, share * speech_s, folder)]
    return jobs


def _job(recording: Recording) -> Job:
    pcm = [recording.window(window.index) for window in recording.plan.windows]
    return Job(recording.name, "en", recording.words, recording.plan, pcm)


def others(corpus: Path) -> list[Job]:
    """Recordings in other languages, where they are."""
    jobs = []
    for name, language in OTHERS.items():
        if (corpus / name).exists():
            plan, packed = surveyed(corpus / name)
            ends = [(w.first_sample, w.first_sample + w.sample_count) for w in plan.windows]
            pcm = [packed[2 * first : 2 * last] for first, last in ends]
            jobs.append(Job(name, language, None, plan, pcm))
    return jobs


# -- hearing --------------------------------------------------------------------------------


async def alone(engine: SpeechEngine, jobs: list[Job], ready: list[list[Prepared]]) -> Run:
    """One window at a time."""
    return await _hear(engine, jobs, ready, at_once=1)


async def shared(engine: SpeechEngine, jobs: list[Job], ready: list[list[Prepared]]) -> Run:
    """Every slot taken."""
    return await _hear(engine, jobs, ready, at_once=engine.slots)


async def _hear(
    engine: SpeechEngine, jobs: list[Job], ready: list[list[Prepared]], at_once: int
) -> Run:
    order = list(range(len(jobs)))
    random.Random(3).shuffle(order)
    left = iter([(n, index) for n in order for index in range(len(ready[n]))])
    run = Run()

    async def one_by_one() -> None:
        for n, index in left:
            began_s = time.monotonic()
            speech_s = jobs[n].plan.windows[index].speech_s
            heard = await hear(engine, ready[n][index], speech_s)
            ended_s = time.monotonic()
            run.took.append(Took(n, index, speech_s, heard, began_s, ended_s))

    with foreign_load([os.getpid()]) as others:
        await asyncio.gather(*(one_by_one() for _ in range(at_once)))
    run.foreign, run.wall_s = others.share, passed(run.took)
    return run


if __name__ == "__main__":
    main()
