"""What models say where nobody speaks, raw and after our guards, and what the guards do to speech.

    python -m bench.noise [--models tiny.en,base] [--json]

Each sound of `bench.tones` goes straight to the engine, 30 s and 5 s of it, as if a voice
detector had taken all of it for speech; multilingual models hear it in several languages. Then the
windows of real speech: bench/recordings and the corpus beside the checkout, where it is.
`undoubted` counts sounds for which words were kept without a doubt, `dropped` windows of speech
that lost all words: both must be 0. `harmed` counts windows of speech whose words were changed
though the decoder was not stuck.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.predict import OTHERS, quiet_stdout
from bench.sets import CORPUS, RECORDINGS, surveyed
from bench.tones import MAKERS, line_sound
from pipeline.engine import Heard, Prepared
from pipeline.errors import FairscribeError
from pipeline.steps.hear import hear
from pipeline.weights import find_model
from workers.vllm_engine import VllmEngine

LENGTHS_S = (30.0, 5.0)
LANGUAGES = ("en", "de", "ja", "tr")
"""In which a multilingual model is told the sounds are spoken."""


@dataclass(frozen=True)
class Case:
    """A window to hear."""

    name: str
    language: str
    pcm: bytes
    speech_s: float
    spoken: bool


@dataclass(frozen=True)
class Row:
    """What came of it."""

    name: str
    language: str
    seconds: float
    spoken: bool
    raw: str
    raw_finish: str
    no_speech_prob: float | None
    mean_logprob: float | None
    text: str
    doubt: str | None
    tokens: int


def sounds(languages: tuple[str, ...]) -> Iterator[Case]:
    """Every sound in every length and language."""
    for name in MAKERS:
        for seconds in LENGTHS_S:
            for language in languages:
                yield Case(name, language, line_sound(name, seconds), seconds, False)


def speech(languages: tuple[str, ...]) -> Iterator[Case]:
    """Windows of real speech, as the survey makes them."""
    files = [f for f in sorted(RECORDINGS.iterdir()) if f.suffix != ".json"]
    files += sorted([*CORPUS.glob("speech_*"), *CORPUS.glob("lang_*")])
    for file in files:
        known = OTHERS.get(file.name, "en")
        language = known if known in languages else "en"
        try:
            plan, packed = surveyed(file)
        except FairscribeError:
            continue  # headerless telephony, whose format nobody declared here
        for window in plan.windows:
            at = 2 * window.first_sample
            pcm = packed[at : at + 2 * window.sample_count]
            yield Case(f"{file.name} {window.index}", language, pcm, window.speech_s, True)


class Noting(VllmEngine):
    """Keeps the first answer to each window: what it says raw."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self.first: dict[int, Heard] = {}

    async def transcribe(self, window: Prepared, *, temperature: float = 0.0) -> Heard:
        """See `SpeechEngine`."""
        heard = await super().transcribe(window, temperature=temperature)
        self.first.setdefault(id(window), heard)
        return heard


async def listen(engine: Noting, cases: list[Case]) -> list[Row]:
    """All cases through the engine and the guards."""
    slots = asyncio.Semaphore(engine.slots)

    async def one(case: Case) -> Row:
        async with slots:
            window = await engine.prepare(case.pcm, language=case.language)
            heard = await hear(engine, window, case.speech_s)
            raw = engine.first.pop(id(window))
        return Row(
            case.name,
            case.language,
            round(len(case.pcm) / 32_000, 1),
            case.spoken,
            raw.text,
            raw.finish,
            raw.no_speech_prob,
            raw.mean_logprob,
            heard.text,
            heard.doubt,
            heard.tokens,
        )

    return list(await asyncio.gather(*map(one, cases)))


async def measure(model: str, home: Path) -> dict[str, object]:
    """One model on all cases; its engine is started and stopped."""
    languages = ("en",) if model.endswith(".en") else LANGUAGES
    spoken = ("en", "de", "fr") if len(languages) > 1 else ("en",)
    engine = Noting(find_model(model, home))
    await engine.start()
    try:
        rows = await listen(engine, [*sounds(languages), *speech(spoken)])
    finally:
        await engine.stop()
    return {"model": model, "dtype": engine.provenance()["dtype"]} | summary(rows)


def summary(rows: list[Row]) -> dict[str, object]:
    """The numbers, and every row."""
    quiet, said = [r for r in rows if not r.spoken], [r for r in rows if r.spoken]
    worded = [r for r in said if r.raw]
    return {
        "sounds": len(quiet),
        "sounds_with_words_raw": sum(any(c.isalnum() for c in r.raw) for r in quiet),
        "removed": sum(not r.text for r in quiet),
        "doubtful": sum(bool(r.text and r.doubt) for r in quiet),
        "undoubted": sum(bool(r.text and not r.doubt) for r in quiet),
        "speech_windows": len(worded),
        "dropped": sum(not r.text for r in worded),
        "speech_doubtful": sum(bool(r.text and r.doubt) for r in worded),
        "harmed": sum(bool(r.text and r.text != r.raw and r.raw_finish == "stop") for r in worded),
        "least_no_speech_of_sounds": min(r.no_speech_prob or 0.0 for r in quiet),
        "most_no_speech_of_speech": max(r.no_speech_prob or 0.0 for r in worded),
        "rows": [asdict(r) for r in rows],
    }


def table(told: dict[str, object]) -> str:
    """For people: the counts, then what was said to each sound, then speech that is doubted."""
    rows = [Row(**row) for row in told["rows"]]  # type: ignore[attr-defined]
    lines = [f"{key:28} {value}" for key, value in told.items() if key != "rows"]
    for r in rows:
        if not r.spoken or r.doubt:
            kept = r.text[:40] or "-"
            likely = f"nobody {r.no_speech_prob or 0:.2f}  mean {r.mean_logprob or 0:5.2f}"
            lines.append(
                f"{r.name[:32]:32} {r.language} {r.seconds:5.1f} s  {likely}"
                f"  {r.raw[:36]!r:40} {kept:42} {r.doubt or ''}"
            )
    return "\n".join(lines)


def main() -> None:
    """Measure each model and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.noise", description=__doc__)
    parser.add_argument("--models", default="tiny.en,base")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    out = quiet_stdout()
    home = Path(os.environ.get("FAIRSCRIBE_HOME", tempfile.gettempdir())) / "bench-noise"
    told = [asyncio.run(measure(model, home)) for model in asked.models.split(",")]
    text = json.dumps(told, ensure_ascii=False) if asked.json else "\n\n".join(map(table, told))
    print(text, file=out, flush=True)


if __name__ == "__main__":
    main()
