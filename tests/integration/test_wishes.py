"""Deadline and wait budget: said in a form or in JSON, shown, kept by a retry, refused when odd."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api_door import api, assert_problem, open_api, send

__all__ = ["api", "open_api"]


def wishes(job: Any) -> tuple[Any, Any]:
    return job["deadline"], job["wait_budget_s"]


def test_wishes_of_a_form_are_shown_in_utc_and_kept_by_a_retry(api: TestClient) -> None:
    said = {"deadline": "2026-03-02T12:00:00+01:00", "wait_budget_s": "90.5"}
    job_id = send(api, ("a.wav", b"RIFF"), **said).json()["jobs"][0]["id"]
    kept = ("2026-03-02T11:00:00Z", 90.5)
    assert wishes(api.get(f"/v1/jobs/{job_id}").json()) == kept
    api.post(f"/v1/jobs/{job_id}/cancel")
    assert wishes(api.post(f"/v1/jobs/{job_id}/retry").json()) == kept


def test_wishes_of_json_hold_for_each_url(api: TestClient) -> None:
    said = {"deadline": "2999-12-31T23:59:59-12:00", "wait_budget_s": 600}
    urls = ["https://example.com/1.wav", "https://example.com/2.wav"]
    assert api.post("/v1/jobs", json={"urls": urls, **said}).status_code == 202
    found = [wishes(job) for job in api.get("/v1/jobs").json()["jobs"]]
    assert found == [("3000-01-01T11:59:59Z", 600.0)] * 2


def test_who_wishes_nothing_has_none(api: TestClient) -> None:
    send(api, ("a.wav", b"RIFF"), deadline="", wait_budget_s="")
    assert wishes(api.get("/v1/jobs").json()["jobs"][0]) == (None, None)


@pytest.mark.parametrize("odd", [{"deadline": "soon"}, {"wait_budget_s": "0"}])
def test_a_wish_that_means_nothing_is_refused_by_its_name(
    api: TestClient, odd: dict[str, str]
) -> None:
    why = assert_problem(send(api, ("a.wav", b"RIFF"), **odd), 400, "bad_request")
    assert why.startswith(next(iter(odd)))
    assert api.get("/v1/jobs").json()["jobs"] == []


@pytest.mark.parametrize("odd", [{"deadline": 3600}, {"wait_budget_s": True}])
def test_json_of_the_wrong_kind_is_refused(api: TestClient, odd: dict[str, Any]) -> None:
    answer = api.post("/v1/jobs", json={"urls": ["https://example.com/1.wav"], **odd})
    assert_problem(answer, 400, "bad_request")
