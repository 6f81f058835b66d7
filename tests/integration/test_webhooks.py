"""Webhooks: told if and only if the job ended, again until it comes through, and then no more."""

from __future__ import annotations

import ast
import json
import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import uuid_utils
from sqlalchemy import text

from pipeline.caller import ANYONE
from pipeline.errors import PartDown, SignatureRefused
from pipeline.fetch.poster import Poster
from pipeline.job import FINAL, SURVEY, State
from pipeline.parts import Parts
from pipeline.recording import Transcript
from pipeline.steps.accept import Upload, accept
from pipeline.steps.cancel import cancel, cancel_batch
from pipeline.steps.notify import notify
from pipeline.steps.retry import retry
from pipeline.steps.tidy import tidy
from pipeline.store import deliveries, erasures, jobs, outbox, webhooks
from pipeline.store.accesses import Action
from pipeline.store.deliveries import Delivery
from pipeline.store.session import transaction
from pipeline.store.webhooks import Webhook
from pipeline.webhooks import EVENTS, PAUSES_S, new_secret, verify
from tests import driven
from tests.lines import plan_of_windows, states
from tests.web import Web, serving

SECRET = new_secret()
POSTER = Poster(timeout_s=5.0, private=True)


def add(
    parts: Parts,
    url: str = "https://example.com/hook",
    events: tuple[str, ...] = EVENTS,
    tenant: str | None = None,
) -> str:
    webhook_id = str(uuid_utils.uuid7())
    with transaction(parts.store) as c:
        webhooks.add(c, webhook_id, tenant, url, SECRET, events)
    return webhook_id


def log_of(parts: Parts, webhook_id: str) -> list[Delivery]:
    """The oldest first."""
    with transaction(parts.store) as c:
        return deliveries.page(c, webhook_id, None, None, 10_000)[::-1]


def state(parts: Parts, webhook_id: str) -> Webhook:
    with transaction(parts.store) as c:
        found = webhooks.webhook(c, webhook_id)
    assert found is not None
    return found


def run(parts: Parts, webhook_id: str, **how: Any) -> bool:
    return notify(parts.store, POSTER, webhook_id, lease_s=30.0, **how)


def make_due(parts: Parts) -> None:
    """As if the time to the next attempt had passed."""
    sql(parts, "UPDATE deliveries SET due_at = now() - interval '1 ms'")


def sql(parts: Parts, statement: str, **values: Any) -> Any:
    with transaction(parts.store) as c:
        done = c.execute(text(statement), values)
        return done.all() if done.returns_rows else None


def failed_job(parts: Parts) -> str:
    job_id = driven.received(parts)
    driven.failed(parts, job_id)
    return job_id


# -- the outbox -----------------------------------------------------------------------------


def without_speech(parts: Parts, job_id: str) -> None:
    driven.probed(parts, job_id)
    with transaction(parts.store) as c:
        (ticket,) = jobs.grant(c, SURVEY, [job_id], "test", None)
        nothing = Transcript(job_id, "", "en", 4.0, (), no_speech=True)
        assert jobs.keep_transcript(c, ticket, nothing, plan_of_windows(0))


def failed_in_work(parts: Parts, job_id: str) -> None:
    ticket = driven.running(parts, job_id)
    with transaction(parts.store) as c:
        assert jobs.fail(c, job_id, "engine_crashed_on_job", "It died.", ticket.attempt)


def cancelled_in_work(parts: Parts, job_id: str) -> None:
    driven.running(parts, job_id)
    assert cancel(parts.store, parts.queues, job_id)


ENDS: list[tuple[Callable[[Parts, str], Any], str, str | None]] = [
    (driven.completed, "completed", None),
    (without_speech, "completed", None),
    (driven.failed, "failed", "not_audio"),
    (failed_in_work, "failed", "engine_crashed_on_job"),
    (lambda parts, job_id: cancel(parts.store, parts.queues, job_id), "cancelled", None),
    (cancelled_in_work, "cancelled", None),
    (lambda parts, _: cancel_batch(parts.store, parts.queues, "monday", ANYONE), "cancelled", None),
]


@pytest.mark.parametrize(("end", "status", "code"), ENDS)
def test_every_way_a_job_ends_is_told_once(
    parts: Parts, end: Callable[[Parts, str], Any], status: str, code: str | None
) -> None:
    hook = add(parts)
    job_id = driven.received(parts, "Frau Huber, Kündigung.wav", "monday")
    assert log_of(parts, hook) == []
    end(parts, job_id)
    assert not cancel(parts.store, parts.queues, job_id)  # it has ended
    (told,) = log_of(parts, hook)
    assert (told.event, told.job_id, told.status, told.attempts) == (
        *(f"job.{status}", job_id, "waiting"),
        0,
    )
    ((body,),) = sql(parts, "SELECT body FROM deliveries")
    path = f"/v1/jobs/{job_id}"
    found = json.loads(body)
    moment = datetime.fromisoformat(found.pop("created_at"))
    assert abs((datetime.now(UTC) - moment).total_seconds()) < 60
    # nothing of what was said, no name of a file, no metadata
    assert found == {
        "id": told.id,
        "type": f"job.{status}",
        "data": {
            "job_id": job_id,
            "batch_id": "monday",
            "status": status,
            "error": {"code": code} if code else None,
            "links": {
                "job": path,
                "transcript": f"{path}/transcript" if status == "completed" else None,
            },
        },
    }


def test_nothing_but_rows_move_changes_a_jobs_state() -> None:
    """Else it could end a job and tell nobody: the ways above would not know of it."""
    root = Path(__file__).resolve().parents[2]
    for path in (*root.glob("pipeline/**/*.py"), *root.glob("workers/**/*.py")):
        source = path.read_text("utf-8")
        if path.name == "dump.py":  # a restore has jobs wait again, and ends none
            assert not any(f"'{state.value}'" in source for state in FINAL)
            continue
        for setting in re.findall(r"UPDATE jobs\b.*?\bSET\b(.*?)\bWHERE\b", source, re.DOTALL):
            assert not re.search(r"\bstate\s*=", setting), path
        if path.name == "rows.py":
            continue
        for function in ast.walk(ast.parse(source)):
            if isinstance(function, ast.FunctionDef) and "update(jobs)" in ast.unparse(function):
                inside = list(ast.walk(function))
                named = {one.arg for one in inside if isinstance(one, ast.keyword)}
                keys = [key for one in inside if isinstance(one, ast.Dict) for key in one.keys]
                named |= {key.value for key in keys if isinstance(key, ast.Constant)}
                moves = "move(c" in ast.unparse(function)
                assert moves or "state" not in named, f"{path}: {function.name}: use rows.move"


def test_a_file_refused_at_once_is_told_too(parts: Parts) -> None:
    hook = add(parts)
    accept(parts.store, parts.storage, Upload("a.wav", [b""]), 1000)
    assert [one.event for one in log_of(parts, hook)] == ["job.failed"]


def test_a_job_that_did_not_end_after_all_is_not_told(parts: Parts) -> None:
    hook, job_id = add(parts), driven.received(parts)
    with parts.store.connect() as c:
        assert jobs.fail(c, job_id, "not_audio", "No.")
        assert deliveries.page(c, hook, None, None, 9)  # and killed before the commit
    assert log_of(parts, hook) == []
    assert states(parts) == {State.RECEIVED: 1}


def test_a_job_tried_again_is_told_again(parts: Parts) -> None:
    hook, job_id = add(parts), failed_job(parts)
    retry(parts.store, parts.storage, parts.handover, job_id)
    driven.completed(parts, job_id)
    told = log_of(parts, hook)
    assert [one.event for one in told] == ["job.failed", "job.completed"]
    assert told[0].id != told[1].id


def test_only_who_asked_is_told_and_only_of_its_own(parts: Parts) -> None:
    all_of_a, failed_of_a = add(parts, tenant="a"), add(parts, events=EVENTS[1:2], tenant="a")
    of_b, of_nobody = add(parts, tenant="b"), add(parts)
    for end in (driven.completed, driven.failed):
        job_id = driven.received(parts)
        sql(parts, "UPDATE jobs SET tenant = 'a' WHERE id = :id", id=UUID(job_id))
        end(parts, job_id)
    assert [len(log_of(parts, hook)) for hook in (all_of_a, failed_of_a)] == [2, 1]
    assert [len(log_of(parts, hook)) for hook in (of_b, of_nobody)] == [0, 0]


def test_a_webhook_deleted_in_the_moment_a_job_ends_does_not_keep_it_from_ending(
    parts: Parts,
) -> None:
    hook, job_id = add(parts), driven.received(parts)
    with transaction(parts.store) as c:
        assert webhooks.drop_page(c, hook)
        ending = threading.Thread(target=driven.failed, args=(parts, job_id))
        ending.start()
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        end_s = time.monotonic() + 2.5
        while not sql(parts, waits)[0][0] and time.monotonic() < end_s:
            pass
    ending.join()
    assert states(parts) == {State.FAILED: 1}
    assert sql(parts, "SELECT id FROM deliveries") == []


def test_what_is_erased_leaves_no_delivery_and_the_log_forgets_in_time(parts: Parts) -> None:
    hook = add(parts)
    erased, old, young = (failed_job(parts) for _ in range(3))
    with transaction(parts.store) as c:
        erasures.erase(c, [erased], ANYONE, Action.ERASED)
    aged = "UPDATE deliveries SET created_at = now() - interval '31 days' WHERE job_id = :id"
    sql(parts, aged, id=UUID(old))
    tidy(parts.store, parts.storage)
    assert [one.job_id for one in log_of(parts, hook)] == [young]


# -- sending --------------------------------------------------------------------------------


def test_what_is_sent_is_signed_and_sent_once(parts: Parts, web: Web) -> None:
    hook = add(parts, web.page("/hook", b"thanks", 204))
    failed_job(parts)
    assert [run(parts, hook), run(parts, hook)] == [True, False]
    ((_, headers, body),) = web.sent
    verify(SECRET, headers, body)
    with pytest.raises(SignatureRefused):
        verify(new_secret(), headers, body)
    with pytest.raises(SignatureRefused):  # kept, and sent again ten minutes later
        verify(SECRET, headers, body, time.time() + 600)
    (told,) = log_of(parts, hook)
    assert headers["webhook-id"] == told.id == json.loads(body)["id"]
    assert (told.status, told.attempts, told.last_status) == ("delivered", 1, 204)
    assert told.due_at is None


def test_eight_attempts_more_and_more_patient_then_it_is_given_up(parts: Parts, web: Web) -> None:
    hook = add(parts, web.page("/hook", b"our database says: secret", 500))
    failed_job(parts)
    for pause_s in PAUSES_S:
        make_due(parts)
        assert run(parts, hook)
        assert not run(parts, hook)  # not due yet
        (told,) = log_of(parts, hook)
        assert told.due_at is not None
        assert told.attempted_at is not None
        assert (told.due_at - told.attempted_at).total_seconds() == pytest.approx(pause_s, abs=5)
        assert (told.status, told.last_status) == ("waiting", 500)
        assert told.last_error == "The receiver answered 500."  # and nothing it said
    make_due(parts)
    assert run(parts, hook)
    (told,) = log_of(parts, hook)
    assert (told.status, told.attempts, told.due_at) == ("given_up", 8, None)
    make_due(parts)
    assert not run(parts, hook)
    assert len({headers["webhook-id"] for _, headers, _ in web.sent}) == 1
    for _, headers, body in web.sent:  # each attempt has its own time and signature
        verify(SECRET, headers, body)


@pytest.mark.parametrize(
    ("status", "said", "wait_s"),
    [
        (503, "7", 30.0),  # not sooner than we would
        (503, "900", 900.0),
        (429, "900", 900.0),
        (429, "99999999", 86_400.0),  # not for years
        (429, "9" * 400, 86_400.0),
        (500, "900", 30.0),  # only those two mean it
        (503, "tomorrow", 30.0),
    ],
)
def test_a_receiver_may_ask_for_a_pause(
    parts: Parts, web: Web, status: int, said: str, wait_s: float
) -> None:
    hook = add(parts, web.page("/hook", b"", status, retry_after=said))
    failed_job(parts)
    run(parts, hook)
    (told,) = log_of(parts, hook)
    assert told.due_at is not None
    assert told.attempted_at is not None
    assert (told.due_at - told.attempted_at).total_seconds() == pytest.approx(wait_s, abs=5)


def test_a_redirect_is_a_failure_that_says_so(parts: Parts, web: Web) -> None:
    web.page("/there")
    hook = add(parts, web.page("/here", status=308, location=web.url("/there")))
    failed_job(parts)
    run(parts, hook)
    (told,) = log_of(parts, hook)
    assert told.last_error == "The receiver answered 308; redirects are not followed."
    assert len(web.sent) == 1


def test_a_receiver_that_was_down_for_a_while_gets_all_once_it_is_up(parts: Parts) -> None:
    with serving() as gone:
        url = gone.url("/hook")
    hook = add(parts, url)
    ids = {failed_job(parts) for _ in range(3)}
    while run(parts, hook):
        pass
    errors = {one.last_error for one in log_of(parts, hook)}
    assert errors == {"The URL's server cannot be reached."}
    with serving() as back:
        sql(parts, "UPDATE webhooks SET url = :url", url=back.page("/hook"))
        make_due(parts)
        while run(parts, hook):
            pass
    assert len(back.sent) == 3
    told = log_of(parts, hook)
    assert {one.job_id for one in told} == ids
    assert {(one.status, one.attempts, one.last_error) for one in told} == {("delivered", 2, None)}


def test_a_receiver_inside_is_never_asked(parts: Parts, web: Web) -> None:
    hook = add(parts, web.page("/hook"))
    failed_job(parts)
    careful = Poster(timeout_s=5.0, private=False)
    assert notify(parts.store, careful, hook, lease_s=30.0)
    (told,) = log_of(parts, hook)
    assert told.last_error == "The URL leads to an address that is not public."
    assert web.asked == []


def test_two_who_send_at_once_send_different_ones(parts: Parts) -> None:
    hook = add(parts)
    ids = {failed_job(parts), failed_job(parts)}
    with transaction(parts.store) as one, transaction(parts.store) as other:
        taken = [deliveries.take(c, hook, 30.0) for c in (one, other)]
        assert {sending.job_id for sending in taken if sending} == ids
        with transaction(parts.store) as third:
            assert deliveries.take(third, hook, 30.0) is None


def test_a_sender_that_was_overtaken_writes_nothing(parts: Parts) -> None:
    hook = add(parts)
    failed_job(parts)
    with transaction(parts.store) as c:
        old = deliveries.take(c, hook, 30.0)
    assert old is not None
    make_due(parts)  # its lease ran out
    with transaction(parts.store) as c:
        new = deliveries.take(c, hook, 30.0)
        assert new is not None
        assert (new.id, new.attempt) == (old.id, 2)
        assert not deliveries.delivered(c, old, 200)
        deliveries.failed(c, old, 500, "late")
        deliveries.give_back(c, old)
    (told,) = log_of(parts, hook)
    assert (told.status, told.last_error) == ("waiting", None)
    assert told.due_at is not None
    assert (told.due_at - datetime.now(UTC)).total_seconds() > 20
    with transaction(parts.store) as c:
        assert deliveries.delivered(c, new, 200)


def test_when_a_receiver_is_back_what_waits_for_it_is_brought_forward(
    parts: Parts, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "PAGE", 3)  # several rounds
    hook, other = add(parts, web.page("/away", status=500)), add(parts)
    for _ in range(8):
        failed_job(parts)
    for _ in range(8):
        assert notify(parts.store, POSTER, hook, lease_s=30.0)
    assert not notify(parts.store, POSTER, hook, lease_s=30.0)  # all wait out their pause
    with transaction(parts.store) as c:
        under_way = deliveries.take(c, other, 30.0)  # of another webhook, and in another's hands
    assert under_way is not None
    sql(parts, "UPDATE webhooks SET url = :u WHERE id = :i", u=web.page("/back"), i=UUID(hook))
    failed_job(parts)  # the next news finds the receiver there
    sent = 0
    while notify(parts.store, POSTER, hook, lease_s=30.0):
        sent += 1
    assert sent == 9
    assert {one.status for one in log_of(parts, hook)} == {"delivered"}
    assert state(parts, hook).failing_since is None
    assert {one.attempts for one in log_of(parts, other)} == {0, 1}


def test_an_attempt_under_way_is_not_brought_forward(parts: Parts) -> None:
    hook = add(parts)
    failed_job(parts)
    failed_job(parts)
    for _ in range(2):
        with transaction(parts.store) as c:
            sending = deliveries.take(c, hook, 30.0)
            assert sending is not None
            deliveries.failed(c, sending, 500, "It answered 500.")
    make_due(parts)
    with transaction(parts.store) as c:
        assert deliveries.take(c, hook, 30.0)
    sql(parts, "UPDATE deliveries SET due_at = now() + interval '1 hour' WHERE attempts = 1")
    with transaction(parts.store) as c:
        assert deliveries.bring_forward(c, hook) == 1
        assert deliveries.bring_forward(c, hook) == 0


def test_postgres_away_after_the_message_was_sent_costs_a_second_one_with_the_same_id(
    parts: Parts, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = add(parts, web.page("/hook"))
    failed_job(parts)

    def down(*_: object) -> None:
        raise PartDown("Postgres does not answer.")

    with monkeypatch.context() as patch:
        patch.setattr(deliveries, "delivered", down)
        with pytest.raises(PartDown):
            run(parts, hook)
    assert not run(parts, hook)  # somebody may still be at it
    make_due(parts)
    assert run(parts, hook)
    assert len(web.sent) == 2
    assert len({headers["webhook-id"] for _, headers, _ in web.sent}) == 1


def test_a_worker_that_ends_gives_back_what_it_did_not_send(parts: Parts, web: Web) -> None:
    hook = add(parts, web.page("/hook"))
    failed_job(parts)
    assert not run(parts, hook, stopping=lambda: True)
    assert web.sent == []
    assert run(parts, hook)
    assert len(web.sent) == 1


def test_what_one_bad_delivery_meets_is_counted_and_does_not_repeat_for_ever(parts: Parts) -> None:
    hook = add(parts)
    failed_job(parts)
    sql(parts, "UPDATE webhooks SET secret = 'whsec_ü'")
    assert run(parts, hook)
    (told,) = log_of(parts, hook)
    assert told.last_error == "It could not be sent."
    assert not run(parts, hook)


# -- pause, resume, again -------------------------------------------------------------------


def test_a_receiver_that_is_gone_is_paused_and_gets_all_when_it_is_resumed(
    parts: Parts, web: Web
) -> None:
    hook = add(parts, web.page("/hook", b"", 410))
    failed_job(parts)
    run(parts, hook)
    failed_job(parts)  # it is kept for it
    make_due(parts)
    assert not run(parts, hook)
    seen = state(parts, hook)
    assert seen.paused_at is not None
    assert (seen.paused_reason, seen.waiting) == ("The receiver answered 410: it wants no more.", 2)
    web.page("/hook")
    with transaction(parts.store) as c:
        assert webhooks.resume(c, hook) == 2
    assert [run(parts, hook) for _ in range(3)] == [True, True, False]
    assert [one.status for one in log_of(parts, hook)] == ["delivered"] * 2
    assert state(parts, hook).paused_at is None


def test_three_days_without_success_pause_and_one_success_forgives_all(
    parts: Parts, web: Web
) -> None:
    hook = add(parts, web.page("/hook", b"", 500))
    failed_job(parts)
    run(parts, hook)
    assert state(parts, hook).failing_since is not None
    days = "UPDATE webhooks SET failing_since = now() - make_interval(hours => :hours)"
    sql(parts, days, hours=71)
    make_due(parts)
    run(parts, hook)
    assert state(parts, hook).paused_at is None
    web.page("/hook")
    make_due(parts)
    run(parts, hook)
    assert state(parts, hook).failing_since is None
    web.page("/hook", b"", 500)
    failed_job(parts)
    run(parts, hook)
    sql(parts, days, hours=73)
    make_due(parts)
    run(parts, hook)
    assert state(parts, hook).paused_reason == "No delivery came through for 3 days."


def test_a_resumed_webhook_gets_what_was_given_up_lately_and_nothing_old(parts: Parts) -> None:
    hook = add(parts)
    for age in ("1 day", "8 days", "1 day", "8 days"):
        failed_job(parts)
        newest = "id = (SELECT id FROM deliveries ORDER BY created_at DESC LIMIT 1)"
        sql(parts, f"UPDATE deliveries SET created_at = now() - interval '{age}' WHERE {newest}")
    sql(parts, "UPDATE webhooks SET paused_at = now(), paused_reason = 'by hand'")
    given_up = "(SELECT id FROM deliveries ORDER BY id LIMIT 4)"
    sql(parts, f"UPDATE deliveries SET given_up_at = now() WHERE id IN {given_up}")
    with transaction(parts.store) as c:
        assert webhooks.resume(c, hook) == 2
    assert [one.status for one in log_of(parts, hook)] == ["given_up"] * 2 + ["waiting"] * 2


def test_a_ping_goes_out_once_also_to_a_paused_webhook_and_pauses_nothing(
    parts: Parts, web: Web
) -> None:
    hook = add(parts, web.page("/hook", b"", 410))
    failed_job(parts)
    with transaction(parts.store) as c:
        outbox.ping(c, hook)
    with transaction(parts.store) as c:
        first = deliveries.take(c, hook, 30.0)
        assert first is not None
        assert first.event == "ping"  # before all that waited longer
    sql(parts, "DELETE FROM deliveries WHERE event = 'ping'")
    sql(parts, "UPDATE webhooks SET paused_at = now()")
    with transaction(parts.store) as c:
        assert outbox.ping(c, hook)
    with transaction(parts.store) as c:
        assert [one.count for one in deliveries.due(c, 4)] == [1]
    assert [run(parts, hook), run(parts, hook)] == [True, False]
    ((_, headers, body),) = web.sent
    verify(SECRET, headers, body)
    assert json.loads(body)["type"] == "ping"
    (ping,) = (one for one in log_of(parts, hook) if one.event == "ping")
    assert (ping.status, ping.last_status, ping.job_id) == ("given_up", 410, None)
    assert state(parts, hook).failing_since is None
    with transaction(parts.store) as c:
        assert deliveries.due(c, 4) == []


def test_what_was_delivered_can_be_sent_again_under_its_id(parts: Parts, web: Web) -> None:
    hook = add(parts, web.page("/hook"))
    failed_job(parts)
    run(parts, hook)
    (told,) = log_of(parts, hook)
    with transaction(parts.store) as c:
        assert deliveries.send_again(c, hook, told.id)
        assert not deliveries.send_again(c, add(parts), told.id)  # not another's
    assert run(parts, hook)
    assert [headers["webhook-id"] for _, headers, _ in web.sent] == [told.id] * 2
    assert web.sent[0][2] == web.sent[1][2]
    assert [one.attempts for one in log_of(parts, hook)] == [2]


def test_for_a_day_the_secret_before_signs_too(parts: Parts, web: Web) -> None:
    hook, newer = add(parts, web.page("/hook")), new_secret()
    with transaction(parts.store) as c:
        webhooks.change_secret(c, hook, newer)
    failed_job(parts)
    run(parts, hook)
    sql(parts, "UPDATE webhooks SET old_secret_until = now()")
    failed_job(parts)
    run(parts, hook)
    for _, headers, body in web.sent:
        verify(newer, headers, body)
    verify(SECRET, *web.sent[0][1:])
    with pytest.raises(SignatureRefused):
        verify(SECRET, *web.sent[1][1:])


def test_the_log_can_be_read_page_by_page_and_by_status(parts: Parts, web: Web) -> None:
    hook = add(parts, web.page("/hook"))
    for _ in range(5):
        failed_job(parts)
    run(parts, hook)
    pages, before = [], None
    with transaction(parts.store) as c:
        while found := deliveries.page(c, hook, None, before, 2):
            pages += found
            before = found[-1].id
        assert len(deliveries.page(c, hook, "waiting", None, 9)) == 4
        (there,) = deliveries.page(c, hook, "delivered", None, 9)
        assert deliveries.page(c, hook, None, driven.nobody(), 9) == []
    assert pages == log_of(parts, hook)[::-1]
    assert pages[-1] == there
