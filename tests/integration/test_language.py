"""Languages are heard out once a channel, before the first window, and written down."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from sqlalchemy import update

from pipeline.engine import FirstToken, Prepared
from pipeline.errors import EngineDead, LanguageUnknown
from pipeline.job import AUTO, TRANSCRIBE, JobView, State
from pipeline.parts import Parts
from pipeline.recording import SAMPLE_RATE_HZ
from pipeline.scheduling.policies import Waiting
from pipeline.store import jobs, tables, views
from pipeline.store.session import transaction
from tests.lines import eventually, pulling, surveyed_job
from workers.echo_engine import EchoEngine
from workers.transcribe import TranscribeWork

GERMAN = FirstToken("de", 0.8, 0.0)


class Polyglot(EchoEngine):
    """Says that everybody speaks German, or in turn what it was given, and writes down what it is
    asked.
    """

    def __init__(self, *thinks: FirstToken, slots: int = 4, fixed_s: float = 0.01) -> None:
        super().__init__(slots=slots, fixed_s=fixed_s, per_second_s=0.0)
        self.asked: list[str] = []
        self.detected: list[bytes] = []
        self._thinks = list(thinks)

    async def first_token(self, pcm: bytes) -> FirstToken:
        self.asked.append("which language?")
        self.detected.append(pcm)
        thought = self._thinks.pop(0) if self._thinks else GERMAN
        await asyncio.sleep(0.05)
        return thought

    async def prepare(
        self, pcm: bytes, *, language: str, task: str = "transcribe", vocabulary: str = ""
    ) -> Prepared:
        if language not in ("en", "de"):
            raise LanguageUnknown(f"This model does not know the language {language!r}.")
        self.asked.append(f"{task} {language}")
        return await super().prepare(pcm, language=language)


MONO = ("mono",)
CALL = ("left", "right")


def waiting_job(
    parts: Parts, windows: int = 1, channels: tuple[str, ...] = MONO, **columns: Any
) -> str:
    """A surveyed job in the queue, its row changed to these columns."""
    job_id = surveyed_job(parts, windows, queue=False, channels=channels)
    with transaction(parts.store) as c:
        row = c.execute(
            update(tables.jobs)
            .where(tables.jobs.c.id == uuid.UUID(job_id))
            .values(plan_hash=tables.jobs.c.plan_hash, **columns)
            .returning(tables.jobs.c.bucket, tables.jobs.c.arrival_ms)
        ).one()
    parts.queues[TRANSCRIBE.name].enqueue([Waiting(job_id, *row)])
    return job_id


def ended(parts: Parts, job_id: str) -> JobView:
    def final() -> JobView | None:
        with transaction(parts.store) as c:
            found = views.view(c, job_id)
        return found if found and found.state in (State.COMPLETED, State.FAILED) else None

    view: JobView = eventually(final)
    return view


def body(parts: Parts, job_id: str) -> dict[str, Any]:
    with transaction(parts.store) as c:
        return views.transcript_body(c, job_id) or {}


def test_nobody_said_which_language_so_it_is_heard_out_before_the_first_window(
    parts: Parts,
) -> None:
    engine = Polyglot()
    job_id = waiting_job(parts, windows=6, language=AUTO)
    with pulling(parts, engine):
        view = ended(parts, job_id)
    assert engine.asked == ["which language?", *["transcribe de"] * 6]
    assert (view.language, view.detected_language) == (AUTO, "de")
    assert body(parts, job_id)["language"] == "de"


def test_a_job_taken_up_again_is_not_asked_again(parts: Parts) -> None:
    engine = Polyglot()
    job_id = waiting_job(parts, windows=2, language=AUTO, detected_language="de")
    with pulling(parts, engine):
        ended(parts, job_id)
    assert engine.asked == ["transcribe de"] * 2


def test_each_side_of_a_call_is_heard_in_the_language_that_is_spoken_on_it(parts: Parts) -> None:
    class Listening(Polyglot):
        async def first_token(self, pcm: bytes) -> FirstToken:
            await super().first_token(pcm)
            return GERMAN if set(pcm) == {1} else FirstToken("en", 0.9, 0.0)

    engine = Listening()
    # 5 windows of 2 s in turn, 6 s on the left of 1 and 4 s on the right of 2
    job_id = waiting_job(parts, 5, CALL, language=AUTO)
    packed = b"".join(bytes([n % 2 + 1]) * 2 * 2 * SAMPLE_RATE_HZ for n in range(5))
    (parts.settings.home / "storage" / f"packed/{job_id}-1").write_bytes(packed)
    with pulling(parts, engine):
        view = ended(parts, job_id)
    assert engine.asked[:2] == ["which language?"] * 2
    assert sorted(engine.asked[2:]) == [*["transcribe de"] * 3, *["transcribe en"] * 2]
    assert (view.detected_language, view.channel_languages) == ("de", ["de", "en"])
    transcript = body(parts, job_id)
    assert transcript["language"] == "de"
    assert [(c["label"], c["language"]) for c in transcript["channels"]] == [
        ("left", "de"),
        ("right", "en"),
    ]


def test_a_side_with_a_few_words_or_an_unsure_answer_takes_the_language_of_the_call(
    parts: Parts,
) -> None:
    few, unsure = Polyglot(), Polyglot(GERMAN, FirstToken("cy", 0.2, 0.0))
    quiet = waiting_job(parts, 3, CALL, language=AUTO)  # 4 s on the left, 2 s on the right
    with pulling(parts, few):
        quiet_view = ended(parts, quiet)
    doubtful = waiting_job(parts, 4, CALL, language=AUTO)
    with pulling(parts, unsure):
        doubtful_view = ended(parts, doubtful)
    assert few.asked == ["which language?", *["transcribe de"] * 3]
    assert unsure.asked == [*["which language?"] * 2, *["transcribe de"] * 4]
    for view in (quiet_view, doubtful_view):
        assert (view.detected_language, view.channel_languages) == ("de", ["de", "de"])


@pytest.mark.parametrize(
    ("kept", "heard"),
    [
        (["de", "en"], ["transcribe de", "transcribe en"]),
        (["de", "en", "fr"], ["transcribe de", "transcribe de"]),  # of another survey
        (None, ["transcribe de", "transcribe de"]),
    ],
)
def test_a_call_taken_up_again_goes_on_in_the_languages_it_began_with(
    parts: Parts, kept: list[str] | None, heard: list[str]
) -> None:
    engine = Polyglot()
    languages = {"detected_language": "de", "channel_languages": kept}
    job_id = waiting_job(parts, 2, CALL, language=AUTO, **languages)
    with pulling(parts, engine):
        ended(parts, job_id)
    assert sorted(engine.asked) == heard


def test_an_engine_that_dies_while_languages_are_heard_out_is_asked_again(parts: Parts) -> None:
    class Mortal(Polyglot):
        async def first_token(self, pcm: bytes) -> FirstToken:
            answer = await super().first_token(pcm)
            if len(self.asked) == 2:
                self.kill()
                raise EngineDead("It was told to die.")
            return answer

    engine = Mortal()
    job_id = waiting_job(parts, 4, CALL, language=AUTO)
    with pulling(parts, engine):
        view = ended(parts, job_id)
    assert (view.state, view.channel_languages) == (State.COMPLETED, ["de", "de"])
    assert engine.asked.count("transcribe de") == 4


def test_a_language_that_was_named_is_believed(parts: Parts) -> None:
    engine = Polyglot()
    named, default = waiting_job(parts, language="de"), waiting_job(parts)
    with pulling(parts, engine):
        ended(parts, named)
        ended(parts, default)
    assert sorted(engine.asked) == ["transcribe de", "transcribe en"]
    assert body(parts, default)["language"] == "en"


def test_a_language_the_model_does_not_know_fails_the_job_with_a_sentence(parts: Parts) -> None:
    engine = Polyglot()
    strange, sound = waiting_job(parts, windows=3, language="tlh"), waiting_job(parts)
    with pulling(parts, engine):
        failed = ended(parts, strange)
        assert ended(parts, sound).state is State.COMPLETED
    assert failed.state is State.FAILED
    assert failed.error_code == "language_unknown"
    assert (failed.error_message or "").startswith(
        "This model does not know the language 'tlh'. Name another language, or ask"
    )


def test_a_translation_is_asked_for_in_every_window_and_told_in_the_transcript(
    parts: Parts,
) -> None:
    engine = Polyglot()
    job_id = waiting_job(parts, windows=2, language="de", options={"task": "translate"})
    with pulling(parts, engine):
        ended(parts, job_id)
    assert engine.asked == ["translate de"] * 2
    transcript = body(parts, job_id)
    assert transcript["provenance"]["options"] == {"task": "translate"}
    assert transcript["language"] == "de"  # the one that was spoken


def test_names_likely_to_be_said_reach_the_engine_with_every_window(parts: Parts) -> None:
    given: list[str] = []

    class Reading(EchoEngine):
        async def prepare(
            self, pcm: bytes, *, language: str, task: str = "transcribe", vocabulary: str = ""
        ) -> Prepared:
            given.append(vocabulary)
            return await super().prepare(pcm, language=language, vocabulary=vocabulary)

    named = waiting_job(parts, windows=2, options={"vocabulary": "Müller, Fairscribe"})
    plain = waiting_job(parts)
    with pulling(parts, Reading(slots=4, fixed_s=0.0)):
        ended(parts, named)
        ended(parts, plain)
    assert sorted(given) == ["", *["Müller, Fairscribe"] * 2]


def test_hearing_a_language_out_is_not_taken_for_the_speed_of_hearing_words(parts: Parts) -> None:
    job_id = waiting_job(parts, 4, CALL, language=AUTO)
    with transaction(parts.store) as c:
        (ticket,) = jobs.grant(c, TRANSCRIBE, [job_id], "test", "echo")
    work = TranscribeWork(parts, Polyglot())
    opened = work.open(ticket)
    assert [work.unit_work(opened, unit) for unit in work.units(opened)] == [0.0, 0.0]
