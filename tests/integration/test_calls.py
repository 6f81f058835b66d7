"""Calls recorded in several files: joined by their metadata, through every door."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from pipeline.intake.prober import Prober
from pipeline.job import SURVEY
from pipeline.parts import Parts
from pipeline.recording import Channel, Lengths, Segment, Transcript
from pipeline.steps.cancel import cancel
from pipeline.steps.erase import erase
from pipeline.steps.join import LEGS
from pipeline.steps.probe import probe
from pipeline.store import jobs
from pipeline.store.session import transaction
from tests import driven
from tests.api_door import api, assert_problem, open_api, send, served
from tests.integration.conftest import Run, alone, api_port, run
from tests.lines import pulling, surveyed_job
from tests.sounds import sides, silence, voice, wav
from workers.survey import SurveyWork

__all__ = ["alone", "api", "api_port", "open_api", "run", "served"]


def leg_of(api: httpx.Client, call_id: str, file_name: str = "a.wav", **metadata: Any) -> str:
    """A recording of this call, accepted; its job."""
    said = json.dumps({"call_id": call_id, **metadata})
    answer = send(api, (file_name, b"RIFF"), metadata=said)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["jobs"][0]["id"])


def complete(parts: Parts, job_id: str, *said: tuple[float, str], duration_s: float = 9.0) -> None:
    """Somebody said this on the one channel of a recording: (start, words), a second each."""
    segments = tuple(Segment(s, s + 1, 0, None, words, 0.9) for s, words in said)
    transcript = Transcript(
        job_id,
        " ".join(words for _, words in said),
        "en",
        duration_s,
        segments,
        no_speech=not said,
        channels=(Channel("mono", None, "en"),),
        channel_reason="one channel",
        lengths=Lengths(duration_s, duration_s, float(len(said)), float(len(said))),
        provenance={"model": "t", "options": {}},
    )
    ticket = driven.running(parts, job_id)
    with transaction(parts.store) as c:
        assert jobs.keep_transcript(c, ticket, transcript)


def test_two_recordings_of_one_call_read_as_one_transcript_in_every_format(
    api: TestClient, parts: Parts
) -> None:
    agent = leg_of(api, "2026/17", "a.wav", leg="agent")
    customer = leg_of(api, "2026/17", "b.wav", leg="customer", leg_offset_s="1.5")
    complete(parts, agent, (0.5, "Good morning."), (4.0, "Sure."))
    complete(parts, customer, (0.5, "Hello."), duration_s=20.0)

    document = api.get("/v1/calls/2026/17/transcript").json()

    assert (document["call_id"], document["text"]) == ("2026/17", "Good morning. Hello. Sure.")
    assert [(s["start_s"], s["channel"], s["speaker"]) for s in document["segments"]] == [
        *((0.5, 0, "agent"), (2.0, 1, "customer"), (4.0, 0, "agent"))
    ]
    assert (document["duration_s"], document["speakers_separated"]) == (21.5, True)
    assert [leg["job_id"] for leg in document["legs"]] == [agent, customer]

    def written(format: str) -> str:
        return api.get("/v1/calls/2026/17/transcript", params={"format": format}).text

    assert written("txt") == "agent: Good morning.\ncustomer: Hello.\nagent: Sure.\n"
    assert "00:00:02,000 --> 00:00:03,000\ncustomer: Hello.\n" in written("srt")
    assert "<v customer>Hello." in written("vtt")
    verbose = json.loads(written("verbose_json"))
    assert (verbose["duration"], verbose["segments"][1]["speaker"]) == (21.5, "customer")
    kept = api.get("/v1/calls/2026/17/transcript", params={"format": "srt", "download": "1"})
    assert kept.headers["content-disposition"].startswith('attachment; filename="17.srt"')


def test_times_of_two_files_are_those_of_the_same_call_in_one_file(
    api: TestClient, parts: Parts
) -> None:
    # Given a call of two sides, in one file, and in a file a side of which one begins 2 s later
    left = np.concatenate([silence(1), voice(3), silence(6), voice(2, seed=3), silence(1)])
    right = np.concatenate([silence(5), voice(3, pitch_hz=200, seed=2), silence(5)])
    whole = send(api, ("both.wav", wav(sides(left, right), channels=2))).json()["jobs"][0]["id"]
    legs = []
    for name, sound, offset_s in (("right", right[2 * 16_000 :], 2), ("left", left, 0)):
        said = json.dumps({"call_id": "7", "leg": name, "leg_offset_s": offset_s})
        answer = send(api, (f"{name}.wav", wav(sound)), metadata=said)
        legs.append(answer.json()["jobs"][0]["id"])
    # When all three went the whole way
    sandbox = Prober(max_duration_s=60)
    for job_id in (whole, *legs):
        probe(parts.store, parts.storage, sandbox, parts.queues[SURVEY.name], job_id, "en")
    sandbox.close()
    with pulling(parts, work=SurveyWork(parts), name="s@here"), pulling(parts):
        for job_id in (whole, *legs):
            assert api.get(f"/v1/jobs/{job_id}?wait=30").json()["status"] == "completed"
    # Then both say the same of who speaks when
    one = api.get(f"/v1/jobs/{whole}/transcript").json()
    two = api.get("/v1/calls/7/transcript").json()
    assert one["speakers_separated"]
    assert two["speakers_separated"]
    assert [said["speaker"] for said in two["segments"]] == [
        said["speaker"] for said in one["segments"]
    ]
    assert len(one["segments"]) >= 2
    for ours, theirs in zip(two["segments"], one["segments"], strict=True):
        assert ours["start_s"] == pytest.approx(theirs["start_s"], abs=0.1)
        assert ours["end_s"] == pytest.approx(theirs["end_s"], abs=0.1)
    assert two["duration_s"] == pytest.approx(13.0, abs=0.01)
    assert two["lengths"]["decoded_s"] == pytest.approx(24.0, abs=0.01)
    assert two["lengths"]["transcribed_s"] == pytest.approx(two["lengths"]["speech_s"], abs=0.01)


def test_each_leg_is_a_job_and_a_transcript_of_its_own(api: TestClient, parts: Parts) -> None:
    agent, customer = leg_of(api, "7", leg="agent"), leg_of(api, "7", leg="customer")
    complete(parts, customer, (0.5, "Hello."))
    own = api.get(f"/v1/jobs/{customer}/transcript").json()
    assert own["segments"][0]["speaker"] is None
    assert api.get(f"/v1/jobs/{agent}").json()["status"] == "queued"


def test_how_the_legs_of_a_call_stand_is_told(api: TestClient, parts: Parts) -> None:
    agent = leg_of(api, "7", "x/agent.wav")
    customer = leg_of(api, "7", "y.wav", leg="customer", leg_offset_s=2)
    third = leg_of(api, "7", "z.wav", leg="boss")
    complete(parts, agent, (0.5, "Hi."))
    driven.failed(parts, third)

    call = api.get("/v1/calls/7").json()

    assert (call["call_id"], call["ready"]) == ("7", False)
    told = [(one["job_id"], one["leg"], one["leg_offset_s"], one["status"]) for one in call["legs"]]
    assert told == [
        (agent, "agent", 0.0, "completed"),
        (customer, "customer", 2.0, "queued"),
        (third, "boss", 0.0, "failed"),
    ]
    assert call["legs"][2]["error"]["code"] == "not_audio"
    assert {one["replaced_by"] for one in call["legs"]} == {None}


def test_legs_that_are_not_there_yet_are_named_and_what_is_there_can_be_read(
    api: TestClient, parts: Parts
) -> None:
    agent, customer = leg_of(api, "7", leg="agent"), leg_of(api, "7", leg="customer")
    lost = leg_of(api, "7", leg="boss")
    path = "/v1/calls/7/transcript"
    why = assert_problem(api.get(path, params={"partial": 1}), 409, "transcript_not_ready")
    assert why == (
        "3 of 3 legs have no transcript: agent (queued), customer (queued), boss (queued)."
    )
    complete(parts, agent, (0.5, "Hi."))
    driven.failed(parts, lost)
    why = assert_problem(api.get(path), 409, "transcript_not_ready")
    assert why == "2 of 3 legs have no transcript: customer (queued), boss (failed: not_audio)."
    some = api.get(path, params={"partial": 1}).json()
    assert (some["text"], some["partial"]) == ("Hi.", True)
    assert some["missing"] == [
        {"job_id": customer, "leg": "customer", "status": "queued"},
        {"job_id": lost, "leg": "boss", "status": "failed"},
    ]
    assert 0 < some["progress"] < 1
    complete(parts, customer, (0.2, "Yes."))
    erase(parts.store, parts.storage, parts.queues, lost)
    whole = api.get(path, params={"partial": 1}).json()
    assert (whole["text"], whole["partial"], whole["progress"]) == ("Yes. Hi.", False, 1.0)
    assert api.get(path).json()["text"] == "Yes. Hi."


def test_a_leg_in_work_is_read_as_far_as_it_is_heard(api: TestClient, parts: Parts) -> None:
    job_id = surveyed_job(parts, windows=3)
    with transaction(parts.store) as c:
        c.execute(text("""UPDATE jobs SET metadata = '{"call_id": "7", "leg": "agent"}'"""))
    nothing = api.get("/v1/calls/7/transcript", params={"partial": 1}).json()
    assert (nothing["segments"], nothing["partial"], nothing["progress"]) == ([], True, 0.0)
    with pulling(parts):
        assert api.get(f"/v1/jobs/{job_id}?wait=20").json()["status"] == "completed"
    assert len(api.get("/v1/calls/7/transcript").json()["segments"]) == 3


def test_a_leg_sent_again_counts_once_and_the_newest_that_is_not_lost_counts(
    api: TestClient, parts: Parts
) -> None:
    first, second = leg_of(api, "7", leg="agent"), leg_of(api, "7", leg="agent")
    third = leg_of(api, "7", leg="agent")
    later = leg_of(api, "7", leg="agent", leg_offset_s=30)  # recorded in two parts
    complete(parts, first, (0.5, "Old."))
    complete(parts, second, (0.5, "New."))
    complete(parts, later, (0.5, "Rest."))
    cancel(parts.store, parts.queues, third)
    legs = api.get("/v1/calls/7").json()
    assert legs["ready"]
    assert [one["replaced_by"] for one in legs["legs"]] == [second, None, second, None]
    document = api.get("/v1/calls/7/transcript").json()
    assert (document["text"], document["duration_s"]) == ("New. Rest.", 39.0)
    assert {said["speaker"] for said in document["segments"]} == {"agent"}


def test_recordings_nobody_named_are_never_taken_for_each_other(
    api: TestClient, parts: Parts
) -> None:
    for words in ("One.", "Two."):
        complete(parts, leg_of(api, "7", "call.wav"), (0.5, words))
    document = api.get("/v1/calls/7/transcript").json()
    assert [(s["speaker"], s["text"]) for s in document["segments"]] == [
        *(("call", "One."), ("call 2", "Two."))
    ]


HOSTILE = [
    *(
        "a/b",
        "...",
        "a b",
        "x%2Fy",
        "Gespräch 日本",
        "a?b#c",
        "'; DROP TABLE jobs; --",
        "\u202eabc",
    ),
    *("x/transcripts", "+", "💬" * 200),
]


@pytest.mark.parametrize("call_id", HOSTILE)
def test_a_call_may_have_any_name(served: str, parts: Parts, call_id: str) -> None:
    with httpx.Client(base_url=served) as api:
        complete(parts, leg_of(api, call_id, leg="agent"), (0.5, "Hi."))
        path = f"/v1/calls/{quote(call_id, safe='')}"
        assert api.get(path).json()["call_id"] == call_id
        assert api.get(f"{path}/transcript").json()["text"] == "Hi."
        assert api.get(f"{path}/transcript?download=1").status_code == 200


@pytest.mark.parametrize(
    "name", ["nobody", "", "%00", "a%00b", "x" * 10_000, "%ff", "%ED%A0%80", "null"]
)
def test_a_call_nobody_named_is_not_there(api: TestClient, parts: Parts, name: str) -> None:
    driven.received(parts)
    for path in (f"/v1/calls/{name}", f"/v1/calls/{name}/transcript"):
        answer = api.get(path)
        assert answer.status_code == 404, answer.text
        assert answer.json()["code"] in ("no_such_call", "not_found" if not name else "")


def test_metadata_of_before_is_read_as_far_as_it_can_be_meant(
    api: TestClient, parts: Parts
) -> None:
    job_id = driven.received(parts, "old.wav")
    odd = json.dumps({"call_id": 17, "leg": ["a"], "leg_offset_s": "soon"})
    with transaction(parts.store) as c:
        c.execute(text("UPDATE jobs SET metadata = cast(:m AS jsonb)"), {"m": odd})
    (leg,) = api.get("/v1/calls/17").json()["legs"]
    assert (leg["job_id"], leg["leg"], leg["leg_offset_s"]) == (job_id, "old", 0.0)


def test_more_recordings_than_a_call_has_are_refused(api: TestClient) -> None:
    files = [(f"{n}.wav", b"RIFF") for n in range(LEGS + 1)]
    send(api, *files, metadata='{"call_id": "7"}')
    for path in ("/v1/calls/7", "/v1/calls/7/transcript"):
        assert f"More than {LEGS}" in assert_problem(api.get(path), 400, "bad_request")


def test_the_legs_of_a_call_are_found_by_their_index_and_an_id_may_be_long(parts: Parts) -> None:
    driven.received(parts)
    with transaction(parts.store) as c:
        c.execute(
            text("UPDATE jobs SET metadata = jsonb_build_object('call_id', repeat('x', 100000))")
        )
        c.execute(text("SET LOCAL enable_seqscan = off"))
        plan = c.execute(
            text("EXPLAIN SELECT * FROM jobs WHERE (metadata ->> 'call_id') = '7' ORDER BY id")
        )
        assert "jobs_call" in "\n".join(row[0] for row in plan)


def test_the_shell_prints_a_call(run: Run, parts: Parts, api: TestClient) -> None:
    agent, customer = leg_of(api, "a/7", leg="agent"), leg_of(api, "a/7", leg="customer")
    complete(parts, agent, (0.5, "Good morning."))
    ran = run("call", "a/7")
    assert (ran.code, ran.out) == (1, "")
    assert "customer (queued)" in ran.err
    assert run("call", "a/7", "--partial").out == "agent: Good morning.\n"
    waiting = run("call", "a/7", "--json")
    assert (waiting.code, waiting.json["ready"], waiting.json["transcript"]) == (1, False, None)
    complete(parts, customer, (2.0, "Hello."))
    assert run("call", "a/7").out == "agent: Good morning.\ncustomer: Hello.\n"
    assert run("call", "a/7", "--format", "srt").out.startswith("1\n00:00:00,500")
    whole = run("call", "a/7", "--json")
    assert (whole.code, whole.json["ready"]) == (0, True)
    assert whole.json["transcript"]["call_id"] == "a/7"
    assert "No recording names" in run("call", "nobody").err
