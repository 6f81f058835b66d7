"""GET /metrics: how things stand for Prometheus, and nothing of what anybody sent or said."""

from __future__ import annotations

import math
import uuid

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import text, update

from pipeline.metrics import METRICS, PREFIX, as_text
from pipeline.parts import Parts
from pipeline.scheduling.learning import Done
from pipeline.scheduling.work import WorkModel
from pipeline.store import tables, webhooks, work
from pipeline.store.session import transaction
from tests import driven
from tests.api_door import Open, api, open_api
from tests.lines import received_job, surveyed_job

__all__ = ["api", "open_api"]

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read(api: TestClient) -> Samples:
    """Every sample, by name (without prefix) and labels."""
    answer = api.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name.removeprefix(PREFIX), tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_a_fresh_installation_has_nothing_to_tell_but_zeros(api: TestClient) -> None:
    told = read(api)
    assert told["jobs_waiting", (("stage", "transcribe"),)] == 0
    assert told["oldest_wait_seconds", (("stage", "probe"),)] == 0
    assert told["length_jobs", ()] == 0
    assert told["policy", (("policy", "hrrn(2.5,300)"),)] == 1
    assert not [name for name, _ in told if name.startswith("work_")]


def test_who_waits_and_for_how_long_is_told_by_stage(api: TestClient, parts: Parts) -> None:
    received_job(parts)
    driven.probed(parts, driven.received(parts))
    for waited_s in (30, 100, 5):
        surveyed_job(parts, waited_s=waited_s)
    parts.queues["transcribe"].claim(1)
    told = read(api)
    waiting = {stage: told["jobs_waiting", (("stage", stage),)] for stage in ("probe", "survey")}
    assert waiting == {"probe": 1, "survey": 1}
    transcribe = (("stage", "transcribe"),)
    assert (told["jobs_waiting", transcribe], told["jobs_working", transcribe]) == (2, 1)
    assert 30 <= told["oldest_wait_seconds", transcribe] < 40  # the one of 100 s is in work


def test_the_policy_in_force_is_a_label(api: TestClient) -> None:
    api.put("/v1/policy", json={"policy": "sjf"}).raise_for_status()
    told = read(api)
    assert [labels for name, labels in told if name == "policy"] == [(("policy", "sjf"),)]


def test_what_was_foretold_is_held_against_what_was_taken(api: TestClient, parts: Parts) -> None:
    # Given ten jobs of 1 to 10 s of engine time, each foretold a tenth too long, and a model
    for n in range(1, 11):
        with transaction(parts.store) as c:
            work.keep_done(c, received_job(parts), "base", Done("de", 60.0, 3, 300, n, 1.1 * n))
    with transaction(parts.store) as c:
        work.keep_model(c, "base", WorkModel(0.01, 0.2, 0.003, {"de": 5.5, "en": 5.0}))
    told = read(api)
    model = ("model", "base")
    assert told["work_jobs", (model,)] == 10
    assert told["work_predicted_ratio", (model, ("quantile", "0.5"))] == pytest.approx(1.1)
    # 1 - sum (n/10)^2 / sum (n - 5.5)^2 = 1 - 3.85 / 82.5
    assert told["work_r2", (model,)] == pytest.approx(1 - 3.85 / 82.5)
    assert told["work_window_seconds", (model,)] == 0.2
    assert told["work_tokens_per_speech_second", (("language", "de"), model)] == 5.5


@pytest.mark.parametrize("odd", [math.inf, 1e300, math.nan])
def test_a_time_no_job_takes_is_left_out(api: TestClient, parts: Parts, odd: float) -> None:
    for busy_s, predicted_s in ((1.0, 1.1), (2.0, 2.2), (odd, 1.0), (1.0, odd)):
        with transaction(parts.store) as c:
            done = Done("de", 60.0, 3, 300, busy_s, predicted_s)
            work.keep_done(c, received_job(parts), "base", done)
    assert read(api)["work_jobs", (("model", "base"),)] == 2


def test_what_lengths_were_worth_is_told_of_completed_jobs(api: TestClient, parts: Parts) -> None:
    # Given a recording of 4 s, 3 of them speech, probed as 5 s and hinted as 40
    job_id = driven.received(parts)
    driven.completed(parts, job_id)
    with transaction(parts.store) as c:
        mine = tables.jobs.c.id == uuid.UUID(job_id)
        c.execute(update(tables.jobs).where(mine).values(probed_s=5.0, duration_hint_s=40.0))
    told = read(api)
    half = (("quantile", "0.5"),)
    assert told["length_jobs", ()] == 1
    assert told["length_probed_ratio", half] == 1.25
    assert told["length_hint_ratio", half] == 10
    assert told["length_speech_ratio", half] == 0.75


def test_lengths_that_part_are_counted_by_what_the_file_is_and_who_said_how_long(
    api: TestClient, parts: Parts
) -> None:
    # Given four calls of 100 s with 60 s of speech: probed as so many, of which so many had words
    for probed_s, transcribed_s, container, source in (
        (100.0, 60.0, "wav", "header"),
        (111.0, 60.0, "mp3", "header"),  # 11 % and 11 s
        (104.0, 50.0, "mp3", "header"),  # 4 s of 100; 10 s of 60
        (104.0, None, "mp3", "scan"),  # completed by an older version
    ):
        job_id = driven.received(parts)
        driven.completed(parts, job_id)
        with transaction(parts.store) as c:
            lengths = {"duration_s": 100.0, "speech_s": 60.0, "transcribed_s": transcribed_s}
            found = {"probed_s": probed_s, "container": container, "probed_source": source}
            mine = tables.jobs.c.id == uuid.UUID(job_id)
            c.execute(update(tables.jobs).where(mine).values(**lengths, **found))
    told = read(api)

    def count(metric: str, container: str, source: str, *length: str) -> float:
        labels = [("container", container), ("source", source), *(("length", x) for x in length)]
        return told[metric, tuple(sorted(labels))]

    assert count("length_compared_jobs", "mp3", "header") == 2
    mismatches = {
        (container, source, length): count("length_mismatch_jobs", container, source, length)
        for container, source in (("wav", "header"), ("mp3", "header"), ("mp3", "scan"))
        for length in ("probed", "transcribed")
    }
    assert {kind for kind, number in mismatches.items() if number} == {
        ("mp3", "header", "probed"),
        ("mp3", "header", "transcribed"),
    }
    assert set(mismatches.values()) == {0, 1}
    half = (("quantile", "0.5"),)
    assert told["length_transcribed_ratio", half] == 1


def test_what_webhooks_are_not_told_is_counted(api: TestClient, parts: Parts) -> None:
    hook, paused = str(uuid.uuid4()), str(uuid.uuid4())
    with transaction(parts.store) as c:
        for webhook_id in (hook, paused):
            webhooks.add(c, webhook_id, None, "https://example.com", "whsec_x", ("job.failed",))
    for _ in range(3):
        driven.failed(parts, driven.received(parts))
    with transaction(parts.store) as c:
        given_up = f"given_up_at = now() WHERE webhook_id = '{hook}' AND attempts = 0"
        one = "AND id = (SELECT min(id::text)::uuid FROM deliveries WHERE webhook_id = :h)"
        c.execute(text(f"UPDATE deliveries SET {given_up} {one}"), {"h": hook})
        c.execute(text(f"UPDATE webhooks SET paused_at = now() WHERE id = '{paused}'"))
    told = api.get("/metrics").text
    for line in (
        'fairscribe_webhook_deliveries{status="waiting"} 5.0',
        'fairscribe_webhook_deliveries{status="given_up"} 1.0',
        'fairscribe_webhooks{status="active"} 1.0',
        'fairscribe_webhooks{status="paused"} 1.0',
    ):
        assert line in told


def test_no_name_id_or_word_of_anybody_is_told(api: TestClient, parts: Parts) -> None:
    job_id = driven.received(parts, "secret-name.wav", batch_id="secret-batch")
    driven.completed(parts, job_id)
    answer = api.get("/metrics").text
    for secret in ("secret", job_id, "Grüße"):
        assert secret not in answer


def test_without_redis_it_says_so_and_no_more(open_api: Open, parts: Parts) -> None:
    api = open_api(FAIRSCRIBE_REDIS_URL="redis://127.0.0.1:1/0")
    for _ in range(3):
        answer = api.get("/metrics")
    assert answer.status_code == 200
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    opened = {"Postgres": 0.0, "Redis": 1.0, "The broker": 0.0, "Storage": 0.0}
    assert sorted(lines) == sorted(
        f'fairscribe_breaker_open{{part="{part}"}} {value}' for part, value in opened.items()
    )


def test_a_metric_nobody_declared_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="made_up"):
        as_text({"made_up": {}})
    assert as_text({}).count(b"# TYPE fairscribe_") == len(METRICS)
