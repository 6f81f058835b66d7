"""Workers are killed and replaced under load: no recording is lost by it, and none fails."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text

from pipeline.handover import ERRANDS_LISTS, ERRANDS_QUEUE
from pipeline.intake.prober import Prober
from pipeline.job import SURVEY, State
from pipeline.parts import Parts
from pipeline.queue import keys
from pipeline.recording import SAMPLE_BYTES
from pipeline.steps.accept import Upload, accept, hand_over
from pipeline.store import tables
from pipeline.store.session import transaction
from tests.forked_parts import ForkedParts, Part, forked_parts
from tests.lines import eventually, states
from tests.sounds import joined, silence, voice, wav

CALL = wav(joined([voice(2, rate=8_000), silence(1, 8_000)]), 8_000)


@pytest.fixture
def forked(environ: dict[str, str], tmp_path: Path) -> Iterator[ForkedParts]:
    timing = {"FAIRSCRIBE_LEASE_S": "2", "FAIRSCRIBE_RENEW_S": "0.5"}
    with forked_parts(tmp_path / "parts", {**environ, **timing}) as found:
        yield found


def upload(parts: Parts, *contents: bytes) -> list[str]:
    """Accept and hand over, as the API does."""
    fresh = [
        accept(parts.store, parts.storage, Upload("call.wav", [content]), 10**9)
        for content in contents
    ]
    hand_over(parts.handover, fresh)
    return [one.job_id for one in fresh]


def probed(parts: Parts) -> int:
    return states(parts).get(State.PROBED, 0)


def messages(parts: Parts) -> int:
    """Errands whose message is in Redis."""
    redis: Any = parts.queues[SURVEY.name]._redis
    return sum(redis.llen(name) for name in ERRANDS_LISTS)


@pytest.mark.parametrize("kills", [5, pytest.param(40, marks=pytest.mark.slow)])
def test_every_upload_reaches_the_queue_however_often_the_errands_worker_is_killed(
    parts: Parts, forked: ForkedParts, kills: int
) -> None:
    """Celery takes a message out of Redis before it writes down who has it."""
    chance = random.Random(kills)
    ids: list[str] = []
    for _ in range(kills):
        ids += upload(parts, *[CALL] * 40)
        worker, before = forked.start("errands"), probed(parts)
        eventually(lambda before=before: probed(parts) > before, 60)  # type: ignore[misc]
        time.sleep(chance.uniform(0.0, 0.1))  # in the middle of something
        worker.kill()
    forked.start("errands")
    eventually(lambda: not messages(parts), 120, "every message there is was read")
    # what is not probed by now hangs on a message that a killed worker had, or had lost
    eventually(lambda: not _active(parts), 30)
    left = states(parts).get(State.RECEIVED, 0)
    with transaction(parts.store) as c:
        c.execute(text("UPDATE jobs SET updated_at = updated_at - interval '31 seconds'"))
    parts.handover._celery.send_task("fairscribe.sweep", queue=ERRANDS_QUEUE)
    eventually(lambda: states(parts) == {State.PROBED: len(ids)}, 60)
    queue: Any = parts.queues[SURVEY.name]
    eventually(lambda: queue.waiting() == len(ids), 10)
    assert set(queue._redis.zrange(keys.ready(SURVEY.name), 0, -1)) == set(ids)
    print("\n" + json.dumps({"kills": kills, "uploads": len(ids), "left_to_the_last_sweep": left}))


def _active(parts: Parts) -> bool:
    """Whether probes went on in the last moment."""
    before = probed(parts)
    time.sleep(0.5)
    return probed(parts) != before


# -- rolling restarts -----------------------------------------------------------------------------


def first_window(prober: Prober, content: bytes) -> bytes:
    """The samples an engine is given first."""
    with tempfile.TemporaryFile() as sound, tempfile.TemporaryFile() as packed:
        sound.write(content)
        sound.flush()
        plan = prober.survey(sound.fileno(), packed.fileno(), "call.wav").plan
        packed.seek(plan.windows[0].first_sample * SAMPLE_BYTES)
        return packed.read(plan.windows[0].sample_count * SAMPLE_BYTES)


def test_three_rolling_restarts_beside_a_poison_file_fail_no_other_job(
    parts: Parts, forked: ForkedParts, prober: Prober
) -> None:
    poison_sound = wav(joined([voice(3, rate=8_000, seed=7), silence(1, 8_000)]), 8_000)
    deadly = hashlib.sha256(first_window(prober, poison_sound)).hexdigest()
    launched = {"TEST_LAUNCHER": "tests.poison_launcher", "TEST_DEADLY": deadly}
    echo = {"SLOTS": "2", "ECHO_FIXED_S": "0.4"}

    def worker(stage: str) -> Part:
        return forked.start(stage, wait=False, also=launched, **echo)

    def ready(part: Part) -> Part:
        part.until(part.ready, 90, "works")
        return part

    forked.start("errands", wait=False)
    working = [ready(worker(stage)) for stage in ("survey", "transcribe")]
    (poison,) = upload(parts, poison_sound)
    innocent: list[str] = []
    for _ in range(3):
        started = [worker(stage) for stage in ("survey", "transcribe")]
        fresh = [ready(part) for part in started]  # beside the old ones, which are then told
        innocent += upload(parts, *[CALL] * 12)
        eventually(lambda: states(parts).get(State.RUNNING, 0), 60)
        for old in working:
            old.terminate()
        assert [old.ended(60) for old in working] == [0, 0]
        working = fresh
    eventually(lambda: states(parts) == {State.COMPLETED: len(innocent), State.FAILED: 1}, 120)
    with transaction(parts.store) as c:
        rows = {str(row.id): row for row in c.execute(select(tables.jobs))}
        transcripts = c.execute(select(tables.transcripts.c.job_id)).all()
    culprit = rows.pop(poison)
    assert (culprit.state, culprit.error_code) == (State.FAILED, "engine_crashed")
    assert culprit.crashes == parts.settings.max_crashes
    assert "alone" in culprit.error_message
    assert {row.crashes for row in rows.values()} == {0}
    assert sorted(str(t.job_id) for t in transcripts) == sorted(innocent)
    assert set(itertools.chain.from_iterable(q.counts() for q in parts.queues.values())) == {0}
    print("\n" + json.dumps({"restarts": 3, "innocent": len(innocent)}))
