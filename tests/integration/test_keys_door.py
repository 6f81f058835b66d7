"""Who may come in, and what of other tenants they see: every route, one after the other."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from starlette.routing import Route

from pipeline.api.app import create
from pipeline.api.door import OPEN
from pipeline.api.openai_errors import is_openais
from pipeline.caller import Caller, Scope
from pipeline.parts import Parts
from pipeline.store import load
from pipeline.store.session import transaction
from tests import driven
from tests.api_door import Open, open_api, send
from tests.keyed import bearing, new_key

__all__ = ["open_api"]

SUBMIT, READ, LISTEN, OPERATE = {Scope.SUBMIT}, {Scope.READ}, {Scope.LISTEN}, {Scope.OPERATE}
ANY = set(Scope)


@dataclass(frozen=True)
class Door:
    """What a route asks of a key, and whether it is about something that is somebody's."""

    needs: tuple[set[Scope], ...]
    """One scope of each of these."""
    owned: bool = False
    send: dict[str, Any] = field(default_factory=dict)

    def lets_in(self, scope: Scope) -> bool:
        return all(scope in some for some in self.needs)


SPOKEN = {"files": {"file": ("call.wav", b"RIFF")}, "data": {"model": "whisper-1"}}
RENAMED = {"json": {"policy": "sjf"}}

ROUTES = {
    "POST /v1/jobs": Door((SUBMIT,), send={"files": {"files": ("call.wav", b"RIFF")}}),
    "GET /v1/jobs": Door((READ,)),
    "GET /v1/jobs/{job_id}": Door((READ,), owned=True),
    "GET /v1/jobs/{job_id}/transcript": Door((READ,), owned=True),
    "GET /v1/jobs/{job_id}/audio": Door((LISTEN,), owned=True),
    "POST /v1/jobs/{job_id}/cancel": Door((SUBMIT,), owned=True),
    "POST /v1/jobs/{job_id}/retry": Door((SUBMIT,), owned=True),
    "DELETE /v1/jobs/{job_id}": Door((SUBMIT,), owned=True),
    "GET /v1/batches": Door((READ,)),
    "GET /v1/batches/{batch_id:path}": Door((READ,), owned=True),
    "GET /v1/batches/{batch_id:path}/events": Door((READ,), owned=True),
    "POST /v1/batches/{batch_id:path}/cancel": Door((SUBMIT,), owned=True),
    "GET /v1/calls/{call_id:path}": Door((READ,), owned=True),
    "GET /v1/calls/{call_id:path}/transcript": Door((READ,), owned=True),
    "POST /v1/erasures": Door((SUBMIT,), send={"json": {"metadata": {"call_id": "c1"}}}),
    "POST /v1/webhooks": Door((SUBMIT,), send={"json": {"url": "https://acme.example/hook"}}),
    "GET /v1/webhooks": Door((SUBMIT,)),
    "GET /v1/webhooks/{webhook_id}": Door((SUBMIT,), owned=True),
    "DELETE /v1/webhooks/{webhook_id}": Door((SUBMIT,), owned=True),
    "POST /v1/webhooks/{webhook_id}/secret": Door((SUBMIT,), owned=True),
    "POST /v1/webhooks/{webhook_id}/resume": Door((SUBMIT,), owned=True),
    "POST /v1/webhooks/{webhook_id}/test": Door((SUBMIT,), owned=True),
    "GET /v1/webhooks/{webhook_id}/deliveries": Door((SUBMIT,), owned=True),
    "GET /v1/webhooks/{webhook_id}/deliveries/{delivery_id}": Door((SUBMIT,), owned=True),
    "POST /v1/webhooks/{webhook_id}/deliveries/{delivery_id}/resend": Door((SUBMIT,), owned=True),
    "POST /v1/audio/transcriptions": Door((SUBMIT, READ), send=SPOKEN),
    "POST /v1/audio/translations": Door((SUBMIT, READ), send=SPOKEN),
    "GET /v1/models": Door((ANY,)),
    "GET /v1/models/{model:path}": Door((ANY,)),
    "GET /v1/me": Door((ANY,)),
    "GET /v1/queue": Door((READ | OPERATE,)),
    "GET /v1/policy": Door((OPERATE,)),
    "PUT /v1/policy": Door((OPERATE,), send=RENAMED),
    "GET /v1/policy/history": Door((OPERATE,)),
    "GET /v1/policy/replay": Door((OPERATE,)),
    "GET /v1/policy/trials": Door((OPERATE,)),
    "POST /v1/policy/trials": Door((OPERATE,), send=RENAMED),
    "GET /v1/policy/trials/{trial_id}": Door((OPERATE,)),
    "POST /v1/policy/trials/{trial_id}/stop": Door((OPERATE,)),
    "GET /v1/accesses": Door((OPERATE,)),
    "GET /metrics": Door((OPERATE,)),
}
"""A new route fails the test below until it stands here."""


@pytest.fixture
def api(open_api: Open) -> TestClient:
    """An API that wants keys, as it does wherever it listens beyond its machine."""
    return open_api(FAIRSCRIBE_KEYS="on")


def asked(
    api: TestClient, name: str, key: str | None, ids: dict[str, str], query: str = ""
) -> httpx.Response:
    method, path = name.split(" ")
    for param, value in ids.items():
        path = path.replace("{" + param + ":path}", value).replace("{" + param + "}", value)
    headers = bearing(key) if key else {}
    return api.request(method, path + query, headers=headers, **ROUTES[name].send)


def code_of(answer: httpx.Response) -> str:
    body = answer.json()
    return str(body["error"]["code"] if "error" in body else body["code"])


def acmes_job(parts: Parts, api: TestClient) -> dict[str, str]:
    """A completed call of acme, told to its webhook, as the ids of all it can be asked by."""
    headers = bearing(new_key(parts, "acme"))
    hook = api.post("/v1/webhooks", json={"url": "https://acme.example/hook"}, headers=headers)
    webhook_id = hook.json()["id"]
    said = {"batch_id": "monday", "metadata": json.dumps({"call_id": "c1"})}
    sent = api.post(
        "/v1/jobs",
        files={"files": ("Ms Ada Lovelace.wav", b"RIFF")},
        data=said,
        headers=headers,
    )
    job_id = str(sent.json()["jobs"][0]["id"])
    driven.completed(parts, job_id)
    log = api.get(f"/v1/webhooks/{webhook_id}/deliveries", headers=headers).json()
    ids = {"job_id": job_id, "batch_id": "monday", "call_id": "c1", "webhook_id": webhook_id}
    return {**OTHERS, **ids, "delivery_id": log["deliveries"][0]["id"]}


OTHERS = {"model": "whisper-1", "trial_id": "1"}


def test_every_route_says_here_whom_it_lets_in() -> None:
    there = {
        f"{method} {route.path}"
        for route in create().routes
        if isinstance(route, Route) and route.path not in OPEN
        for method in route.methods or ("WEBSOCKET",)
    }
    assert there == set(ROUTES)


def test_with_postgres_away_nobody_comes_in_and_it_says_when_to_come_again(
    open_api: Open, parts: Parts
) -> None:
    key = new_key(parts, "acme")
    nowhere = "postgresql://nobody@127.0.0.1:1/none"
    away = open_api(FAIRSCRIBE_KEYS="on", FAIRSCRIBE_DATABASE_URL=nowhere)
    for name in ("POST /v1/jobs", "GET /v1/me", "POST /v1/audio/transcriptions"):
        answer = asked(away, name, key, {})
        assert (answer.status_code, code_of(answer)) == (503, "part_down")
        assert int(answer.headers["retry-after"]) >= 1
    assert asked(away, "GET /v1/me", None, {}).status_code == 401, "this is known without Postgres"
    assert away.get("/v1/health").status_code == 200


def test_without_a_key_that_is_known_nobody_comes_in_anywhere(
    api: TestClient, parts: Parts
) -> None:
    ids = acmes_job(parts, api)
    good = new_key(parts, "acme")
    wrong = good[:-1] + ("A" if good[-1] != "A" else "B")
    for name in ROUTES:
        nobody = asked(api, name, None, ids)
        assert (nobody.status_code, code_of(nobody)) == (401, "key_missing"), name
        assert nobody.headers["www-authenticate"] == "Bearer"
        assert ("error" in nobody.json()) == is_openais(nobody.request.url.path)
        guessed = asked(api, name, wrong, ids)
        assert (guessed.status_code, code_of(guessed)) == (401, "key_unknown"), name
        in_url = asked(api, name, None, ids, f"?api_key={good}&token={good}&key={good}")
        assert (in_url.status_code, code_of(in_url)) == (401, "key_missing"), name
    # what is not there is not told to strangers either
    assert api.get("/v1/secrets").status_code == 401
    assert api.get("/v1/secrets", headers=bearing(good)).status_code == 404


def test_a_key_opens_what_its_scope_says_and_is_told_what_it_lacks(
    api: TestClient, parts: Parts
) -> None:
    owned = ("job_id", "batch_id", "call_id", "webhook_id", "delivery_id")
    nothing = {name: driven.nobody() for name in owned} | OTHERS
    for scope in Scope:
        key = new_key(parts, "acme", scope)
        for name, route in ROUTES.items():
            if route.send == SPOKEN and route.lets_in(scope):
                raise AssertionError("it would wait for its transcript")
            answer = asked(api, name, key, nothing)
            assert (answer.status_code == 403) == (not route.lets_in(scope)), (name, scope)
            assert answer.status_code != 401
            if answer.status_code == 403:
                assert code_of(answer) == "scope_missing"
                lacking = next(some for some in route.needs if scope not in some)
                assert any(f"`{one.value}`" in answer.text for one in lacking), (name, answer.text)


def test_what_is_anothers_is_to_every_route_as_if_it_never_was(
    api: TestClient, parts: Parts
) -> None:
    ids = acmes_job(parts, api)
    rival = new_key(parts, "rival")
    never = {**ids, "batch_id": "never", "call_id": "never"}
    never |= {name: driven.nobody() for name in ("job_id", "webhook_id", "delivery_id")}
    for name, route in ROUTES.items():
        if route.owned:
            anothers, nobodys = asked(api, name, rival, ids), asked(api, name, rival, never)
            assert anothers.status_code == 404, (name, anothers.text)
            assert anothers.content == nobodys.content
            assert dict(anothers.headers) == dict(nobodys.headers)
    acme = new_key(parts, "acme")
    seen = asked(api, "GET /v1/jobs/{job_id}", acme, ids).json()
    assert seen["status"] == "completed", "and nothing of it was done"


def test_no_list_shows_anothers(api: TestClient, parts: Parts) -> None:
    ids = acmes_job(parts, api)
    waiting = driven.received(parts, "waits.wav")
    driven.surveyed(parts, waiting)
    in_hand = driven.received(parts, "is-heard.wav")
    driven.running(parts, in_hand)
    rival = bearing(new_key(parts, "rival", Scope.READ))
    for path in ("/v1/jobs", "/v1/jobs?batch=monday", "/v1/batches", "/v1/queue"):
        told = api.get(path, headers=rival).text
        for hidden in (*ids.values(), "Lovelace", waiting, "waits.wav", in_hand, "is-heard.wav"):
            assert hidden in ("1", "whisper-1") or hidden not in told, (path, hidden)
    counts = api.get("/v1/queue", headers=rival).json()
    assert (counts["waiting"]["transcribe"], counts["working"]["transcribe"]) == (1, 0)
    operator = bearing(new_key(parts, "desk", Scope.OPERATE))
    assert waiting in api.get("/v1/queue", headers=operator).text, "who operates sees the whole"
    acme = bearing(new_key(parts, "acme", Scope.READ))
    assert ids["job_id"] in api.get("/v1/jobs", headers=acme).text


def test_who_only_operates_is_told_no_name_of_a_file(api: TestClient, parts: Parts) -> None:
    sent = {"files": ("Ms Ada Lovelace.wav", b"RIFF")}
    acmes = api.post("/v1/jobs", files=sent, headers=bearing(new_key(parts, "acme")))
    own, in_hand = acmes.json()["jobs"][0]["id"], driven.received(parts, "Mr Babbage.wav")
    driven.surveyed(parts, own)
    driven.running(parts, in_hand)

    def names(*scopes: Scope) -> dict[str, str | None]:
        line = api.get("/v1/queue", headers=bearing(new_key(parts, "acme", *scopes))).json()
        return {job["id"]: job["file_name"] for job in line["head"] + line["in_hand"]}

    assert names(Scope.OPERATE) == {own: None, in_hand: None}
    assert names(Scope.OPERATE, Scope.READ) == {own: "Ms Ada Lovelace.wav", in_hand: None}
    assert names(Scope.READ) == {own: "Ms Ada Lovelace.wav"}


def test_pages_are_filled_with_ones_own(api: TestClient, parts: Parts) -> None:
    rival = bearing(new_key(parts, "rival"))
    for batch_id in ("first", "second"):
        files = {"files": ("a.wav", b"RIFF")}
        api.post("/v1/jobs", files=files, data={"batch_id": batch_id}, headers=rival)
        acmes_job(parts, api)
    for what in ("batches", "jobs"):
        seen, cursor = [], ""
        while cursor is not None:
            page = api.get(f"/v1/{what}?limit=1{cursor}", headers=rival).json()
            assert len(page[what]) == 1
            seen.append(page[what][0]["batch_id"])
            cursor = page["next_cursor"] and f"&cursor={page['next_cursor']}"
        assert sorted(seen) == ["first", "second"]


def test_two_tenants_may_choose_the_same_names(api: TestClient, parts: Parts) -> None:
    acme, rival = (bearing(new_key(parts, tenant)) for tenant in ("acme", "rival"))
    once = {"Idempotency-Key": "tuesday-1"}

    def sent(by: dict[str, str], *names: str) -> httpx.Response:
        files = [("files", (name, b"RIFF")) for name in names]
        data = {"batch_id": "tuesday", "metadata": '{"call_id": "7"}'}
        return api.post("/v1/jobs", files=files, data=data, headers={**by, **once})

    first, second = sent(acme, "a.wav"), sent(rival, "b.wav", "c.wav")
    assert (first.status_code, second.status_code) == (202, 202), "neither key was used before"
    assert sent(acme, "a.wav").json() == first.json()
    for by, count in ((acme, 1), (rival, 2)):
        assert api.get("/v1/batches/tuesday", headers=by).json()["jobs"] == count
        assert len(api.get("/v1/calls/7", headers=by).json()["legs"]) == count
        (batch,) = api.get("/v1/batches", headers=by).json()["batches"]
        assert batch["jobs"] == count
        with transaction(parts.store) as c:
            whose = Caller("k", "acme" if by is acme else "rival", frozenset())
            rest = load.rest_of_batch(c, "tuesday", whose)
        assert sum(one.jobs for one in rest.unprobed) == count, "forecasts, too, are of ones own"
    assert api.post("/v1/batches/tuesday/cancel", headers=rival).json()["cancelled"] == 2
    assert api.get("/v1/batches/tuesday", headers=acme).json()["counts"]["cancelled"] == 0
    (acmes,) = (job["id"] for job in first.json()["jobs"])
    driven.completed(parts, acmes)
    for by, told in ((acme, 1), (rival, 2)):
        events = api.get("/v1/batches/tuesday/events", headers=by).text
        assert events.count("event: job") == told
        assert (acmes in events) == (by == acme)


NASTY = ("' OR '1'='1", "'; DROP TABLE jobs;--", "%00", "a%00b", "%25", "\\", '"', "$1")

ASKED_WITH = (
    *("/v1/jobs/{}", "/v1/jobs/{}/audio", "/v1/batches/{}", "/v1/calls/{}"),
    *("/v1/jobs?batch={}", "/v1/jobs?cursor={}", "/v1/jobs?status={}", "/v1/batches?cursor={}"),
    *("/v1/accesses?key={}", "/v1/accesses?cursor={}", "/v1/accesses?job={}"),
    *("/v1/models/{}", "/v1/policy/trials/{}", "/v1/policy/replay?policy={}"),
)


def test_words_of_sql_in_a_question_are_words(api: TestClient, parts: Parts) -> None:
    acmes_job(parts, api)
    rival = bearing(new_key(parts, "rival"))
    for nasty in NASTY:
        answers = [api.get(path.format(nasty), headers=rival) for path in ASKED_WITH]
        since = {**rival, "Last-Event-ID": nasty}
        answers.append(api.get("/v1/batches/monday/events", headers=since))
        for answer in answers:
            assert answer.status_code in (200, 400, 404), (answer.request.url, answer.text)
            assert "Lovelace" not in answer.text
    assert api.get("/v1/batches/monday", headers=bearing(new_key(parts, "acme"))).is_success


def test_where_keys_are_off_nothing_of_this_is_asked(open_api: Open, parts: Parts) -> None:
    api = open_api()
    assert send(api, ("a.wav", b"RIFF")).status_code == 202
    assert api.get("/v1/jobs", headers=bearing("fs_whatever")).status_code == 200
    me = api.get("/v1/me").json()
    assert (me["key_id"], me["tenant"], len(me["scopes"])) == (None, None, 4)
