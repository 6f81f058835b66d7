"""Talks to the API: finds it, asks it, and turns its problems back into our errors."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, BinaryIO
from urllib.parse import quote

import httpx

from pipeline.errors import (
    BacklogFull,
    BadRequest,
    Erased,
    FairscribeError,
    KeyMissing,
    KeyReused,
    KeyUnknown,
    NoRecording,
    NoSuchBatch,
    NoSuchCall,
    NoSuchDelivery,
    NoSuchJob,
    NoSuchTrial,
    NoSuchWebhook,
    NotRetryable,
    PartDown,
    RequestInProgress,
    ScopeMissing,
    TooFewJobs,
    TooManyRequests,
    TranscriptNotReady,
    TrialRunning,
)
from pipeline.settings import Settings, address

TIMEOUT = httpx.Timeout(connect=5.0, read=300.0, write=300.0, pool=5.0)
"""Seconds. Reading is long: the answer to an upload comes after all of it is on disk."""

_KINDS = (
    *(BadRequest, Erased, KeyReused, NoSuchBatch, NoSuchCall, NoSuchJob, NotRetryable),
    *(PartDown, NoSuchTrial, TrialRunning, TooFewJobs, TranscriptNotReady),
    *(Erased, KeyMissing, KeyUnknown, NoRecording, ScopeMissing),
    *(NoSuchWebhook, NoSuchDelivery),
)
_FULL = (TooManyRequests.code, BacklogFull.code)
_ERRORS = {kind.code: kind for kind in _KINDS}


class Unreachable(PartDown):
    """Nothing answers where the service should be."""


class NotFairscribe(Unreachable):
    """Something else answers where the service should be."""


class Later(PartDown):
    """The service answers, but not now: ask again."""

    def __init__(self, message: str, after_s: float) -> None:
        self.after_s = after_s
        """When to ask again, in seconds from now."""
        super().__init__(message)


class Full(Later):
    """The service is well and takes no more for now: it says when it will."""


LATER = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
AWAY = (HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT)
"""What a proxy says while the API behind it is started again."""

AFTER_S = 2.0
"""When to ask again where nobody says."""

LONGEST_AFTER_S = 600.0
"""Longer than ours says (pipeline/api/backlog.py): others, proxies, may say anything."""


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
    return address(settings.api_host, settings.api_port)


class Service:
    """The API at `url`. Every method raises the errors of the API, and `Unreachable`."""

    def __init__(
        self,
        url: str,
        *,
        through_proxy: bool,
        timeout: httpx.Timeout = TIMEOUT,
        api_key: str | None = None,
    ) -> None:
        """`through_proxy`: whether the proxies of the environment may be used."""
        self.url = url
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = httpx.Client(
            base_url=url, timeout=timeout, trust_env=through_proxy, headers=headers
        )

    def get(self, path: str, **params: Any) -> Any:
        """GET; the answer's JSON. Parameters that are None are left out."""
        return self._ask("GET", path, params=_given(params)).json()

    def get_text(self, path: str, **params: Any) -> str:
        """GET; the answer's text."""
        return self._ask("GET", path, params=_given(params)).text

    def put(self, path: str, body: dict[str, Any]) -> Any:
        """PUT a JSON body; the answer's JSON."""
        return self._ask("PUT", path, json=body).json()

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """POST with a JSON body, or without one; the answer's JSON."""
        return self._ask("POST", path, json=body).json()

    def delete(self, path: str) -> None:
        """DELETE; there is no answer but that it is done."""
        self._ask("DELETE", path)

    def submit(
        self, file: tuple[str, Any] | str, fields: dict[str, str], key: str
    ) -> tuple[dict[str, Any], bool]:
        """Submit one recording: an open file under its name, read as it is sent, or a URL.

        Returns its job and whether an earlier request with this Idempotency-Key had made it. Raises
        also what reading the file raises, and `Later` when no job could be made now.
        """
        if isinstance(file, str):
            # a part without a file name is a text field: all of the form has to be multipart
            part: tuple[Any, ...] = ("urls", (None, file))
        else:
            part = ("files", (file[0], file[1], "application/octet-stream"))
        answer = self._ask(
            "POST", "/v1/jobs", files=[part], data=fields, headers={"Idempotency-Key": key}
        )
        job = answer.json()["jobs"][0]
        if job["id"] is None:
            message = job["error"]["message"]
            down = job["error"]["code"] == PartDown.code
            raise Later(message, AFTER_S) if down else FairscribeError(message)
        return job, answer.headers.get("Idempotency-Replayed") == "true"

    @contextmanager
    def stream(self, path: str, silence_s: float) -> Iterator[Iterator[str]]:
        """The lines of an answer that goes on.

        Raises `Unreachable` also after `silence_s` seconds without one.
        """
        timeout = httpx.Timeout(TIMEOUT.connect, read=silence_s)
        try:
            with self._http.stream("GET", path, timeout=timeout) as answer:
                if not answer.is_success:
                    answer.read()
                    raise self._error(answer)
                yield answer.iter_lines()
        except (httpx.TransportError, httpx.StreamError) as error:
            raise Unreachable(f"The service at {self.url} went away.") from error

    def download(self, path: str, into: BinaryIO) -> int:
        """GET a file into an open one; how many bytes came."""
        size = 0
        try:
            with self._http.stream("GET", path) as answer:
                if not answer.is_success:
                    answer.read()
                    raise self._error(answer)
                for chunk in answer.iter_bytes():
                    size += into.write(chunk)
        except (httpx.TransportError, httpx.StreamError, httpx.InvalidURL) as error:
            raise Unreachable(f"The service at {self.url} went away.") from error
        return size

    def close(self) -> None:
        """End all connections, also those in use by other threads."""
        self._http.close()

    def _ask(self, method: str, path: str, **how: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **how)
            # refused unread, so nothing was done; a file that was sent is at its end, see submit.py
            while answer.status_code == HTTPStatus.TOO_MANY_REQUESTS and "files" not in how:
                time.sleep(_after_s(answer))
                answer = self._http.request(method, path, **how)
        except UnicodeEncodeError:  # words of a command line may be any bytes
            raise BadRequest("What was asked is not UTF-8.") from None
        except ValueError:  # JSON has no nan and no inf
            raise BadRequest("What was asked holds something that is no number.") from None
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
            code, detail = str(problem["code"]), str(problem["detail"])
        except (ValueError, KeyError, TypeError):
            words = f"What answers at {self.url} is not Fairscribe (HTTP {answer.status_code})."
            if answer.status_code in (*LATER, *AWAY):
                return Later(words, _after_s(answer))
            if answer.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                return FairscribeError("A proxy on the way to the service takes no file as large.")
            return NotFairscribe(words)
        if code in _FULL:
            return Full(detail, _after_s(answer))
        if answer.status_code in LATER or code == RequestInProgress.code:
            return Later(detail, _after_s(answer))
        if code == KeyMissing.code:
            return KeyMissing(
                f"The service at {self.url} wants an API key: set FAIRSCRIBE_API_KEY. "
                "`fairscribe key add NAME`, where Postgres is, makes one."
            )
        return _ERRORS.get(code, FairscribeError)(detail)


def job_path(job_id: str) -> str:
    """Where the API has a job; the id may be anything that was typed."""
    return f"/v1/jobs/{quote(job_id, safe='', errors='replace')}"


def batch_path(batch_id: str) -> str:
    """Where it has a batch."""
    return f"/v1/batches/{quote(batch_id, safe='', errors='replace')}"


def call_path(call_id: str) -> str:
    """Where it has a call in several files."""
    return f"/v1/calls/{quote(call_id, safe='', errors='replace')}"


def connect(settings: Settings, timeout: httpx.Timeout = TIMEOUT) -> Service:
    """The service these settings point to; asks nothing yet."""
    # a proxy between us and our own machine would only be in the way
    return Service(
        find_api(settings),
        through_proxy=settings.api_url is not None,
        timeout=timeout,
        api_key=settings.api_key,
    )


def _after_s(answer: httpx.Response) -> float:
    """What `Retry-After` says, in seconds; it may be a date, which we do not follow."""
    said = answer.headers.get("Retry-After", "")
    return min(float(said), LONGEST_AFTER_S) if said.isdecimal() else AFTER_S


def _given(params: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}
