"""OpenAI's official client on the real door, over a socket; workers are played by hand."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest

from pipeline.api import openai as door
from pipeline.api import waiting as waiting_door
from pipeline.errors import PartDown
from pipeline.job import AUTO, State
from pipeline.parts import Parts
from pipeline.store import jobs, views
from pipeline.store.session import transaction
from tests import driven
from tests.lines import eventually, states
from tests.listening import each_job, listening

SOUND = ("Gespräch.wav", b"RIFF....")
Serve = Callable[..., str]


@pytest.fixture
def serve(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Starts the API on a free port with `environ`, some of it replaced; gives its address."""
    with contextlib.ExitStack() as running:

        def start(**instead: str) -> str:
            for name, value in {**environ, **instead}.items():
                monkeypatch.setenv(name, value)
            return running.enter_context(listening())

        yield start


@pytest.fixture
def address(serve: Serve) -> str:
    return serve()


@pytest.fixture
def client(address: str) -> Iterator[openai.OpenAI]:
    with asking(address) as client:
        yield client


def asking(address: str, **how: Any) -> openai.OpenAI:
    """The official client; what is accepted by mistake must not wait the ten minutes it would."""
    how = {"timeout": 20.0, **how}
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none is needed", **how)


def the_job(parts: Parts) -> Any:
    with transaction(parts.store) as c:
        (job,) = views.list_jobs(c)
    return job


# -- what is heard --------------------------------------------------------------------------


def test_every_response_format_reads_as_the_official_client_expects_it(
    client: openai.OpenAI, parts: Parts
) -> None:
    def asked(**how: Any) -> Any:
        return client.audio.transcriptions.create(model="whisper-1", file=SOUND, **how)

    with each_job(parts, driven.completed) as ids:
        plain = asked()
        text = asked(response_format="text")
        srt = asked(response_format="srt")
        vtt = asked(response_format="vtt")
        verbose = asked(response_format="verbose_json", timestamp_granularities=["segment"])

    assert isinstance(plain, openai.types.audio.Transcription)
    assert plain.text == "Grüße! Hello 🙂."
    assert plain._request_id == ids[0]
    assert text == "Grüße! Hello 🙂.\n"
    assert srt.startswith("1\n00:00:00,500 --> 00:00:01,500\nleft: Grüße!\n\n2\n")
    assert vtt.startswith("WEBVTT\n\n00:00:00.500 --> 00:00:01.500\n<v left>Grüße!\n")
    assert isinstance(verbose, openai.types.audio.TranscriptionVerbose)
    assert (verbose.language, verbose.duration, verbose.text) == ("english", 4.0, plain.text)
    first, second = verbose.segments or []
    assert (first.id, first.start, first.end, first.text) == (0, 0.5, 1.5, "Grüße!")
    assert first.avg_logprob == pytest.approx(-0.105, abs=0.001)
    assert second.text == "Hello 🙂."


def test_a_recording_is_a_job_like_any_other(client: openai.OpenAI, parts: Parts) -> None:
    with each_job(parts, driven.completed):
        client.audio.transcriptions.create(
            model="tiny.en", file=SOUND, language="de", prompt="Names: Müller", temperature=0.2
        )
    job = the_job(parts)
    assert (job.file_name, job.batch_id, job.language) == ("Gespräch.wav", None, "de")
    assert job.options == {"vocabulary": "Names: Müller"}


def test_a_prompt_is_never_refused_and_of_a_long_one_the_end_counts(
    client: openai.OpenAI, parts: Parts
) -> None:
    prompt = "old " * 1000 + "Bell\a of\nGrace"
    with each_job(parts, driven.completed):
        client.audio.transcriptions.create(model="tiny.en", file=SOUND, prompt=prompt)
    kept = the_job(parts).options["vocabulary"]
    assert kept.endswith("old Bell of Grace")
    assert 990 <= len(kept) <= 1000


@pytest.mark.filterwarnings("ignore:deprecated")  # by its owner, for its own service
@pytest.mark.parametrize(
    ("default", "asked", "language"),
    [("en", {}, AUTO), ("de", {}, None), ("en", {"language": "fr"}, "fr")],
)
def test_a_translation_is_asked_of_the_engine_and_is_in_english(
    serve: Serve, parts: Parts, default: str, asked: dict[str, str], language: str | None
) -> None:
    def translated(parts: Parts, job_id: str) -> None:
        ticket = driven.running(parts, job_id)
        body = driven.Transcript(
            job_id, "Hi.", "de", 4.0, (), provenance={"options": ticket.options}
        )
        with transaction(parts.store) as c:
            assert jobs.keep_transcript(c, ticket, body)

    client = asking(serve(FAIRSCRIBE_LANGUAGE=default))
    with client, each_job(parts, translated):
        said = client.audio.translations.create(
            model="whisper-1", file=SOUND, response_format="verbose_json", extra_body=asked
        )
    assert (said.text, said.language) == ("Hi.", "english")
    assert (the_job(parts).options, the_job(parts).language) == ({"task": "translate"}, language)


def test_the_models_are_the_one_in_use_and_openais_name_for_it(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny.en", "whisper-1"]
    assert client.models.retrieve("tiny.en").owned_by == "fairscribe"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("openai/whisper-large-v3")


def test_a_model_in_a_folder_goes_by_the_folders_name(
    serve: Serve, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("secret place") / "our-whisper"
    folder.mkdir()
    with asking(serve(FAIRSCRIBE_MODEL=str(folder))) as client:
        assert [model.id for model in client.models.list()] == ["our-whisper", "whisper-1"]
        with pytest.raises(openai.NotFoundError) as refused:
            client.models.retrieve(str(folder))
        assert "secret place" not in refused.value.message.replace(repr(str(folder)), "")


def test_a_model_of_the_hub_is_asked_for_by_its_whole_name(serve: Serve) -> None:
    with asking(serve(FAIRSCRIBE_MODEL="openai/whisper-small")) as client:
        assert client.models.retrieve("openai/whisper-small").id == "openai/whisper-small"


# -- what goes wrong ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "param", "code", "said"),
    [
        ({"response_format": "diarized_json"}, "response_format", None, "one of json, text"),
        ({"language": "xx"}, "language", None, "language is a code"),
        ({"language": "english"}, "language", None, "language is a code"),
        ({"temperature": 3}, "temperature", None, "from 0 to 1"),
        ({"extra_body": {"temperature": "nan"}}, "temperature", None, "from 0 to 1"),
        (
            {"timestamp_granularities": ["word", "segment"], "response_format": "verbose_json"},
            "timestamp_granularities[]",
            None,
            "no word times",
        ),
        ({"timestamp_granularities": ["x"]}, "timestamp_granularities[]", None, "only be"),
        ({"extra_body": {"best_of": 3}}, None, None, "'best_of'"),
        ({"model": ""}, "model", None, "Say which model"),
        ({"file": ("empty.wav", b"")}, None, "empty", "0 bytes"),
    ],
)
def test_a_request_that_cannot_be_meant_is_a_bad_request_that_names_the_field(
    client: openai.OpenAI, how: dict[str, Any], param: str, code: str, said: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=said) as refused:
        client.audio.transcriptions.create(**{"model": "whisper-1", "file": SOUND, **how})
    error = refused.value
    assert (error.param, error.code, error.type) == (param, code, "invalid_request_error")


def test_a_model_that_is_not_served_is_not_found(client: openai.OpenAI, parts: Parts) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        client.audio.transcriptions.create(model="gpt-4o-transcribe", file=SOUND)
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
    assert states(parts) == {}


def test_what_openais_other_models_understand_is_passed_over(
    client: openai.OpenAI, parts: Parts
) -> None:
    with each_job(parts, driven.completed):
        said = client.audio.transcriptions.create(
            model="whisper-1",
            file=SOUND,
            chunking_strategy={"type": "server_vad", "threshold": 0.5},
            include=["logprobs"],
            extra_body={"stream": "true"},
        )
    assert said.text == "Grüße! Hello 🙂."


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        ("not_audio", openai.BadRequestError),
        ("too_long", openai.BadRequestError),
        ("engine_crashed", openai.InternalServerError),
        ("recording_missing", openai.InternalServerError),
        ("never heard of", openai.InternalServerError),
    ],
)
def test_a_job_that_fails_is_an_error_with_its_code_and_is_not_sent_again(
    client: openai.OpenAI, parts: Parts, code: str, raised: type[openai.APIStatusError]
) -> None:
    with each_job(parts, lambda p, j: driven.failed(p, j, code)) as ids:
        with pytest.raises(raised) as failed:
            client.audio.transcriptions.create(model="whisper-1", file=SOUND)
        assert len(ids) == 1, "the client has retries, and none can help"
    assert failed.value.code == (code if code != "never heard of" else "failed")
    assert failed.value.status_code == (400 if raised is openai.BadRequestError else 500)


def test_a_job_somebody_cancelled_is_a_conflict(client: openai.OpenAI, parts: Parts) -> None:
    def stop(parts: Parts, job_id: str) -> None:
        with transaction(parts.store) as c:
            jobs.cancel(c, job_id)

    with each_job(parts, stop) as ids:
        with pytest.raises(openai.ConflictError, match="cancelled"):
            client.audio.transcriptions.create(model="whisper-1", file=SOUND)
        assert len(ids) == 1


def test_a_part_that_is_down_is_a_503_that_says_when_to_come_again(serve: Serve) -> None:
    address = serve(FAIRSCRIBE_DATABASE_URL="postgresql://secret:word@127.0.0.1:1/d")
    with asking(address, max_retries=0) as client, pytest.raises(openai.APIStatusError) as down:
        client.audio.transcriptions.create(model="whisper-1", file=SOUND)
    answer = down.value.response
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert (down.value.code, down.value.type) == ("part_down", "server_error")
    assert "secret" not in answer.text


def test_a_moments_outage_is_waited_out(
    address: str, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, view = [], door.existing_job
    seen, over = [], waiting_door.views.over

    def over_away_twice(*arguments: Any) -> Any:
        seen.append(1)
        if len(seen) <= 2:
            raise PartDown("Postgres does not answer: restarting")
        return over(*arguments)

    monkeypatch.setattr(waiting_door.views, "over", over_away_twice)

    def away_twice(*arguments: Any) -> Any:
        looks.append(1)
        if len(looks) <= 2:
            raise PartDown("Postgres does not answer: restarting")
        return view(*arguments)

    monkeypatch.setattr(door, "existing_job", away_twice)
    with asking(address, max_retries=0) as client, each_job(parts, driven.completed):
        assert client.audio.transcriptions.create(model="whisper-1", file=SOUND).text
    assert len(looks) >= 3
    assert len(seen) >= 3


def test_what_nobody_foresaw_is_told_in_openais_form_without_internals(
    client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    def burst(*_: Any) -> None:
        raise RuntimeError("the password is swordfish")

    monkeypatch.setattr(door, "read_asked", burst)
    with pytest.raises(openai.InternalServerError) as failed:
        client.audio.transcriptions.create(model="whisper-1", file=SOUND)
    assert (failed.value.code, failed.value.type) == ("internal", "server_error")
    assert "swordfish" not in failed.value.response.text


@pytest.mark.parametrize(
    ("ask", "status"),
    [
        (("POST", "/v1/audio/speech"), 404),
        (("GET", "/v1/audio/transcriptions"), 405),
        (("POST", "/v1/audio/transcriptions"), 400),
        (("DELETE", "/v1/models/tiny.en"), 405),
    ],
)
def test_every_error_on_these_paths_has_openais_form(
    address: str, ask: tuple[str, str], status: int
) -> None:
    answer = httpx.request(ask[0], address + ask[1], trust_env=False)
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


# -- callers who go away --------------------------------------------------------------------


def posted(address: str, body: bytes, length: int | None = None) -> socket.socket:
    """A connection on which a form was sent, or as much of it as `body` is."""
    host, port = address.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)))
    connection.sendall(
        b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: here\r\n"
        b"Content-Type: multipart/form-data; boundary=x\r\n"
        + f"Content-Length: {length or len(body)}\r\n\r\n".encode()
        + body
    )
    return connection


FORM = (
    b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n'
    b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nabc\r\n--x--\r\n'
)


def test_a_caller_who_hangs_up_cancels_the_job(address: str, parts: Parts) -> None:
    with posted(address, FORM):
        job_id = eventually(lambda: states(parts) and the_job(parts).id)
        driven.running(parts, job_id)
        time.sleep(2 * waiting_door.TICK_S)
        assert states(parts) == {State.RUNNING: 1}, "while the caller is there, it goes on"
    eventually(lambda: states(parts) == {State.CANCELLED: 1}, 5)


def test_a_caller_who_hangs_up_in_the_middle_of_the_upload_leaves_no_job(
    address: str, parts: Parts
) -> None:
    with posted(address, FORM[:-20], len(FORM)):
        pass
    with each_job(parts, driven.completed), posted(address, FORM) as after:
        assert after.recv(1000).startswith(b"HTTP/1.1 200")
    assert states(parts) == {State.COMPLETED: 1}
    assert not list((parts.settings.home / "uploads").iterdir())


def test_callers_who_wait_hold_no_thread(address: str, parts: Parts) -> None:
    with contextlib.ExitStack() as waiting:
        for _ in range(50):  # the pool has 40
            waiting.enter_context(posted(address, FORM))
        eventually(lambda: states(parts) == {State.RECEIVED: 50})
        begun_s = time.monotonic()
        assert httpx.get(f"{address}/v1/jobs", trust_env=False).status_code == 200
        assert time.monotonic() - begun_s < 2
    eventually(lambda: states(parts) == {State.CANCELLED: 50})
