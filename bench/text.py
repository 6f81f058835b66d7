"""Words heard against words said, ours and those of the same weights by hand.

    fairscribe bench text --manifest FILE.tsv | --set NAME
                          [--model tiny.en|base] [--dtype float32] [--files N] [--slots N]
                          [--ours-alone | --kept FILE] [--json]

`--manifest`: recordings beside a table of their words (`bench/truths.py`). `--set`: `gapless`,
`two-sided` or `languages` of `bench/talks.py`, or one of `bench/sets.py` (`calls40`, `calls60`),
made now, words and their times known; `corpus`: the shared one beside the checkout.

    wer           ours: survey in the sandbox, windows through the engine with its guards, merged
    wer_by_hand   the same weights in the same number format by faster-whisper (`bench/by_hand.py`)
    interval      95 % of both and of their difference (ours minus by hand, the same recordings),
                  by bootstrap over recordings; `by_text`: of the difference, over texts, where
                  many recordings say the same
    windows       what the engine heard of ours
    windows_fixed length / 30 s rounded up, of each recording, once for each channel heard
    cuts          of sets with times: wrong words within 3 s of a cut between windows, and
                  elsewhere; `by_hand_there`: by hand at the places of our cuts; `by_hand`: at its
                  own
    fixed         of sets: the recording in raw windows of 30 s through the same engine
    rtf           seconds of hearing a second of audio

By hand takes many times as long as ours where it falls back to sampling. `--ours-alone` leaves it
out, and its figures are null; `--kept` keeps its answers in a file (`bench/kept.py`).

A recording that is refused counts with all its words lost. Words are compared in Whisper's normal
form (`bench/slips.py`). In a model of many languages the language is heard out, unless the manifest
names it; that is told beside.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.by_hand import ByHand, need_faster_whisper
from bench.demo import throwaway_home
from bench.kept import Kept
from bench.ours import Answer, Surveyed, hear_all, survey_all
from bench.predict import OTHERS, quiet_stdout
from bench.report import report
from bench.sets import CORPUS, SILENCE, make_set
from bench.talks import gapless, languages, two_sided
from bench.text_table import told
from bench.truths import Skipped, Truth, read_manifest
from bench.uncut import fixed_windows
from pipeline.errors import BadRequest, FairscribeError
from pipeline.weights import PACKAGED, find_model
from workers.vllm_engine import VllmEngine

MADE = ("gapless", "two-sided", "languages", "corpus", *SILENCE)

TIMED = ("gapless", *SILENCE)
"""Sets of one channel whose words' times are known."""

SPEECH_S = 450.0
"""Speech in a set of calls."""

ENGLISH_ONLY = ".en"


def main() -> None:
    asked = arguments()
    out = quiet_stdout()
    try:
        # left by unwinding: vLLM's child must see its parent's signals
        found = asyncio.run(measure(asked, None if asked.ours_alone else need_faster_whisper()))
    except FairscribeError as error:
        sys.exit(error.message)
    print(json.dumps(found) if asked.json else "\n".join(told(found)), file=out, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("fairscribe bench text")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--manifest", type=Path, help="a table of recordings and their words")
    which.add_argument("--set", choices=MADE, help="recordings made here")
    parser.add_argument("--model", default="tiny.en", choices=sorted(PACKAGED))
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--files", type=int, default=0, help="the first N only; 0: all")
    parser.add_argument("--slots", type=int, default=0, help="0: the device's own")
    by_hand = parser.add_mutually_exclusive_group()
    by_hand.add_argument("--ours-alone", action="store_true", help="do not compare")
    by_hand.add_argument("--kept", type=Path, help="a file for answers by hand, to be used again")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


async def measure(asked: argparse.Namespace, by_hand: str | None) -> dict[str, Any]:
    """The report. Raises what reading the manifest and starting either engine raise.

    `by_hand`: what it is compared with; None: nothing.
    """
    with throwaway_home() as home:
        folder = home / "set"
        folder.mkdir()
        truths, skipped = recordings(asked, folder)
        sounds = survey_all(truths)
        theirs = None
        if by_hand is not None:
            model = ByHand(asked.model, home / "ctranslate2", asked.dtype, Kept(asked.kept))
            theirs = _by_hand(model, sounds)
        ours, fixed, provenance = await _ours(asked, home, sounds)
    found = report(sounds, ours, theirs, fixed, timed=asked.set in TIMED)
    return found | {
        "model": asked.model,
        "by_hand": by_hand,
        "dtype": provenance["dtype"],
        "weights_hash": provenance["weights_hash"],
        "skipped": [vars(row) for row in skipped],
    }


def recordings(asked: argparse.Namespace, folder: Path) -> tuple[list[Truth], list[Skipped]]:
    """What is to be heard, and what cannot be compared."""
    truths, skipped = _asked_for(asked, folder)
    if asked.model.endswith(ENGLISH_ONLY):
        foreign = [truth for truth in truths if truth.language not in (None, "en")]
        skipped += [Skipped(t.name, f"{asked.model} hears English only") for t in foreign]
        truths = [truth for truth in truths if truth not in foreign]
    if not truths:
        raise BadRequest(
            f"None of these recordings is in English, and {asked.model} hears no other."
        )
    return truths[: asked.files or None], skipped


def _asked_for(asked: argparse.Namespace, folder: Path) -> tuple[list[Truth], list[Skipped]]:
    if asked.manifest is not None:
        return read_manifest(asked.manifest)
    if asked.set == "gapless":
        return gapless(folder), []
    if asked.set == "two-sided":
        return two_sided(folder), []
    if asked.set == "languages":
        return languages(folder), []
    if asked.set == "corpus":
        rows, skipped = read_manifest(CORPUS / "manifest.tsv")
        return [_with_language(row) for row in rows], skipped
    made = make_set(asked.set, SPEECH_S, folder)
    return [Truth(one.name, one.path, one.said, "en") for one in made], []


def _with_language(row: Truth) -> Truth:
    """Of the corpus' recordings in other languages which one it is; its manifest does not say."""
    return Truth(row.name, row.path, row.said, OTHERS.get(row.name))


def _by_hand(model: ByHand, sounds: Sequence[Surveyed]) -> list[Answer]:
    answers = []
    for number, sound in enumerate(sounds, start=1):
        print(f"by hand {number} of {len(sounds)}: {sound.truth.name}", file=sys.stderr)
        answers.append(model.hear(sound))
    return answers


async def _ours(
    asked: argparse.Namespace, home: Path, sounds: Sequence[Surveyed]
) -> tuple[list[Answer], list[Answer] | None, dict[str, Any]]:
    """Ours, the same in raw windows of 30 s where that is asked, and what heard it."""
    engine = VllmEngine(find_model(asked.model, home), slots=asked.slots, dtype=asked.dtype)
    await engine.start()
    try:
        ours = await hear_all(engine, sounds)
        fixed = None
        if asked.set in TIMED:
            fixed = await hear_all(engine, [fixed_windows(sound) for sound in sounds])
        return ours, fixed, engine.provenance()
    finally:
        await engine.stop()


if __name__ == "__main__":
    main()
