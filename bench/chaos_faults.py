"""Every kind of fault: a small function that strikes and says for how long, and what heals it.

`KILLS` and `STANDS` break single processes with both servers well, the latter also those that would
notice; `SHARED` ones break what all parts share.
"""

from __future__ import annotations

import contextlib
import signal
import time
from typing import Any

import psycopg
import redis

from bench import chaos_proxy
from bench.chaos_house import Seat
from bench.chaos_proxy import Route
from bench.chaos_striker import LONG_JOBS, Flushed, Heal, Killed, Strike, Striker
from pipeline.errors import PartDown

ENDED_WITHIN_S = 20.0
"""Jobs in hand when Redis was emptied have ended or begun again by then."""
ZOMBIE_S = 30.0
"""Beyond a lease: so long a stopped worker stands at most until others have its jobs."""


# -- processes ------------------------------------------------------------------------------


def _kill(b: Striker, part: str, clock_off_s: float = 0.0) -> tuple[float, Heal] | None:
    seat = b.well(part)
    if seat is None:
        return None
    b.house.kill(seat)
    return b.chance.uniform(0.2, 1.0), lambda: _sit(b, seat, clock_off_s)


def _sit(b: Striker, seat: Seat, clock_off_s: float = 0.0) -> None:
    if not seat.alive:
        b.house.seat(seat, clock_off_s)


def kill9_transcribe(b: Striker) -> tuple[float, Heal] | None:
    """A worker dies with windows in flight; how soon its jobs are back is measured."""
    seat = b.well("transcribe", warm_s=3.0)
    if seat is None:
        return None
    b.house.kill(seat)
    with contextlib.suppress(psycopg.Error):
        at, attempts = b.in_hand([seat.worker])
        if attempts:
            b.kills.append(Killed(at, attempts, b.calm))
    return b.chance.uniform(0.2, 1.0), lambda: _sit(b, seat)


def kill9_survey(b: Striker) -> tuple[float, Heal] | None:
    """With files in mid-decode."""
    return _kill(b, "survey")


def kill9_errands(b: Striker) -> tuple[float, Heal] | None:
    """With messages taken and not answered for."""
    return _kill(b, "errands")


def api_killed(b: Striker) -> tuple[float, Heal] | None:
    """In mid-upload."""
    return _kill(b, "api")


def clock_off(b: Striker) -> tuple[float, Heal] | None:
    """A worker comes back with a clock that is ten minutes off."""
    return _kill(b, "transcribe", b.chance.choice((-600.0, 600.0)))


def reconciler_killed(b: Striker) -> tuple[float, Heal] | None:
    """The one whose only work with the queues is to keep them true, right after a worker."""
    struck = kill9_transcribe(b)
    other = _kill(b, "errands")
    if struck is None or other is None:
        return struck or other

    def heal() -> None:
        struck[1]()
        other[1]()

    return max(struck[0], other[0]), heal


def _pause(b: Striker, part: str) -> tuple[float, Heal] | None:
    seat = b.well(part)
    if seat is None:
        return None
    b.house.signal(seat, signal.SIGSTOP)
    longer_s = b.lease_s + b.chance.uniform(0.5, 2.0)
    return longer_s, lambda: b.house.signal(seat, signal.SIGCONT)


def stop_worker(b: Striker) -> tuple[float, Heal] | None:
    """It stands still until others work on its jobs, then goes on as if nothing had been: windows
    that were in flight end at once, and their jobs are committed if nobody prevents it.
    """
    seat = b.well("transcribe")
    if seat is None:
        return None
    others = [s for s in b.house.seats_of("transcribe") if s.alive and not s.stopped]
    with contextlib.suppress(psycopg.Error, PartDown):
        b.busy(others)
        _, attempts = b.in_hand([seat.worker])
        b.house.signal(seat, signal.SIGSTOP)
        end_s = time.monotonic() + b.lease_s + ZOMBIE_S
        return b.lease_s, lambda: _go_on(b, seat, attempts, end_s)
    return None


def _go_on(b: Striker, seat: Seat, attempts: dict[str, int], end_s: float) -> float | None:
    question = "SELECT id::text, attempt FROM jobs WHERE id = ANY(%s::uuid[]) AND state = 'running'"
    if time.monotonic() < end_s:
        with contextlib.suppress(psycopg.Error), contextlib.closing(b.house.database()) as c:
            rows = c.execute(question, (list(attempts),)).fetchall()
            if not any(attempt > attempts[job_id] for job_id, attempt in rows):
                return 0.1
    b.house.signal(seat, signal.SIGCONT)
    return None


def stop_survey(b: Striker) -> tuple[float, Heal] | None:
    """The same of the other queue."""
    return _pause(b, "survey")


def reconciler_stopped(b: Striker) -> tuple[float, Heal] | None:
    """Takeovers of leases are left standing."""
    return _pause(b, "errands")


# -- Redis ----------------------------------------------------------------------------------


def _redis(b: Striker, *words: Any) -> None:
    with contextlib.suppress(redis.RedisError), b.house.redis() as client:
        client.execute_command(*words)


def flushall(b: Striker) -> tuple[float, Heal] | None:
    """Everything Redis knows is gone; those at work must keep what they have in hand."""
    if b.calm:
        seats = [s for s in b.house.seats_of("transcribe") if s.alive and not s.stopped]
        flush = Flushed(*b.busy(seats))
        _redis(b, "FLUSHALL")
        end_s = time.monotonic() + ENDED_WITHIN_S
        return 0.0, lambda: _note_end(b, flush, end_s)
    _redis(b, "FLUSHALL")
    return 0.0, lambda: None


def _note_end(b: Striker, flush: Flushed, end_s: float) -> float | None:
    question = (
        "SELECT clock_timestamp(), id::text, attempt FROM jobs"
        " WHERE id = ANY(%s::uuid[]) AND state <> 'completed'"
    )
    with contextlib.closing(b.house.database()) as c:
        rows = c.execute(question, (list(flush.attempts),)).fetchall()
        now = c.execute("SELECT clock_timestamp()").fetchone()
    open_still = [j for _, j, attempt in rows if attempt == flush.attempts[j]]
    if open_still and time.monotonic() < end_s:
        return 0.1
    flush.until = now[0] if now else None
    b.flushes.append(flush)
    return None


def redis_killed_empty(b: Striker) -> tuple[float, Heal]:
    """A crash without persistence."""
    b.house.kill_redis()
    b.house.empty_redis()
    return b.chance.uniform(0.2, 2.0), b.house.start_redis


def redis_aof_restart_after_pause(b: Striker) -> tuple[float, Heal]:
    """Back with all it knew, when every lease it knows has run out."""
    b.house.kill_redis()
    return b.lease_s + 1.0, b.house.start_redis


def old_snapshot_restored(b: Striker) -> tuple[float, Heal]:
    """Back with what it knew some time ago: jobs that ended wait again, new ones are missing."""
    copy = b.house.home / "old-redis"
    b.house.kill_redis()
    if copy.exists():
        b.house.restore_redis(copy)
    return b.chance.uniform(0.2, 1.0), b.house.start_redis


def redis_full(b: Striker) -> tuple[float, Heal]:
    """It reads and refuses to write."""
    _redis(b, "CONFIG", "SET", "maxmemory", 1)
    return b.chance.uniform(1.0, 3.0), lambda: _redis(b, "CONFIG", "SET", "maxmemory", 0)


def redis_paused(b: Striker) -> tuple[float, Heal] | None:
    """It stands still for longer than a lease: all run out before anybody could renew."""
    process = b.house.valkey.process
    if process is None or process.poll() is not None:
        return None
    process.send_signal(signal.SIGSTOP)
    return b.lease_s + b.chance.uniform(0.2, 1.5), lambda: process.send_signal(signal.SIGCONT)


def script_flush(b: Striker) -> tuple[float, Heal]:
    """It forgets the scripts."""
    _redis(b, "SCRIPT", "FLUSH")
    return 0.0, lambda: None


# -- Postgres -------------------------------------------------------------------------------


def postgres_restarted(b: Striker) -> tuple[float, Heal]:
    """At once, as after a crash."""
    b.house.restart_postgres()
    return 0.0, lambda: None


def backends_killed(b: Striker) -> tuple[float, Heal]:
    """Sessions end in mid-commit, whoever had them."""
    question = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'fairscribe' AND pid <> pg_backend_pid()"
    )
    with contextlib.suppress(psycopg.Error), contextlib.closing(b.house.database()) as c:
        c.execute(question)
        time.sleep(0.05)
        c.execute(question)
    return 0.0, lambda: None


# -- lines and disk -------------------------------------------------------------------------


def _line(b: Striker, route: Route, mode: str, most_s: float) -> tuple[float, Heal]:
    route.set(mode)
    return b.chance.uniform(0.8, most_s), lambda: route.set(chaos_proxy.PASS)


def _any_route(b: Striker) -> Route:
    return b.chance.choice((b.house.to_postgres, b.house.to_redis))


def proxy_delay(b: Striker) -> tuple[float, Heal]:
    """Everything takes long."""
    return _line(b, _any_route(b), chaos_proxy.DELAY, 2.0)


def proxy_drop(b: Striker) -> tuple[float, Heal]:
    """Connections are ended and none is made."""
    return _line(b, _any_route(b), chaos_proxy.DROP, 2.0)


def proxy_half_open(b: Striker) -> tuple[float, Heal]:
    """Connections stand and carry nothing."""
    return _line(b, _any_route(b), chaos_proxy.HALF_OPEN, 3.5)


def redis_answers_lost(b: Striker) -> tuple[float, Heal]:
    """It did what it was asked, and nobody hears of it; there is something to be claimed."""
    with contextlib.suppress(PartDown):
        b.put_in_long(LONG_JOBS)
    return _line(b, b.house.to_redis, chaos_proxy.LOSE_ANSWERS, 3.5)


def postgres_answers_lost(b: Striker) -> tuple[float, Heal]:
    """The same: commits whose outcome nobody knows."""
    return _line(b, b.house.to_postgres, chaos_proxy.LOSE_ANSWERS, 3.0)


def storage_full(b: Striker) -> tuple[float, Heal]:
    """No write finds room on the disk."""
    flag = b.house.notes / "full"
    flag.touch()
    return b.chance.uniform(1.0, 2.5), lambda: flag.unlink(missing_ok=True)


KILLS: tuple[Strike, ...] = (
    *(kill9_transcribe, kill9_transcribe, kill9_transcribe, kill9_transcribe),
    *(kill9_survey, api_killed, clock_off, script_flush, storage_full),
)
"""With the errands worker well: it is there to notice."""
STANDS: tuple[Strike, ...] = (
    *(stop_worker, stop_worker, stop_survey, reconciler_stopped, reconciler_killed, kill9_errands),
)
SHARED: tuple[Strike, ...] = (
    *(flushall, redis_killed_empty, redis_aof_restart_after_pause, old_snapshot_restored),
    *(redis_full, redis_paused, postgres_restarted, backends_killed, proxy_delay, proxy_drop),
    *(proxy_half_open, redis_answers_lost, postgres_answers_lost, kill9_transcribe, stop_worker),
)
