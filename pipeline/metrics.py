"""What Prometheus is told: every metric with its meaning, labels and unit, and the text they make.

All are gauges, computed when they are asked for: an API that starts anew has lost no count. No file
name, id or word of anybody is in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

CONTENT_TYPE = CONTENT_TYPE_LATEST

QUANTILES = (0.1, 0.5, 0.9)
"""Of ratios, as Prometheus writes them in the label `quantile`."""


@dataclass(frozen=True)
class Metric:
    """One metric."""

    name: str
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()


METRICS = (
    Metric("jobs_waiting", "jobs", "Jobs that wait", ("stage",)),
    Metric("jobs_working", "jobs", "Jobs in workers' hands", ("stage",)),
    Metric("oldest_wait_seconds", "seconds", "Since when the oldest of those waits", ("stage",)),
    Metric("worker_slots", "slots", "What a worker does at once", ("stage", "worker")),
    Metric(
        "worker_slots_wanted",
        "slots",
        "What it was set to do at once; more where its engine ran out of memory",
        ("stage", "worker"),
    ),
    Metric("policy", "1", "The order of work in force", ("policy",)),
    Metric(
        "breaker_open",
        "0 or 1",
        "Whether this process does without a part that does not answer, and asks it once a second",
        ("part",),
    ),
    Metric(
        "webhook_deliveries",
        "deliveries",
        "News of jobs for webhooks that waits to be sent, or was given up in the days of the log",
        ("status",),
    ),
    Metric("webhooks", "webhooks", "Webhooks that are told, and that are paused", ("status",)),
    Metric("work_jobs", "jobs", "Finished jobs the next two are over", ("model",)),
    Metric(
        "work_predicted_ratio",
        "ratio",
        "Engine time foretold over engine time taken, by job",
        ("model", "quantile"),
    ),
    Metric("work_r2", "share", "Variance of engine time that was foretold", ("model",)),
    Metric("work_job_seconds", "seconds", "Learned: engine time a job costs at least", ("model",)),
    Metric("work_window_seconds", "seconds", "Learned: engine time a window costs", ("model",)),
    Metric("work_token_seconds", "seconds", "Learned: engine time a token costs", ("model",)),
    Metric(
        "work_tokens_per_speech_second",
        "tokens/second",
        "Learned: tokens a second of speech decodes to",
        ("model", "language"),
    ),
    Metric("length_jobs", "jobs", "Completed jobs the lengths below are over, at most"),
    Metric("length_probed_ratio", "ratio", "Length as probed over length decoded", ("quantile",)),
    Metric("length_hint_ratio", "ratio", "Length as hinted over length decoded", ("quantile",)),
    Metric("length_speech_ratio", "ratio", "Speech found over length decoded", ("quantile",)),
    Metric(
        "length_transcribed_ratio",
        "ratio",
        "Speech with words nobody doubts over speech found",
        ("quantile",),
    ),
    Metric(
        "length_compared_jobs",
        "jobs",
        "Jobs whose lengths were compared, by what was probed and who said how long it is",
        ("container", "source"),
    ),
    Metric(
        "length_mismatch_jobs",
        "jobs",
        "Of those, jobs whose lengths differ by more than a tenth and more than 5 s",
        ("length", "container", "source"),
    ),
)
"""In the order they are told; each name begins with `fairscribe_`."""

PREFIX = "fairscribe_"

Samples = Mapping[tuple[str, ...], float]
"""Values of one metric by those of its labels."""


def as_text(found: Mapping[str, Samples]) -> bytes:
    """The metrics in Prometheus' text format; those not in `found` have no sample."""
    if unknown := set(found) - {metric.name for metric in METRICS}:
        raise AssertionError(f"{sorted(unknown)} are not in METRICS")
    registry = CollectorRegistry()
    registry.register(_Found(found))
    return generate_latest(registry)


def quantiles(
    values: Sequence[float], labels: tuple[str, ...] = ()
) -> dict[tuple[str, ...], float]:
    """Samples of `QUANTILES` of `values`, after `labels`; none without values.

    >>> quantiles([3.0, 1.0, 2.0], ("en",))
    {('en', '0.1'): 1.0, ('en', '0.5'): 2.0, ('en', '0.9'): 3.0}
    """
    ordered = sorted(values)
    # the nearest rank: a value that was there
    return {
        (*labels, str(q)): ordered[min(len(ordered) - 1, int(q * len(ordered)))]
        for q in QUANTILES
        if ordered
    }


class _Found(Collector):
    """One answer as the library wants it."""

    def __init__(self, found: Mapping[str, Samples]) -> None:
        self._found = found

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """See `Collector`."""
        return list(self._families())

    def _families(self) -> Iterator[GaugeMetricFamily]:
        for metric in METRICS:
            meaning = f"{metric.meaning} ({metric.unit})"
            family = GaugeMetricFamily(PREFIX + metric.name, meaning, labels=metric.labels)
            for labels, value in self._found.get(metric.name, {}).items():
                family.add_metric(labels, value)
            yield family
