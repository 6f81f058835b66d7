"""Talks to the API: finds it, asks it, and turns its problems back into our errors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import httpx

from pipeline.errors import (
    BadRequest,
    FairscribeError,
    KeyReused,
    NoSuchBatch,
    NoSuchJob,
    NotRetryable,
    PartDown,
    RequestInProgress,
    TranscriptNotReady,
)
from pipeline.settings import Settings

TIMEOUT = httpx.Timeout(connect=5.0, read=300.0, write=300.0, pool=5.0)
"""Seconds. Reading is long: the answer to an upload comes after all of it is on disk."""

_KINDS = (
    *(BadRequest, KeyReused, NoSuchBatch, NoSuchJob, NotRetryable, PartDown, RequestInProgress),
    TranscriptNotReady,
)
_ERRORS = {kind.code: kind for kind in _KINDS}


class Unreachable(PartDown):
    """Nothing answers where the service should be."""


def find_api(settings: Settings) -> str:
    """The API's URL: the setting, else the one `up` left in home, else where it would listen.

    Raises `Unreachable` when none of these tells.
    """
    if settings.api_url is not None:
        return settings.api_url
    try:
        up = json.loads((settings.home / "run" / "up.json").read_text("utf-8"))
        return str(up["api"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # it was not started here, or is starting
    if not settings.api_port:
        raise Unreachable(
            "The service does not run: start it with `fairscribe up`, or say with "
            "FAIRSCRIBE_API_URL where it is."
        )
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.api_host, settings.api_host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.api_port}"


class Service:
    """The API at `url`. Every method raises the errors of the API, and `Unreachable`."""

    def __init__(self, url: str, *, through_proxy: bool) -> None:
        """`through_proxy`: whether the proxies of the environment may be used."""
        self.url = url
        self._http = httpx.Client(base_url=url, timeout=TIMEOUT, trust_env=through_proxy)

    def get(self, path: str, **params: Any) -> Any:
        """GET; the answer's JSON. Parameters that are None are left out."""
        return self._ask("GET", path, params=_given(params)).json()

    def get_text(self, path: str, **params: Any) -> str:
        """GET; the answer's text."""
        return self._ask("GET", path, params=_given(params)).text

    def put(self, path: str, body: dict[str, Any]) -> Any:
        """PUT a JSON body; the answer's JSON."""
        return self._ask("PUT", path, json=body).json()

    def post(self, path: str) -> Any:
        """POST without a body; the answer's JSON."""
        return self._ask("POST", path).json()

    def upload(self, files: Sequence[tuple[str, Any]], fields: dict[str, str]) -> Any:
        """Submit open files under the names given, read as they are sent.

        Raises also what reading a file raises.
        """
        named = [("files", (name, file, "application/octet-stream")) for name, file in files]
        return self._ask("POST", "/v1/jobs", files=named, data=fields).json()

    def _ask(self, method: str, path: str, **how: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **how)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise Unreachable(
                f"No service answers at {self.url} ({error or type(error).__name__}). Start it "
                "with `fairscribe up`; if it runs elsewhere, set FAIRSCRIBE_HOME as it was set "
                "there, or FAIRSCRIBE_API_URL."
            ) from error
        if answer.is_success:
            return answer
        raise self._error(answer)

    def _error(self, answer: httpx.Response) -> FairscribeError:
        try:
            problem = answer.json()
            kind = _ERRORS.get(problem["code"], FairscribeError)
            return kind(str(problem["detail"]))
        except (ValueError, KeyError, TypeError):
            return Unreachable(
                f"What answers at {self.url} is not Fairscribe (HTTP {answer.status_code})."
            )


def connect(settings: Settings) -> Service:
    """The service these settings point to; asks nothing yet."""
    # a proxy between us and our own machine would only be in the way
    return Service(find_api(settings), through_proxy=settings.api_url is not None)


def _given(params: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}
