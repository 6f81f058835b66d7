"""docs/api.md and the API agree: every route, parameter, field and code is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.api import (
    batch_bodies,
    bodies,
    call_bodies,
    problems,
    queue_bodies,
    webhook_bodies,
)
from pipeline.api.app import create
from pipeline.errors import FairscribeError, JobFailed, RecordingRefused
from pipeline.metrics import METRICS
from pipeline.store.accesses import Action

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text("utf-8")
DESCRIBED: dict[str, Any] = create().openapi()

ROUTES = [
    (method.upper(), path, route)
    for path, methods in DESCRIBED["paths"].items()
    for method, route in methods.items()
]
HEADING = re.compile(r"^## `([A-Z]+) (/\S*)`$", re.MULTILINE)


def section(method: str, path: str) -> str:
    """What the page says of one route: from its heading to the next."""
    start = PAGE.index(f"## `{method} {path}`\n")
    end = PAGE.find("\n## ", start + 1)
    return PAGE[start : end if end >= 0 else len(PAGE)]


def test_every_route_has_a_heading_and_every_heading_a_route() -> None:
    assert sorted(HEADING.findall(PAGE)) == sorted((method, path) for method, path, _ in ROUTES)


@pytest.mark.parametrize(("method", "path", "route"), ROUTES)
def test_a_route_is_documented_with_its_parameters_and_an_example(
    method: str, path: str, route: dict[str, Any]
) -> None:
    told = section(method, path)
    named = {parameter["name"] for parameter in route.get("parameters", [])} - {"job_id"}
    forms = route.get("requestBody", {}).get("content", {}).get("multipart/form-data", {})
    named |= set(forms.get("schema", {}).get("properties", {}))
    missing = sorted(name for name in named if f"`{name}`" not in told)
    assert not missing, f"{method} {path} does not tell of {missing}"
    assert "```" in told, "it has no example"


def test_every_action_that_is_written_down_is_told_of() -> None:
    told = section("GET", "/v1/accesses")
    assert [action for action in Action if f"`{action.value}`" not in told] == []


@pytest.mark.parametrize(
    "body", [bodies.Job, queue_bodies.QueuedJob, bodies.Problem, batch_bodies.Batch]
)
def test_every_field_of_an_answer_is_on_the_page(body: type[Any]) -> None:
    missing = sorted(name for name in body.model_fields if f"`{name}`" not in PAGE)
    assert not missing


@pytest.mark.parametrize(
    "body",
    [
        *(bodies.ChannelBody, bodies.LengthsBody, call_bodies.Call, call_bodies.CallLeg),
        *(call_bodies.CallTranscriptBody, call_bodies.JoinedLeg),
        *(bodies.AcceptedFile, bodies.TranscriptBody, bodies.SegmentBody, queue_bodies.QueueView),
        *(queue_bodies.JobInHand, queue_bodies.WorkerSpeedView, queue_bodies.RatiosView),
        *(queue_bodies.PolicyView, queue_bodies.PolicyHistory, batch_bodies.BatchPage),
        *(queue_bodies.TrialView, queue_bodies.TrialList, queue_bodies.ComparisonView),
        *(queue_bodies.RatioView, queue_bodies.ReplayView, queue_bodies.ReplayedView),
        *(webhook_bodies.NewWebhook, webhook_bodies.WebhookList, webhook_bodies.Resumed),
        *(webhook_bodies.DeliveryBody, webhook_bodies.DeliveryPage),
    ],
)
def test_every_field_of_an_answer_is_in_an_example(body: type[Any]) -> None:
    missing = sorted(name for name in body.model_fields if f'"{name}": ' not in PAGE)
    assert not missing


def test_every_metric_is_on_the_page_with_its_labels_its_unit_and_its_meaning() -> None:
    rows = [
        f"| `{m.name}` | {', '.join(f'`{label}`' for label in m.labels)} | {m.unit} | {m.meaning} |"
        for m in METRICS
    ]
    told = section("GET", "/metrics").replace("| |", "|  |").lower()
    assert [row for row in rows if row.lower() not in told] == []
    assert told.count("\n| `") == len(METRICS)


def test_every_code_of_a_problem_is_on_the_page() -> None:
    codes = {kind.code for kind in problems.STATUS if kind.code != "recording_refused"}
    missing = sorted(code for code in codes | {"internal"} if f"`{code}`" not in PAGE)
    assert not missing


def test_every_reason_a_job_fails_for_is_on_the_page_in_its_own_words() -> None:
    kinds = [*subclasses(RecordingRefused), *subclasses(JobFailed)]
    own = [kind for kind in kinds if "code" in vars(kind)]
    rows = {f"| `{kind.code}` | {(kind.__doc__ or '').strip().rstrip('.')} |" for kind in own}
    assert sorted(row for row in rows if row.lower() not in PAGE.lower()) == []


def subclasses(kind: type[FairscribeError]) -> Iterator[type[FairscribeError]]:
    for sub in kind.__subclasses__():
        yield sub
        yield from subclasses(sub)
