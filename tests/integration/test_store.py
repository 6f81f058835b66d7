"""Postgres decides: the moves of a job, the fence, and the schema on both sides."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Engine, text, update

from pipeline.errors import LeaseLost, PartDown
from pipeline.job import FINAL, MOVES, SURVEY, TRANSCRIBE, State, Ticket
from pipeline.parts import Parts
from pipeline.recording import Probe, Transcript
from pipeline.scheduling.adaptive import Mode
from pipeline.scheduling.policies import parse_policy
from pipeline.steps import trial
from pipeline.store import jobs, partials, policies, schema, tables, trials
from pipeline.store.session import open_store, transaction
from tests.lines import plan_of_windows, received_job, save_window, states, surveyed_job

PROBE = Probe(2.0, "header", False, "wav", "pcm_mulaw", 8000, 1)
PLAN = plan_of_windows(1)
HEARD = {"busy_s": 0.1, "text": "words"}


def put_into(parts: Parts, job_id: str, state: State) -> Ticket:
    """Set the state by force; a ticket for attempt 1."""
    with transaction(parts.store) as c:
        c.execute(
            update(tables.jobs)
            .where(tables.jobs.c.id == uuid.UUID(job_id))
            .values(state=state.value, attempt=1, bucket=50)
        )
    return Ticket(job_id, 1, 1, 1, 50, "k", "f", "en", None, {}, 2.0, PLAN.plan_hash, "tiny.en")


def said(ticket: Ticket) -> Transcript:
    return Transcript(ticket.job_id, "words", "en", 2.0, ())


ATTEMPTS = {
    "probe": (State.PROBED, lambda c, t: jobs.keep_probe(c, t.job_id, PROBE, 50)),
    "survey grant": (State.SURVEYING, lambda c, t: jobs.grant(c, SURVEY, [t.job_id], "w", None)),
    "survey": (State.SURVEYED, lambda c, t: jobs.keep_survey(c, t, PLAN, 50)),
    "grant": (State.RUNNING, lambda c, t: jobs.grant(c, TRANSCRIBE, [t.job_id], "w", "m")),
    "give back": (State.SURVEYED, lambda c, t: jobs.give_back(c, TRANSCRIBE, t, 40)),
    "transcript": (State.COMPLETED, lambda c, t: jobs.keep_transcript(c, t, said(t))),
    "silence": (State.COMPLETED, lambda c, t: jobs.keep_transcript(c, t, said(t), PLAN)),
    "fail": (State.FAILED, lambda c, t: jobs.fail(c, t.job_id, "code", "why", t.attempt)),
    "cancel": (State.CANCELLED, lambda c, t: jobs.cancel(c, t.job_id)),
}


@pytest.mark.parametrize("name", ATTEMPTS)
@pytest.mark.parametrize("state", State)
def test_a_job_moves_only_along_the_table_of_moves(parts: Parts, name: str, state: State) -> None:
    target, attempt = ATTEMPTS[name]
    job_id = received_job(parts)
    ticket = put_into(parts, job_id, state)
    with transaction(parts.store) as c:
        moved = bool(attempt(c, ticket))
    after = next(iter(states(parts)))
    assert after is (target if moved else state)
    assert not moved or target in MOVES[state] or target is state
    assert not (moved and state in FINAL)


@pytest.mark.parametrize("name", ["survey", "give back", "transcript", "silence", "fail"])
@pytest.mark.parametrize("state", [State.SURVEYING, State.SURVEYED, State.RUNNING])
def test_an_older_attempt_moves_nothing(parts: Parts, name: str, state: State) -> None:
    ticket = put_into(parts, received_job(parts), state)
    with transaction(parts.store) as c:
        assert not ATTEMPTS[name][1](c, replace(ticket, attempt=0))
    assert states(parts) == {state: 1}


def test_of_two_grants_at_the_same_time_one_counts(parts: Parts) -> None:
    job_id = surveyed_job(parts)
    with transaction(parts.store) as c:
        first = jobs.grant(c, TRANSCRIBE, [job_id], "one", "m")
        second = jobs.grant(c, TRANSCRIBE, [job_id], "two", "m")
    assert ([t.attempt for t in first], second) == ([1], [])


def test_a_window_is_saved_once_and_only_by_the_newest_attempt(parts: Parts) -> None:
    ticket = put_into(parts, received_job(parts), State.RUNNING)
    with transaction(parts.store) as c:
        save_window(c, ticket, 0, HEARD)
        save_window(c, ticket, 0, {**HEARD, "text": "other words"})
        assert partials.saved_windows(c, ticket) == {0: HEARD}
        with pytest.raises(LeaseLost):
            save_window(c, replace(ticket, attempt=2), 1, HEARD)
    other_model = replace(ticket, model="base")
    with transaction(parts.store) as c:
        assert partials.saved_windows(c, other_model) == {}


@pytest.mark.parametrize("state", [State.CANCELLED, State.FAILED, State.COMPLETED])
def test_no_window_is_saved_for_a_job_that_ended(parts: Parts, state: State) -> None:
    ticket = put_into(parts, received_job(parts), state)
    with transaction(parts.store) as c, pytest.raises(LeaseLost):
        save_window(c, ticket, 0, HEARD)


def test_the_models_and_the_migrations_describe_the_same_schema(store: Engine) -> None:
    with store.connect() as c:
        context = MigrationContext.configure(c)
        differences = compare_metadata(context, tables.metadata)
    assert [one for one in differences if "alembic_version" not in str(one)] == []


def test_the_schema_goes_down_and_up_again_and_twice_up_is_once(store: Engine) -> None:
    schema.upgrade(store)
    assert "jobs" in tables_in(store)
    schema.downgrade(store)
    try:
        assert tables_in(store) <= {"alembic_version"}
    finally:
        schema.upgrade(store)
    assert {table.name for table in tables.metadata.sorted_tables} <= tables_in(store)


def test_on_the_way_down_a_trial_ends_and_the_order_stays_one_that_0002_reads(
    parts: Parts,
) -> None:
    store = parts.store
    ours, tried = parse_policy("hrrn(2.5,300)"), parse_policy("sjf")
    with transaction(store) as c:
        policies.change_policy(c, ours, "by hand")
    begun = trial.begin(
        store, parts.queues, (ours, Mode.FIXED), tried, block_s=600.0, blocks=6, keep_better=True
    )
    surveyed_job(parts, queue=False)
    schema.downgrade(store, "0002")
    try:
        with store.connect() as c:
            rows = c.execute(text("SELECT policy, reason FROM policies ORDER BY id")).all()
    finally:
        schema.upgrade(store)
    assert rows[-1] == ("hrrn(2.5)", f"Trial {begun.id} ended with its table. Back to {ours}.")
    assert {policy for policy, _ in rows} <= {"hrrn(2.5)", "sjf"}
    with transaction(store) as c:
        last = policies.newest(c)
        assert last is not None
        assert (last.policy, last.mode) == (parse_policy("hrrn(2.5)"), Mode.FIXED)
        assert trials.running(c) is None


def tables_in(store: Engine) -> set[str]:
    with store.connect() as c:
        return names(c)


def names(c: Connection) -> set[str]:
    found = c.execute(text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"))
    return {row[0] for row in found}


def test_a_database_that_does_not_answer_is_a_part_that_is_down() -> None:
    nowhere = open_store("postgresql+psycopg://nobody@127.0.0.1:1/none")
    with pytest.raises(PartDown, match="Postgres does not answer"), transaction(nowhere):
        pass
