"""Trials and replays by HTTP and from the shell."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from pipeline.job import TRANSCRIBE
from pipeline.parts import Parts
from tests.api_door import api, assert_problem, open_api
from tests.driven import in_force
from tests.integration.conftest import Run
from tests.lines import surveyed_job

__all__ = ["api", "open_api"]

TRIALS = "/v1/policy/trials"


def recordings(parts: Parts, count: int = 60) -> None:
    """So many of the last minutes, and an engine whose speed is known."""
    parts.queues[TRANSCRIBE.name].board.report_speed("transcribe@here", 1.0, 4)
    for n in range(count):
        surveyed_job(parts, windows=1 + 7 * (n % 4 == 0), queue=False, hollow=True)


def test_a_trial_is_begun_read_listed_and_stopped(api: TestClient, parts: Parts) -> None:
    begun = api.post(TRIALS, json={"policy": " SJF", "block_s": 60, "blocks": 6, "seed": 1})
    assert begun.status_code == 201, begun.text
    trial = begun.json()
    assert (trial["state"], trial["block"]) == ("running", 1)
    assert (trial["policy_a"], trial["policy_b"]) == ("hrrn(2.5,300)", "sjf")
    assert api.get(f"{TRIALS}/{trial['id']}").json() == trial
    assert api.get(TRIALS).json() == {"trials": [trial]}
    now = api.get("/v1/policy").json()
    assert (now["mode"], now["policy"]) == ("trial", now["in_force"])
    assert in_force(parts) == {now["in_force"]}

    ended = api.post(f"{TRIALS}/{trial['id']}/stop").json()
    assert (ended["state"], ended["block"]) == ("stopped", None)
    assert api.post(f"{TRIALS}/{trial['id']}/stop").json() == ended
    back = api.get("/v1/policy").json()
    assert (back["mode"], back["in_force"], back["reason"]) == (
        *("fixed", "hrrn(2.5,300)"),
        ended["reason"],
    )
    assert in_force(parts) == {"hrrn(2.5,300)"}


@pytest.mark.parametrize(("policy", "then"), [("fcfs", "fcfs"), ("auto", "hrrn(2.5,300)")])
def test_a_persons_word_stops_a_trial(
    api: TestClient, parts: Parts, policy: str, then: str
) -> None:
    trial = api.post(TRIALS, json={"policy": "sjf"}).json()
    told = api.put("/v1/policy", json={"policy": policy}).json()
    assert (told["policy"], told["in_force"]) == (policy, then)
    ended = api.get(f"{TRIALS}/{trial['id']}").json()
    assert (ended["state"], ended["reason"]) == ("stopped", f"the policy was changed: {policy}")
    assert in_force(parts) == {then}


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"policy": "auto"},
        {"policy": "hrrn(2.5,300)"},
        {"policy": "sjf", "blocks": 7},
        {"policy": "sjf", "blocks": 4},
        {"policy": "sjf", "block_s": 0},
        {"policy": "sjf", "seed": -1},
        {"policy": "sjf", "until": "evening"},
    ],
)
def test_a_trial_that_makes_no_sense_is_refused(api: TestClient, asked: dict[str, Any]) -> None:
    assert_problem(api.post(TRIALS, json=asked), 400, "bad_request")
    assert api.get(TRIALS).json() == {"trials": []}
    assert api.get("/v1/policy/history").json() == {"changes": []}


def test_what_is_not_there_and_what_runs_already(api: TestClient) -> None:
    assert_problem(api.get(f"{TRIALS}/77"), 404, "no_such_trial")
    assert_problem(api.post(f"{TRIALS}/77/stop"), 404, "no_such_trial")
    assert_problem(api.get(f"{TRIALS}/x"), 400, "bad_request")
    api.post(TRIALS, json={"policy": "sjf"})
    assert_problem(api.post(TRIALS, json={"policy": "fcfs"}), 409, "trial_running")


def test_a_replay_compares_with_the_policy_in_force(api: TestClient, parts: Parts) -> None:
    asked = {"policy": "sjf", "hours": 1}
    assert_problem(api.get("/v1/policy/replay", params=asked), 409, "too_few_jobs")
    recordings(parts)
    told = api.get("/v1/policy/replay", params=asked).json()
    assert (told["jobs"], told["slots"], told["speed"]) == (60, 4, 1.0)
    assert (told["a"]["policy"], told["b"]["policy"]) == ("hrrn(2.5,300)", "sjf")
    assert told["a"]["p50_s"] <= told["a"]["p95_s"] <= told["a"]["p99_s"] <= told["a"]["max_s"]
    odd = api.get("/v1/policy/replay", params={"policy": "auto"})
    assert_problem(odd, 400, "bad_request")


# -- from the shell -------------------------------------------------------------------------


def test_a_policy_is_tried_from_the_shell(run: Run, parts: Parts) -> None:
    recordings(parts)
    foretold = run("policy", "trial", "sjf", "--replay-only")
    assert "Foretold by 60 recordings" in foretold.out
    assert run("policy").out == "hrrn(2.5,300)\n"

    begun = run("policy", "trial", "sjf", "--block-min", "5", "--blocks", "6")
    assert "sjf against hrrn(2.5,300), running, block 1 of 6, 5:00 each" in begun.out
    assert run("policy").out in ("sjf, on trial\n", "hrrn(2.5,300), on trial\n")
    assert "(on trial)" in run("queue", "--once").out
    status = run("policy", "trial", "--status", "--json").json
    assert (status["state"], status["keep_better"]) == ("running", False)
    again = run("policy", "trial", "fcfs")
    assert (again.code, "Another trial" in again.err) == (1, True)

    assert "Back to hrrn(2.5,300)." in run("policy", "trial", "--stop").out
    assert run("policy", "--json").json["mode"] == "fixed"


def test_a_trial_goes_on_without_a_replay_where_too_few_recordings_are_known(run: Run) -> None:
    ran = run("policy", "trial", "sjf", "--json")
    assert (ran.json["replay"], ran.json["trial"]["state"]) == (None, "running")
    assert ran.err.startswith("Not foretold: ")
    assert run("policy", "trial", "sjf", "--replay-only").code == 1


@pytest.mark.parametrize("words", [(), ("--status",), ("--stop",), ("fastest",)])
def test_nothing_to_try_or_to_tell_is_one_sentence(run: Run, words: tuple[str, ...]) -> None:
    ran = run("policy", "trial", *words)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)


@pytest.mark.parametrize("minutes", ["nan", "inf", "-1", "1e308"])
def test_a_block_of_no_length_is_refused_in_a_sentence(run: Run, minutes: str) -> None:
    ran = run("policy", "trial", "sjf", "--block-min", minutes)
    assert (ran.code, ran.out) == (2, "")
    assert "Traceback" not in ran.err
    assert run("policy", "trial", "--status").code == 2  # none was begun


def test_a_first_word_that_is_no_command_is_the_policy(run: Run) -> None:
    assert run("policy", "--reason", "short ones wait", "sjf").out == "sjf\n"
    assert run("policy", "set", "fcfs").out == run("policy").out == "fcfs\n"
    assert "trial" in run("policy", "--help").out
