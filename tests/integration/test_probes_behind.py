"""Who sends many waits behind who sends few: probes of a real worker, and the sweeper's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, text

from pipeline.handover import BEHIND, ERRANDS_LISTS, FEW, Few
from pipeline.job import State
from pipeline.parts import Parts
from pipeline.steps.accept import Accepted, Upload, accept, hand_over
from pipeline.store.session import transaction
from pipeline.store.tables import jobs
from tests.forked_parts import ForkedParts, forked_parts
from tests.lines import eventually
from tests.sounds import joined, silence, voice, wav
from workers import errands

CALL = wav(joined([voice(1, rate=8_000), silence(1, 8_000)]), 8_000)


@pytest.fixture
def forked(environ: dict[str, str], tmp_path: Path) -> Iterator[ForkedParts]:
    with forked_parts(tmp_path / "parts", environ) as found:
        yield found


def accepted(parts: Parts, sender: str, count: int) -> list[Accepted]:
    uploads = [Upload("call.wav", [CALL], tenant=sender) for _ in range(count)]
    return [accept(parts.store, parts.storage, upload, 10**9) for upload in uploads]


def probed(parts: Parts, sender: str) -> int:
    asked = select(func.count()).where(jobs.c.tenant == sender, jobs.c.state == State.PROBED)
    with transaction(parts.store) as c:
        return int(c.execute(asked).scalar_one())


def waiting(parts: Parts) -> list[int]:
    redis: Any = parts.queues["survey"]._redis
    return [redis.llen(name) for name in ERRANDS_LISTS]


def test_ten_files_of_one_are_probed_before_most_of_five_hundred_of_another(
    parts: Parts, forked: ForkedParts
) -> None:
    hand_over(parts.handover, accepted(parts, "bulk", 500), "bulk")
    hand_over(parts.handover, accepted(parts, "few", 10), "few")
    assert waiting(parts) == [FEW + 10, 500 - FEW]
    forked.start("errands", wait=False)
    eventually(lambda: probed(parts, "few") == 10, 60)
    assert probed(parts, "bulk") < 250
    eventually(lambda: probed(parts, "bulk") == 500, 120)


def test_what_the_sweeper_asks_for_again_goes_behind_too(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errands, "parts", lambda: parts)
    accepted(parts, "bulk", 60)
    accepted(parts, "few", 3)  # no message of all these was ever sent, or all are lost
    with transaction(parts.store) as c:
        c.execute(text("UPDATE jobs SET updated_at = updated_at - interval '31 seconds'"))
    errands.sweep()
    assert waiting(parts) == [FEW + 3, 60 - FEW]


def test_many_single_uploads_of_one_sender_are_many(parts: Parts) -> None:
    for one in accepted(parts, "bulk", 30):
        hand_over(parts.handover, [one], "bulk")
    assert waiting(parts) == [FEW, 30 - FEW]
    assert BEHIND > 0  # with Redis 0 is the highest


def test_after_half_a_minute_a_sender_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    few, now_s = Few(), [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    assert [few.take("one", 15) for _ in range(3)] == [15, 5, 0]
    assert [few.take("two", 15), few.take(None, 50), few.take(None, 50)] == [15, FEW, FEW]
    now_s[0] += 29.0
    assert few.take("one", 1) == 0
    now_s[0] += 1.0
    assert few.take("one", 30) == FEW


def test_no_more_senders_are_remembered_than_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.handover.SENDERS_KEPT", 100)
    few = Few()
    for number in range(1_000):
        assert few.take(str(number), 1) == 1
    assert len(few._asked) <= 100
