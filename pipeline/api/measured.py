"""GET /metrics: how things stand, for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fastapi import APIRouter, Response
from sqlalchemy import Connection

from pipeline.api.described import problems
from pipeline.api.given import GivenParts, needs
from pipeline.caller import Scope
from pipeline.errors import PartDown
from pipeline.logs import log
from pipeline.metrics import CONTENT_TYPE, Samples, as_text, quantiles
from pipeline.parts import Parts
from pipeline.scheduling.learning import MEANT, is_meant, r2
from pipeline.scheduling.policies import Policy
from pipeline.store import metrics, policies, work
from pipeline.store.metrics import Lengths
from pipeline.store.session import clock_ms, transaction

router = APIRouter(tags=["health"], dependencies=needs(Scope.OPERATE))

NEWEST = 500
"""Jobs that ratios are over: enough for a tenth and a ninetieth percentile."""

COUNTED = 100_000
"""Jobs that are counted one by one, at most."""

MISMATCH_SHARE = 0.1
MISMATCH_S = 5.0
"""Lengths that differ by more than both are told: less is padding of codecs and rounding."""

UNPROBED = "probe"
"""As a stage: nobody has looked at the recording yet."""

FIRST_COME = Policy("fcfs")

EXAMPLE = """\
# HELP fairscribe_jobs_waiting Jobs that wait (jobs)
# TYPE fairscribe_jobs_waiting gauge
fairscribe_jobs_waiting{stage="transcribe"} 41.0
"""

Found = dict[str, Samples]


@router.get(
    "/metrics",
    summary="Read metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Every metric, in Prometheus' text format",
            "content": {"text/plain": {"schema": {"type": "string"}, "example": EXAMPLE}},
        },
        **problems(),
    },
)
def read_metrics(parts: GivenParts) -> Response:
    """How many wait and how long, how well work is foretold, and what lengths were worth, in
    Prometheus' text format. While a part does not answer, only whether it does.
    """
    try:
        found = _stored(parts)
    except PartDown as down:
        log().warning("part_down", why=down.message)
        found = {}
    found["breaker_open"] = {(b.part,): float(b.is_open) for b in parts.breakers}
    return Response(as_text(found), media_type=CONTENT_TYPE)


def _stored(parts: Parts) -> Found:
    """What Postgres and Redis know. Raises `PartDown`."""
    with transaction(parts.store) as c:
        found = _work(c) | _lengths(c) | _webhooks(c)
        now_ms = clock_ms(c)
        decided = policies.newest_policy(c) or parts.settings.start_policy
        unprobed = metrics.unprobed(c, COUNTED)
    return found | _lines(parts, unprobed, now_ms, str(decided))


def _lines(parts: Parts, unprobed: tuple[int, int | None], now_ms: int, decided: str) -> Found:
    """Who waits, who is in work, since when, by which rule."""
    waiting, first_ms = unprobed
    counts = {UNPROBED: (waiting, 0)}
    oldest = {UNPROBED: first_ms}
    for name, queue in parts.queues.items():
        counts[name] = queue.counts()
        head = queue.order.head(1, FIRST_COME, now_ms)
        oldest[name] = head[0].arrival_ms if head else None
        decided = str(queue.policy() or decided)
    workers = [(name, w) for name, queue in parts.queues.items() for w in queue.board.speeds()]
    return {
        "jobs_waiting": {(name,): waits for name, (waits, _) in counts.items()},
        "jobs_working": {(name,): works for name, (_, works) in counts.items() if name != UNPROBED},
        # a clock set back, or an arrival a tenant's clock put ahead, is no negative wait
        "oldest_wait_seconds": {
            (name,): max(0, now_ms - ms) / 1000 if ms is not None else 0.0
            for name, ms in oldest.items()
        },
        "worker_slots": {(name, w.worker): w.slots for name, w in workers},
        "worker_slots_wanted": {(name, w.worker): w.slots_wanted for name, w in workers},
        "policy": {(decided,): 1},
    }


def _webhooks(c: Connection) -> Found:
    """Whether who asked to be told is told."""
    told = {
        "webhook_deliveries": metrics.undelivered(c, COUNTED),
        "webhooks": metrics.webhooks_paused(c, COUNTED),
    }
    return {name: {(status,): n for status, n in counts.items()} for name, counts in told.items()}


def _work(c: Connection) -> Found:
    """How well work was foretold, and how it is foretold now, by engine model."""
    found: dict[str, dict[tuple[str, ...], float]] = {}

    def tell(metric: str, value: float, *labels: str) -> None:
        found.setdefault(metric, {})[labels] = value

    for model in work.models_that_worked(c):
        newest = work.newest_done(c, model, NEWEST)
        done = [d for d in newest if is_meant(d.busy_s) and abs(d.predicted_s) <= MEANT[1]]
        tell("work_jobs", len(done), model)
        ratios = quantiles([d.predicted_s / d.busy_s for d in done], (model,))
        found.setdefault("work_predicted_ratio", {}).update(ratios)
        explained = r2([d.busy_s for d in done], [d.predicted_s for d in done])
        if explained is not None:
            tell("work_r2", explained, model)
        learned = work.newest_model(c, model)
        if learned is not None:
            tell("work_job_seconds", learned.job_s, model)
            tell("work_window_seconds", learned.window_s, model)
            tell("work_token_seconds", learned.token_s, model)
            for language, tokens in learned.kappa.items():
                tell("work_tokens_per_speech_second", tokens, model, language)
    return dict(found)


def _lengths(c: Connection) -> Found:
    """What was said of lengths, against what decoding found."""
    newest = metrics.newest_lengths(c, NEWEST)
    probed = [one.probed_s / one.decoded_s for one in newest if one.probed_s is not None]
    hinted = [one.hinted_s / one.decoded_s for one in newest if one.hinted_s is not None]
    speech = [one.speech_s / one.decoded_s for one in newest if one.speech_s is not None]
    transcribed = [
        one.transcribed_s / one.speech_s
        for one in newest
        if one.transcribed_s is not None and one.speech_s
    ]
    compared, differing = _compared(newest)
    return {
        "length_jobs": {(): len(newest)},
        "length_probed_ratio": quantiles(probed),
        "length_hint_ratio": quantiles(hinted),
        "length_speech_ratio": quantiles(speech),
        "length_transcribed_ratio": quantiles(transcribed),
        "length_compared_jobs": compared,
        "length_mismatch_jobs": differing,
    }


def _compared(newest: Sequence[Lengths]) -> tuple[Samples, Samples]:
    """How many jobs were compared, and how many differ: probed against decoded length, transcribed
    against found speech. A kind of file with none that differs is told as 0.
    """
    compared = Counter((one.container, one.source) for one in newest)
    differing: dict[tuple[str, ...], float] = {
        (name, *kind): 0.0 for name in ("probed", "transcribed") for kind in compared
    }
    for one in newest:
        kind = (one.container, one.source)
        differing["probed", *kind] += differ(one.probed_s, one.decoded_s)
        differing["transcribed", *kind] += differ(one.transcribed_s, one.speech_s)
    return {kind: float(count) for kind, count in compared.items()}, differing


def differ(one_s: float | None, other_s: float | None) -> bool:
    """Whether two lengths of one thing differ by more than `MISMATCH_SHARE` and `MISMATCH_S`.

    >>> differ(100.0, 120.0), differ(100.0, 105.0), differ(4.0, 8.0), differ(None, 8.0)
    (True, False, False, False)
    """
    if one_s is None or other_s is None:
        return False
    apart_s = abs(one_s - other_s)
    return apart_s > MISMATCH_S and apart_s > MISMATCH_SHARE * other_s
