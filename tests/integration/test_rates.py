"""Token buckets: on a real Redis server, and as a caller meets them over HTTP."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import structlog

from pipeline.parts import Parts, tell_of_rates
from pipeline.queue import keys
from pipeline.queue.rates import AWAY_S, Rate, Rates
from pipeline.queue.redis_queue import connect
from tests.keyed import bearing, new_key
from tests.lines import eventually
from tests.listening import listening


@pytest.fixture
def rates(parts: Parts) -> Rates:
    assert parts.settings.redis_url is not None
    return Rates(parts.settings.redis_url, tell_of_rates)


def test_a_burst_passes_at_once_and_then_so_many_a_second(rates: Rates) -> None:
    begun_s = time.monotonic()
    waits_s = [rates.wait_s("k", Rate(2.0, 5)) for _ in range(8)]
    took_s = time.monotonic() - begun_s
    assert waits_s[:5] == [0.0] * 5
    # half a second a token, less what has come back meanwhile
    assert all(0.5 - took_s <= wait_s <= 0.5 for wait_s in waits_s[5:])


def test_what_it_says_is_true_after_that_time_one_passes_and_the_next_does_not(
    rates: Rates,
) -> None:
    rate = Rate(5.0, 1)
    assert rates.wait_s("k", rate) == 0
    wait_s = rates.wait_s("k", rate)
    assert rates.wait_s("k", rate) > 0, "a refused request costs nothing and wins nothing"
    time.sleep(wait_s)
    assert rates.wait_s("k", rate) == 0
    assert rates.wait_s("k", rate) > 0


def test_many_processes_together_let_no_more_through_than_one(parts: Parts) -> None:
    assert parts.settings.redis_url is not None
    doors = [Rates(parts.settings.redis_url, tell_of_rates) for _ in range(4)]
    with ThreadPoolExecutor(16) as threads:
        begun_s = time.monotonic()
        waits_s = list(threads.map(lambda n: doors[n % 4].wait_s("k", Rate(1.0, 20)), range(200)))
        came_back = time.monotonic() - begun_s
    assert 20 <= waits_s.count(0.0) <= 20 + came_back


def test_each_caller_has_a_bucket_of_its_own_which_is_gone_when_it_is_full(
    rates: Rates, parts: Parts
) -> None:
    assert parts.settings.redis_url is not None
    redis = connect(parts.settings.redis_url)
    assert rates.wait_s("a", Rate(20.0, 1)) == 0
    assert rates.wait_s("a", Rate(20.0, 1)) > 0
    assert rates.wait_s("b", Rate(20.0, 1)) == 0
    assert redis.pttl(keys.bucket("a")) <= 52
    eventually(lambda: not redis.exists(keys.bucket("a")), 2)


def test_a_clock_set_back_locks_nobody_out_for_longer_than_a_bucket(
    rates: Rates, parts: Parts
) -> None:
    assert parts.settings.redis_url is not None
    connect(parts.settings.redis_url).set(keys.bucket("k"), str(10**17))
    assert rates.wait_s("k", Rate(10.0, 3)) == pytest.approx(0.1, abs=0.001)


def test_without_a_rate_nothing_is_counted(rates: Rates, parts: Parts) -> None:
    assert [rates.wait_s("k", Rate(0.0, 1)) for _ in range(3)] == [0.0] * 3
    assert parts.settings.redis_url is not None
    assert not connect(parts.settings.redis_url).exists(keys.bucket("k"))


def test_while_redis_is_down_all_pass_quickly_and_the_log_says_it_once() -> None:
    rates = Rates("redis://127.0.0.1:1", tell_of_rates)
    with structlog.testing.capture_logs() as told:
        begun_s = time.monotonic()
        assert [rates.wait_s("k", Rate(1.0, 1)) for _ in range(1000)] == [0.0] * 1000
        assert time.monotonic() - begun_s < AWAY_S
        rates._away_until_s = 0.0  # as if so long had passed
        assert rates.wait_s("k", Rate(1.0, 1)) == 0
    assert [line["event"] for line in told] == ["rate_not_limited"]


# -- over HTTP ------------------------------------------------------------------------------


def test_a_caller_beyond_its_rate_is_told_when_to_come_again_and_others_are_not_disturbed(
    environ: dict[str, str], parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = {"FAIRSCRIBE_KEYS": "on", "FAIRSCRIBE_RATE_PER_S": "1", "FAIRSCRIBE_RATE_BURST": "2"}
    for name, value in {**environ, **slow}.items():
        monkeypatch.setenv(name, value)
    plain, other = new_key(parts, "acme"), new_key(parts, "other")
    own = new_key(parts, "acme", rate_per_s=4.0, rate_burst=3)
    with listening() as url, httpx.Client(base_url=url, trust_env=False) as client:

        def ask(key: str) -> httpx.Response:
            return client.get("/v1/jobs", headers=bearing(key))

        assert [ask(plain).status_code for _ in range(3)] == [200, 200, 429]
        refused = ask(plain)
        assert refused.json()["code"] == "rate_limited"
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.headers["retry-after"] == "1"
        assert [ask(own).status_code for _ in range(4)] == [200, 200, 200, 429]
        assert ask(other).status_code == 200
        # health needs no key and is never refused
        assert {client.get("/v1/health").status_code for _ in range(10)} == {200}
        time.sleep(int(refused.headers["retry-after"]))
        assert [ask(plain).status_code for _ in range(2)] == [200, 429]


def test_where_there_are_no_keys_there_is_no_limit(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**environ, "FAIRSCRIBE_RATE_BURST": "1"}.items():
        monkeypatch.setenv(name, value)
    with listening() as url, httpx.Client(base_url=url, trust_env=False) as client:
        assert [client.get("/v1/jobs").status_code for _ in range(10)] == [200] * 10
