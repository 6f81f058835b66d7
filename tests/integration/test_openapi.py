"""The document at /openapi.json is whole, and the API keeps to it whatever is sent."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode, openapi
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from pipeline.api.app import create
from pipeline.api.examples import NO_EXAMPLE
from pipeline.parts import Parts
from tests import driven
from tests.listening import each_job, listening

DOCUMENT: dict[str, Any] = create().openapi()
OPERATIONS = [
    pytest.param(path, method, operation, id=f"{method.upper()} {path}")
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]
each_operation = pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS)


# -- the document ---------------------------------------------------------------------------


@each_operation
def test_an_operation_says_what_it_is_for_in_words_somebody_wrote(
    path: str, method: str, operation: dict[str, Any]
) -> None:
    assert operation["description"].endswith(".")
    made_up = operation["operationId"].replace("_", " ").title()
    assert operation["summary"] != made_up, "the framework's own: give it summary=..."
    known = {tag["name"]: tag["description"] for tag in DOCUMENT["tags"]}
    assert all(known[tag] for tag in operation["tags"])
    for parameter in operation.get("parameters", []):
        assert parameter["description"], parameter["name"]


@each_operation
def test_every_request_and_every_answer_has_an_example(
    path: str, method: str, operation: dict[str, Any]
) -> None:
    bodies = {"request": operation.get("requestBody", {}), **operation["responses"]}
    for name, body in bodies.items():
        for media_type, content in body.get("content", {}).items():
            assert content.get("schema"), f"{name} {media_type} has no schema"
            assert "example" in content or content.get("examples"), f"{name} {media_type}"
            shown = json.dumps([content.get("example"), content.get("examples")])
            assert NO_EXAMPLE not in shown, f"{name}: a field has no example: {shown}"


@each_operation
def test_the_errors_of_an_operation_are_named_with_their_codes(
    path: str, method: str, operation: dict[str, Any]
) -> None:
    answers = operation["responses"]
    assert "500" in answers, "responses=problems(...) names the errors"
    if operation.get("parameters") or "requestBody" in operation:
        assert any(status.startswith("4") for status in answers), "what can be wrong with it?"
    for status, answer in answers.items():
        if status[0] in "45":
            (content,) = answer["content"].values()
            for code in content["examples"]:
                assert f"`{code}`" in answer["description"]
            body = "OpenAIError" if "openai" in operation["tags"] else "Problem"
            assert content["schema"]["$ref"].endswith(f"/{body}")


def test_names_of_operations_are_those_of_functions_and_no_two_are_the_same() -> None:
    names = [operation.values[2]["operationId"] for operation in OPERATIONS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-z_]+", name) for name in names)


def test_every_schema_is_used_and_every_reference_leads_somewhere() -> None:
    known = DOCUMENT["components"]["schemas"]
    asked = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(DOCUMENT)))
    assert asked == set(known)
    assert DOCUMENT["servers"]


def test_a_file_is_binary_in_every_form() -> None:
    forms = [
        content["schema"]["properties"]
        for _, _, operation in (param.values for param in OPERATIONS)
        for kind, content in operation.get("requestBody", {}).get("content", {}).items()
        if kind == "multipart/form-data"
    ]
    assert forms
    for fields in forms:
        files = fields.get("file") or fields["files"]["items"]
        assert files["format"] == "binary"
        assert files["contentMediaType"] == "application/octet-stream"


# -- the API keeps to it --------------------------------------------------------------------

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]


@pytest.fixture
def address(
    environ: dict[str, str], parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """An API with jobs in it, whose newcomers end in turn in each way a caller may be told of."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    ends = itertools.cycle((driven.completed, driven.failed))
    with each_job(parts, lambda p, j: next(ends)(p, j)), listening() as address:
        yield address


THERE = {
    "model": "whisper-1",
    "policy": "sjf",
    "language": "en",
    "url": "https://example.com/hook",
    "metadata": {"customer_id": "42"},
}
"""Values that mean something, for fields of which most texts mean nothing."""

NOT_IN_FORCE = "aged(9)"
"""What a trial may be of: the policy in force is none."""

NEEDS_HOURS = {"GET /v1/policy/replay"}
"""Answers only where recordings came for a while and an engine told its speed."""


def ask_for_what_is_there(case: Any, job_id: str) -> None:
    if "job_id" in case.path_parameters:
        case.path_parameters["job_id"] = job_id
    if isinstance(case.body, dict):
        case.body.update({name: THERE[name] for name in case.body.keys() & THERE.keys()})
        if "trials" in case.path and "policy" in case.body:
            case.body["policy"] = NOT_IN_FORCE


def cases(address: str, parts: Parts, operation: Any, examples: int) -> Counter[int]:
    """Send what the document allows, and what it does not; how often each status came back."""
    known = itertools.cycle([driven.received(parts, f"{n}.wav", "monday") for n in range(3)])
    came: Counter[int] = Counter()
    # where there is no query and no body, nothing that can be sent is wrong
    wrong = [GenerationMode.NEGATIVE] if len(operation.query) or len(operation.body) else []
    with requests.Session() as session:
        session.trust_env = False
        for mode in (GenerationMode.POSITIVE, *wrong):

            @settings(
                max_examples=examples,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case: Any) -> None:
                if came.total() % 2:
                    ask_for_what_is_there(case, next(known))
                if isinstance(case.query.get("wait"), int | float):
                    case.query["wait"] = min(case.query["wait"], 0.01)
                answer = case.call(base_url=address, session=session, timeout=30)
                came[answer.status_code] += 1
                case.validate_response(answer, checks=CHECKS)

            ask()
    return came


def all_cases(address: str, parts: Parts, examples: int) -> dict[str, Counter[int]]:
    found = [one.ok() for one in openapi.from_dict(DOCUMENT).get_all_operations()]
    # a stream of events has no end that could be waited for
    ending = [one for one in found if "text/event-stream" not in str(one.definition.raw)]
    return {one.label: cases(address, parts, one, examples) for one in ending}


def test_the_api_answers_as_the_document_says(address: str, parts: Parts) -> None:
    came = all_cases(address, parts, 12)
    assert len(came) >= len(OPERATIONS) - 1
    for label, statuses in came.items():
        # a path with a name in it may have met no name that exists
        assert "{" in label or label in NEEDS_HOURS or min(statuses) < 300, (label, statuses)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_case_in_thousands_is_a_server_error(address: str, parts: Parts) -> None:
    came = all_cases(address, parts, 220)
    statuses = sum(came.values(), Counter())
    figures = {"cases": statuses.total(), "statuses": dict(statuses), **came}
    print("\n" + json.dumps(figures))
    assert figures["cases"] >= 5000
