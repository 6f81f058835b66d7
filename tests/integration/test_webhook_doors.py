"""Webhooks by HTTP and from the shell, and whose they are."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from pipeline.api import given, webhooks
from pipeline.caller import Caller, Scope
from pipeline.cli.checks import stores
from pipeline.cli.checks.verdict import look_around
from pipeline.fetch.poster import Poster
from pipeline.parts import Parts
from pipeline.settings import read_settings
from pipeline.store.session import transaction
from pipeline.webhooks import EVENTS, verify
from tests import driven
from tests.api_door import Open, api, assert_problem, open_api
from tests.integration.conftest import Run
from tests.integration.test_webhooks import failed_job
from tests.lines import eventually
from tests.web import Web
from workers.postman import Postman

__all__ = ["api", "open_api"]

HOOKS = "/v1/webhooks"
URL = "https://crm.example.com/hook"


@pytest.fixture
def postman(parts: Parts) -> Iterator[Postman]:
    started = Postman(parts, Poster(timeout_s=5.0, private=True))
    started.start()
    yield started
    started.stop()


# -- HTTP -----------------------------------------------------------------------------------


def test_a_webhook_is_added_read_listed_and_deleted_and_its_secret_is_shown_once(
    api: TestClient, parts: Parts
) -> None:
    asked = {"url": URL.replace("//", "//me:pass@"), "events": ["job.failed", "job.failed"]}
    added = api.post(HOOKS, json=asked)
    assert added.status_code == 201, added.text
    hook = added.json()
    assert hook.pop("secret").startswith("whsec_")
    assert (hook["url"], hook["events"], hook["waiting"]) == (URL, ["job.failed"], 0)
    assert api.get(f"{HOOKS}/{hook['id']}").json() == hook
    assert api.get(HOOKS).json() == {"webhooks": [hook]}
    failed_job(parts)
    assert api.get(f"{HOOKS}/{hook['id']}").json()["waiting"] == 1
    assert api.delete(f"{HOOKS}/{hook['id']}").status_code == 204
    assert_problem(api.delete(f"{HOOKS}/{hook['id']}"), 404, "no_such_webhook")
    assert api.get(HOOKS).json() == {"webhooks": []}
    assert api.post(HOOKS, json={"url": URL}).json()["events"] == list(EVENTS)


@pytest.mark.parametrize(
    "body",
    [
        *({}, {"url": ""}, {"url": 7}, {"url": URL, "events": []}, {"url": URL, "events": ["x"]}),
        *({"url": URL, "secret": "whsec_mine"}, {"url": "ftp://example.com/"}, {"url": "https://"}),
        *({"url": f"{URL}\r\nX-Evil: 1"}, {"url": f"{URL} HTTP/1.1"}, {"url": "https://a:b:c/"}),
        *({"url": f"{URL}/{'x' * 2000}"}, {"url": f"{URL}\0"}, {"url": "file:///etc/passwd"}),
        *({"url": f"http://{host}/"} for host in ("127.0.0.1", "2130706433", "0x7f.1", "[::1]")),
        *({"url": f"http://{host}/"} for host in ("169.254.169.254", "[::ffff:10.0.0.1]", "0")),
    ],
)
def test_what_is_no_webhook_is_refused_and_nothing_is_kept(
    api: TestClient, body: dict[str, object]
) -> None:
    assert_problem(api.post(HOOKS, json=body), 400, "bad_request")
    assert api.get(HOOKS).json() == {"webhooks": []}


def test_there_are_at_most_twenty(api: TestClient) -> None:
    for _ in range(webhooks.AT_MOST):
        assert api.post(HOOKS, json={"url": URL}).status_code == 201
    assert_problem(api.post(HOOKS, json={"url": URL}), 400, "bad_request")


def test_what_is_not_there_is_said_not_to_be(api: TestClient) -> None:
    hook = api.post(HOOKS, json={"url": URL}).json()["id"]
    for one in (driven.nobody(), "no-uuid"):
        for method, path in (
            *(("GET", ""), ("DELETE", ""), ("POST", "/resume"), ("POST", "/test")),
            *(("POST", "/secret"), ("GET", "/deliveries"), ("GET", f"/deliveries/{hook}")),
            ("POST", f"/deliveries/{hook}/resend"),
        ):
            answer = api.request(method, f"{HOOKS}/{one}{path}")
            assert_problem(answer, 404, "no_such_webhook")
        assert_problem(api.get(f"{HOOKS}/{hook}/deliveries/{one}"), 404, "no_such_delivery")
        again = api.post(f"{HOOKS}/{hook}/deliveries/{one}/resend")
        assert_problem(again, 404, "no_such_delivery")
    assert_problem(api.get(f"{HOOKS}/{hook}/deliveries?cursor=x"), 400, "bad_request")
    assert_problem(api.get(f"{HOOKS}/{hook}/deliveries?status=x"), 400, "bad_request")


def test_another_tenants_webhook_is_not_there(
    open_api: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = open_api()
    asking = Caller("k", "a", frozenset(Scope))
    found = next(d for d in _dependencies(given.GivenSubmitter) if callable(d))
    api.app.dependency_overrides[found] = lambda: asking  # type: ignore[attr-defined]
    hook = api.post(HOOKS, json={"url": URL}).json()
    ping = api.post(f"{HOOKS}/{hook['id']}/test").json()
    assert len(api.get(HOOKS).json()["webhooks"]) == 1
    asking = Caller("k", "b", frozenset(Scope))
    assert api.get(HOOKS).json() == {"webhooks": []}
    for method, path in (
        *(("GET", ""), ("DELETE", ""), ("POST", "/resume"), ("POST", "/test"), ("POST", "/secret")),
        *(("GET", "/deliveries"), ("GET", f"/deliveries/{ping['id']}")),
        ("POST", f"/deliveries/{ping['id']}/resend"),
    ):
        answer = api.request(method, f"{HOOKS}/{hook['id']}{path}")
        assert_problem(answer, 404, "no_such_webhook")


def _dependencies(annotated: object) -> list[object]:
    return [one.dependency for one in annotated.__metadata__]  # type: ignore[attr-defined]


def test_the_log_tells_and_sends_again(
    api: TestClient, parts: Parts, web: Web, postman: Postman
) -> None:
    added = api.post(HOOKS, json={"url": URL}).json()
    with transaction(parts.store) as c:  # by hand: the door takes no address of this machine
        c.execute(text("UPDATE webhooks SET url = :url"), {"url": web.page("/hook")})
    jobs = [failed_job(parts) for _ in range(3)]
    path = f"{HOOKS}/{added['id']}/deliveries"
    log = eventually(
        lambda: (
            len(found := api.get(f"{path}?status=delivered").json()["deliveries"]) == 3 and found
        )
    )
    assert {one["job_id"] for one in log} == set(jobs)
    assert [one["last_status"] for one in log] == [200] * 3
    first = api.get(f"{path}?limit=2").json()
    second = api.get(f"{path}?limit=2&cursor={first['next_cursor']}").json()
    assert first["deliveries"] + second["deliveries"] == log
    assert second["next_cursor"] is None
    again = api.post(f"{path}/{log[0]['id']}/resend")
    assert again.status_code == 202
    eventually(lambda: len(web.sent) == 4)
    assert [headers["webhook-id"] for _, headers, _ in web.sent].count(log[0]["id"]) == 2
    newer = api.post(f"{HOOKS}/{added['id']}/secret").json()["secret"]
    ping = api.post(f"{HOOKS}/{added['id']}/test").json()
    eventually(lambda: api.get(f"{path}/{ping['id']}").json()["status"] == "delivered")
    for secret in (newer, added["secret"]):
        verify(secret, *web.sent[-1][1:])


# -- the postman ----------------------------------------------------------------------------


def test_one_slow_receiver_takes_four_threads_and_a_failing_one_a_single_one(
    parts: Parts, api: TestClient, web: Web, postman: Postman
) -> None:
    gate = threading.Event()
    busy: dict[str, list[int]] = {"/slow": [0, 0], "/bad": [0, 0]}
    lock = threading.Lock()

    def counted(path: str, status: int) -> None:
        web.page(path, b"", status)
        answer = web.pages[path]

        def wait(request: object) -> None:
            with lock:
                busy[path][0] += 1
                busy[path][1] = max(busy[path])
            gate.wait(4)
            with lock:
                busy[path][0] -= 1
            answer(request)  # type: ignore[arg-type]

        web.pages[path] = wait

    counted("/slow", 200)
    counted("/bad", 500)
    urls = {"job.failed": "/slow", "job.cancelled": "/bad", "job.completed": "/quick"}
    web.page("/quick")
    for event, path in urls.items():
        hook = api.post(HOOKS, json={"url": f"{URL}{path}", "events": [event]}).json()["id"]
        with transaction(parts.store) as c:
            values = {"url": web.url(path), "id": hook}
            c.execute(text("UPDATE webhooks SET url = :url WHERE id = :id"), values)
    with transaction(parts.store) as c:
        c.execute(text("UPDATE webhooks SET failing_since = now() WHERE url LIKE '%bad'"))
    for _ in range(10):
        failed_job(parts)
        api.post(f"/v1/jobs/{driven.received(parts)}/cancel")
    eventually(lambda: (busy["/slow"][0], busy["/bad"][0]) == (4, 1))
    driven.completed(parts, driven.received(parts))
    eventually(lambda: any(path == "/quick" for path, _, _ in web.sent), 3)
    gate.set()
    eventually(lambda: api.get(HOOKS).json()["webhooks"][0]["waiting"] == 0)
    assert (busy["/slow"][1], busy["/bad"][1]) == (4, 1)


# -- the shell ------------------------------------------------------------------------------


def test_webhooks_from_the_shell(run: Run, parts: Parts, web: Web, postman: Postman) -> None:
    added = run("webhook", "add", URL, "--event", "job.failed", "--json").json
    assert added["events"] == ["job.failed"]
    assert run("webhook", "show", URL, "--json").json["id"] == added["id"]
    assert "active" in run("webhook", "list").out
    assert URL in run("webhook", "show", added["id"]).out
    with transaction(parts.store) as c:
        c.execute(text("UPDATE webhooks SET url = :url"), {"url": web.page("/hook", b"", 503)})
    ran = run("webhook", "test", added["id"])
    assert (ran.code, ran.out) == (1, "given_up: The receiver answered 503.\n")
    web.page("/hook")
    assert run("webhook", "test", added["id"]).out == "delivered: The receiver answered 200.\n"
    failed_job(parts)
    log = eventually(
        lambda: (
            run("webhook", "log", added["id"], "--status", "delivered", "--json").json[
                "deliveries"
            ][1:]
            and run("webhook", "log", added["id"], "--json").json["deliveries"]
        )
    )
    assert [one["event"] for one in log] == ["job.failed", "ping", "ping"]
    assert "job.failed" in run("webhook", "log", added["id"]).out
    assert run("webhook", "resend", added["id"], log[0]["id"]).out == f"{log[0]['id']}  waiting\n"
    assert run("webhook", "resume", added["id"]).out.startswith(f"{added['id']}  active, ")
    assert "whsec_" in run("webhook", "secret", added["id"]).out
    assert run("webhook", "delete", added["id"]).code == 2
    assert run("webhook", "delete", added["id"], "--yes").out == f"{added['id']}  deleted\n"
    ran = run("webhook", "show", added["id"])
    assert (ran.code, ran.err) == (1, "There is no webhook with this id.\n")
    assert run("webhook", "show", URL).code == 2
    assert run("webhook", "add", "http://127.0.0.1/").code == 2


def test_the_doctor_names_a_paused_webhook(
    environ: dict[str, str], api: TestClient, parts: Parts
) -> None:
    here = look_around(read_settings(environ), environ)
    hook = api.post(HOOKS, json={"url": URL}).json()["id"]
    assert stores.webhooks(here).ok
    with transaction(parts.store) as c:
        c.execute(text("UPDATE webhooks SET paused_at = now(), paused_reason = 'It is gone.'"))
    verdict = stores.webhooks(here)
    assert not verdict.ok
    assert hook in verdict.said
    assert "It is gone." in verdict.said
    assert verdict.cure == f"See that its receiver works, then `fairscribe webhook resume {hook}`."
