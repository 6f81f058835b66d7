"""One tenant's ten thousand recordings do not stand before another's ten: on real servers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from pipeline.job import SURVEY, TRANSCRIBE
from pipeline.parts import Parts
from pipeline.recording import Probe
from pipeline.scheduling.shares import AHEAD_S, ROOM
from pipeline.scheduling.work import bucket_of
from pipeline.store import index, jobs, load, views
from pipeline.store.session import transaction
from pipeline.store.tenants import Clocks
from tests import driven

CAPACITY = 8.0
WORK_S = 16.0
PROBE = Probe(60.0, "header", True, "wav", "pcm_s16le", 8000, 1)


def clocks() -> Clocks:
    return Clocks(lambda: CAPACITY)


def probed(parts: Parts, tenant: str | None, clocks: Clocks) -> tuple[str, int]:
    """A job of `tenant` after its probe, and how much later it counts than it came, ms."""
    job_id = driven.received(parts)
    with transaction(parts.store) as c:
        if tenant:
            c.execute(text("UPDATE jobs SET tenant = :t WHERE id = :i"), {"t": tenant, "i": job_id})
        row = jobs.recording_of(c, job_id)
        counted = clocks.count(c, tenant, row.arrival_ms, WORK_S) if tenant else None
        place = jobs.keep_probe(c, job_id, PROBE, bucket_of(WORK_S), counted)
    assert place is not None
    return job_id, place.arrival_ms - row.arrival_ms


def test_a_tenant_is_not_held_back_until_it_is_far_ahead_and_another_begins_anew(
    parts: Parts,
) -> None:
    ours = clocks()
    # alone its share is 2 a second, and 20 s of the house are 160 of work: ten jobs
    late_ms = [probed(parts, "many", ours)[1] for _ in range(14)]
    free = round(AHEAD_S * CAPACITY / WORK_S)
    assert late_ms[:free] == [0] * free
    step_ms = 1000 * WORK_S / (CAPACITY / (1 + ROOM))
    for nth, late in enumerate(late_ms[free + 1 :], 1):
        assert late == pytest.approx(nth * step_ms, abs=3_000), "less what passed meanwhile"
    assert probed(parts, "few", ours)[1] == 0
    assert probed(parts, None, ours)[1] == 0, "without keys there are no tenants"


def test_a_share_of_its_own_counts_instead_of_an_equal_part(parts: Parts) -> None:
    with transaction(parts.store) as c:
        c.execute(text("INSERT INTO tenants (name, share) VALUES ('slow', 0.5)"))
    ours = clocks()
    late_ms = [probed(parts, "slow", ours)[1] for _ in range(13)]
    # 32 s a job at half a second of work a second; ahead by 160 of work before it shows
    assert late_ms[9] == 0
    assert late_ms[12] == pytest.approx(2 * 32_000, abs=3_000)


def test_who_used_more_than_its_share_while_alone_owes_nothing_later(parts: Parts) -> None:
    ours = clocks()
    for _ in range(30):
        driven_id, _ = probed(parts, "many", ours)
    with transaction(parts.store) as c:
        c.execute(text("UPDATE jobs SET state = 'completed' WHERE tenant = 'many'"))
    assert driven_id
    assert probed(parts, "many", clocks())[1] == 0, "nothing of its work is left"


def test_eight_probes_at_once_count_each_job_once(parts: Parts) -> None:
    ours = clocks()
    with ThreadPoolExecutor(8) as threads:
        late_ms = list(threads.map(lambda _: probed(parts, "many", ours)[1], range(40)))
    with transaction(parts.store) as c:
        clock_ms = c.scalar(text("SELECT clock_ms FROM tenants WHERE name = 'many'"))
        first_ms = c.scalar(text("SELECT min(arrival_ms) FROM jobs"))
    assert clock_ms - first_ms == pytest.approx(40 * 8_000, abs=6_000)
    assert sum(late > 0 for late in late_ms) >= 25


def test_ranks_go_by_the_counted_arrival_and_people_read_the_true_one(parts: Parts) -> None:
    ours = clocks()
    ids = [probed(parts, "many", ours)[0] for _ in range(14)]
    with transaction(parts.store) as c:
        place = index.place(c, ids[-1])
        found = load.standing(c, ids[-1])
        (ticket,) = jobs.grant(c, SURVEY, [ids[-1]], "surveyor", None)
        view = views.view(c, ids[-1])
        row = c.execute(text("SELECT arrival_ms FROM jobs ORDER BY id DESC LIMIT 1")).one()
    assert place is not None
    assert found is not None
    assert view is not None
    later_ms = place.arrival_ms - row.arrival_ms
    assert later_ms > 10_000
    assert found[0].place.arrival_ms == place.arrival_ms == ticket.arrival_ms
    assert view.created_at.timestamp() * 1000 == pytest.approx(row.arrival_ms, abs=1_000)
    with transaction(parts.store) as c:
        again = jobs.give_back(c, SURVEY, ticket, bucket_of(WORK_S))
    assert again is not None
    assert again.arrival_ms == place.arrival_ms, "given back it stands where it stood"


def test_a_retry_is_counted_anew(parts: Parts) -> None:
    ours = clocks()
    ids = [probed(parts, "many", ours)[0] for _ in range(14)]
    with transaction(parts.store) as c:
        jobs.cancel(c, ids[-1])
        assert jobs.retry(c, ids[-1], 0, fetch=False)
        row = c.execute(text("SELECT * FROM jobs ORDER BY id DESC LIMIT 1")).one()
    assert row.counted_ms is None
    assert TRANSCRIBE.waiting.value != row.state
