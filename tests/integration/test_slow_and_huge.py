"""Callers who send slowly, without end, or too much: they are refused, and others served."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from pipeline.api import arriving, server
from pipeline.parts import Parts
from tests import driven
from tests.api_door import Open, api, assert_problem, open_api, send
from tests.lines import eventually
from tests.listening import listening

__all__ = ["api", "open_api"]

HEAD = b"POST /v1/jobs HTTP/1.1\r\nHost: here\r\n"
FORM = HEAD + b"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: %d\r\n\r\n"
PART = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.wav"\r\n\r\n'

Connect = Callable[[], socket.socket]


@pytest.fixture
def connect(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """Connections to the API on a real socket, where uploads may stand still for half a second."""
    for name, value in {**environ, "FAIRSCRIBE_UPLOAD_IDLE_S": "0.5"}.items():
        monkeypatch.setenv(name, value)
    with listening() as url, contextlib.ExitStack() as opened:
        host, port = url.removeprefix("http://").split(":")

        def connect() -> socket.socket:
            made = socket.create_connection((host, int(port)), timeout=10)
            return opened.enter_context(made)

        yield connect


def answered(connection: socket.socket) -> tuple[int, str]:
    """Status and code of the answer; (0, "") when there is none."""
    raw = b""
    with contextlib.suppress(OSError):
        while piece := connection.recv(65_536):
            raw += piece
            head, _, body = raw.partition(b"\r\n\r\n")
            if body.endswith(b"}"):
                return int(head[9:12]), json.loads(body)["code"]
    return (int(raw[9:12]) if raw else 0), ""


def well(connect: Connect) -> bool:
    """Others are answered at once."""
    begun_s = time.monotonic()
    with connect() as other:
        other.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: here\r\n\r\n")
        return other.recv(100).startswith(b"HTTP/1.1 200") and time.monotonic() - begun_s < 2


@pytest.mark.parametrize(
    "sent",
    [
        FORM % 10_000_000,
        FORM % 10_000_000 + PART + b"RIFF",
        HEAD + b"Content-Type: application/json\r\nContent-Length: 900\r\n\r\n" + b'{"urls": [',
        b"PUT /v1/policy HTTP/1.1\r\nHost: here\r\nContent-Length: 90\r\n\r\n{",
    ],
    ids=["nothing of a form", "half a form", "half a list of URLs", "half a policy"],
)
def test_a_body_that_stands_still_is_given_up_and_leaves_nothing(
    connect: Connect, parts: Parts, sent: bytes
) -> None:
    slow = connect()
    begun_s = time.monotonic()
    slow.sendall(sent)
    assert answered(slow) == (408, "upload_too_slow")
    assert 0.4 < time.monotonic() - begun_s < 5
    uploads = parts.settings.home / "uploads"
    assert not uploads.exists() or not list(uploads.iterdir())
    assert jobs_of(connect) == 0


def jobs_of(connect: Connect) -> int:
    host, port = connect().getpeername()
    return len(httpx.get(f"http://{host}:{port}/v1/jobs", trust_env=False).json()["jobs"])


def test_one_that_drips_is_given_up_and_one_that_is_slow_is_not(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arriving, "GRACE_S", 1.0)
    drips, slow = connect(), connect()
    body = PART + b"x" * 4_000 + b"\r\n--x--\r\n"
    drips.sendall(FORM % 10_000_000 + PART)
    slow.sendall(FORM % len(body))
    over = threading.Event()

    def drip() -> None:
        with contextlib.suppress(OSError):
            while not over.wait(0.1):
                drips.sendall(b"x")

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        for start in range(0, len(body), 250):  # 2,500 bytes a second: a phone on 2G
            slow.sendall(body[start : start + 250])
            time.sleep(0.1)
        assert answered(drips) == (408, "upload_too_slow")
    finally:
        over.set()
        dripping.join()
    assert slow.recv(100).startswith(b"HTTP/1.1 202")


def test_two_hundred_connections_with_half_a_head_disturb_nobody_and_are_closed(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEADERS_S", 1.5)
    lines = [connect() for _ in range(200)]
    for number, line in enumerate(lines):
        if number % 2:
            line.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: here\r\nX-Slow: ")
    assert well(connect)
    for line in lines[:3]:
        line.settimeout(5)
        assert answered(line) == (408, ""), "it has said nothing for too long"
    eventually(lambda: all(closed(line) for line in lines), 5)


def closed(line: socket.socket) -> bool:
    line.setblocking(False)
    try:
        while line.recv(1000):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def test_a_second_request_on_a_connection_may_not_take_for_ever_over_its_head_either(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEADERS_S", 1.0)
    line = connect()
    line.sendall(b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n")
    line.recv(10_000)
    line.sendall(b"GET /health HT")
    assert answered(line) == (408, "")


def test_who_waits_long_for_an_answer_is_not_taken_for_slow(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, parts: Parts
) -> None:
    monkeypatch.setattr(server, "HEADERS_S", 0.3)
    job_id = driven.received(parts)
    line = connect()
    line.sendall(f"GET /v1/jobs/{job_id}?wait=1 HTTP/1.1\r\nHost: here\r\n\r\n".encode())
    assert line.recv(10_000).startswith(b"HTTP/1.1 200")


def test_a_head_without_end_is_refused(connect: Connect) -> None:
    line = connect()
    with contextlib.suppress(OSError):
        line.sendall(b"GET /health HTTP/1.1\r\nHost: here\r\n")
        for number in range(40):
            line.sendall(b"X-%d: %s\r\n" % (number, b"y" * 8_000))
            time.sleep(0.005)
    assert answered(line)[0] in (431, 0)
    assert well(connect)


def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_sent(connect: Connect) -> None:
    line = connect()
    line.sendall(
        b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: here\r\nExpect: 100-continue\r\n"
        b"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 99999999999999\r\n\r\n"
    )
    assert line.recv(100).startswith(b"HTTP/1.1 400")


# -- too much -------------------------------------------------------------------------------


def test_one_file_more_than_a_request_may_hold_is_refused_and_makes_no_job(open_api: Open) -> None:
    api = open_api(FAIRSCRIBE_MAX_FILES="3")
    assert send(api, *((f"{n}.wav", b"x") for n in range(3))).status_code == 202
    answer = send(api, *((f"{n}.wav", b"x") for n in range(4)))
    assert "at most 3 files" in assert_problem(answer, 400, "bad_request")
    assert len(api.get("/v1/jobs").json()["jobs"]) == 3


def streamed(api: httpx.Client, pieces: Iterator[bytes]) -> httpx.Response:
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    return api.post("/v1/jobs", content=pieces, headers=headers)


def test_ten_thousand_and_one_files_are_one_too_many(api: httpx.Client) -> None:
    body = b"".join(PART + b"x\r\n" for _ in range(10_001)) + b"--x--\r\n"
    answer = streamed(api, iter([body]))
    assert "at most 10,000 files" in assert_problem(answer, 400, "bad_request")
    assert api.get("/v1/jobs").json()["jobs"] == []


def test_a_million_fields_are_not_read_to_their_end(api: httpx.Client) -> None:
    field = b'--x\r\nContent-Disposition: form-data; name="urls"\r\n\r\n\r\n'
    begun_s = time.monotonic()
    answer = streamed(api, (field * 1_000 for _ in range(1_000)))
    assert "too many parts" in assert_problem(answer, 400, "bad_request")
    assert time.monotonic() - begun_s < 10


@pytest.mark.parametrize("size_mib", [128, pytest.param(1024, marks=pytest.mark.slow)])
def test_a_field_without_end_is_read_and_not_kept(connect: Connect, size_mib: int) -> None:
    begins = b'--x\r\nContent-Disposition: form-data; name="metadata"\r\n\r\n'
    ends, piece = b"\r\n--x--\r\n", bytes(1 << 20)
    line = connect()
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    line.sendall(FORM % (len(begins) + (size_mib << 20) + len(ends)) + begins)
    for _ in range(size_mib):
        line.sendall(piece)
    line.sendall(ends)
    assert answered(line) == (400, "bad_request")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 60_000


def test_a_part_whose_head_has_no_end_is_not_read_on(api: httpx.Client) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"--x\r\nContent-Disposition: form-data; name="
        yield from (b"y" * (1 << 16) for _ in range(100))

    answer = streamed(api, pieces())
    assert "malformed" in assert_problem(answer, 400, "bad_request")


@pytest.mark.parametrize("path", ["/v1/policy", "/v1/policy/trials"])
def test_json_has_a_limit_everywhere(api: httpx.Client, path: str) -> None:
    ask = api.put if path == "/v1/policy" else api.post
    answer = ask(path, content=b'{"policy": "' + b"x" * arriving.SMALL_BODY_BYTES + b'"}')
    assert "at most" in assert_problem(answer, 400, "bad_request")


NONSENSE = [
    *("", " ", "nonsense", "fcfs(1)", "sjf()", "hrrn(nan)", "hrrn(inf)", "hrrn(-1)", "hrrn(1e400)"),
    *("hrrn(2.5,nan)", "hrrn(2.5,-1)", "hrrn(2.5,300,1)", "aged(1e308)", "aged(", "hrrn)2("),
    *(
        "hrrn(2.5);DROP TABLE jobs",
        "fcfs\0",
        "ｆｃｆｓ",
        "hrrn(２．５)",
        "hrrn(1_0)",
        "🙂",
        "fcfs\nsjf",
    ),
    *("x" * 100_000, "hrrn(" + "9" * 5_000 + ")", "\ud800"),
    *(None, 1, 2.5, True, [], ["fcfs"], {}, {"name": "fcfs"}),
]


def test_a_policy_of_nonsense_is_refused_in_words_and_changes_nothing(api: httpx.Client) -> None:
    before = api.get("/v1/policy").json()
    for policy in NONSENSE:
        refused = put_policy(api, json.dumps({"policy": policy}).encode())
        assert len(assert_problem(refused, 400, "bad_request")) < 1_000, policy
    for body in (b"", b"[]", b"null", b"{", b"\xff", b'{"policy": NaN}', b"[" * 100_000):
        assert len(assert_problem(put_policy(api, body), 400, "bad_request")) < 1_000, body
    assert api.get("/v1/policy").json() == before


def put_policy(api: httpx.Client, body: bytes) -> httpx.Response:
    return api.put("/v1/policy", content=body, headers={"Content-Type": "application/json"})
