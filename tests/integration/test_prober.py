"""The sandbox: right answers, contained faults, nothing left behind.

A child that misbehaves is played by running code of the test's own as a request: `misbehaving`
starts the same server with one more verb.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import (
    EmptyRecording,
    FairscribeError,
    LimitExceeded,
    NoSamples,
    NotAudio,
    ParserCrashed,
    PartDown,
    TooLong,
)
from pipeline.intake import prober as prober_module
from pipeline.intake.jail import landlock_abi
from pipeline.intake.prober import Prober
from pipeline.intake.reading import Reading
from tests.sounds import joined, mulaw_wav, silence, tone, voice, wav, write

ROOT = Path(__file__).resolve().parents[2]
CALL = joined([silence(1), voice(5), silence(2), voice(3, pitch_hz=210), silence(1)])


@pytest.fixture(scope="module")
def prober() -> Iterator[Prober]:
    found = Prober(max_duration_s=3_600)
    yield found
    found.close()


@contextmanager
def opened(folder: Path, content: bytes) -> Iterator[int]:
    fd = os.open(write(folder, f"upload-{threading.get_ident()}", content), os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def packed(folder: Path) -> Iterator[int]:
    out = os.open(folder / "packed.s16", os.O_RDWR | os.O_CREAT)
    try:
        yield out
    finally:
        os.close(out)


def gone(pid: int, within_s: float = 5.0) -> bool:
    """Whether a process ends (or is a zombie nobody of ours left) within a time."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


def idle(pid: int) -> bool:
    """Whether the server has no child left, given a moment to reap it."""
    deadline = time.monotonic() + 5.0
    while children_of(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not children_of(pid)


def children_of(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_recording_is_probed_through_a_descriptor(prober: Prober, tmp_path: Path) -> None:
    with opened(tmp_path, mulaw_wav(tone(7, rate=8_000))) as fd:
        found = prober.probe(fd, "a call.wav")
    assert found.duration_s == pytest.approx(7.0)
    assert (found.source, found.codec, found.sample_rate_hz) == ("header", "pcm_mulaw", 8_000)


def test_a_survey_plans_the_recording_and_packs_its_speech(prober: Prober, tmp_path: Path) -> None:
    with opened(tmp_path, wav(CALL)) as fd, packed(tmp_path) as out:
        os.write(out, b"what an attempt before this one left" * 100_000)
        report = prober.survey(fd, out, "call.wav")
        content = os.pread(out, 10_000_000, 0)
    (window,) = report.plan.windows
    assert report.plan.duration_s == pytest.approx(12.0)
    assert len(content) == 2 * window.sample_count
    piece = window.pieces[0]
    taken = np.frombuffer(content, "<i2")[: round(piece.length_s * 16_000)]
    start = round(piece.start_s * 16_000)
    assert np.array_equal(taken, CALL[start : start + len(taken)])
    assert report.damaged_packets == 0


@pytest.mark.parametrize(
    ("content", "refused"),
    [(b"", EmptyRecording), (b"a letter " * 100, NotAudio), (wav(silence(0)), NoSamples)],
)
def test_a_refusal_crosses_over_by_name(
    prober: Prober, tmp_path: Path, content: bytes, refused: type[FairscribeError]
) -> None:
    with opened(tmp_path, content) as fd, pytest.raises(refused):
        prober.probe(fd, "call.wav")
    with opened(tmp_path, content) as fd, packed(tmp_path) as out, pytest.raises(refused):
        prober.survey(fd, out, "call.wav")


def test_a_recording_over_the_limit_is_refused_in_survey_too(tmp_path: Path) -> None:
    short = Prober(max_duration_s=5)
    with opened(tmp_path, wav(CALL)) as fd, packed(tmp_path) as out, pytest.raises(TooLong):
        short.survey(fd, out, "call.wav")
    short.close()


def test_many_threads_get_their_own_answers(prober: Prober, tmp_path: Path) -> None:
    def measure(seconds: int) -> float:
        with opened(tmp_path, wav(tone(seconds))) as fd:
            return prober.probe(fd, "call.wav").duration_s

    lengths = list(range(1, 25))
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(measure, lengths)) == pytest.approx(lengths)


def test_a_name_of_any_length_and_letters_is_harmless(prober: Prober, tmp_path: Path) -> None:
    with opened(tmp_path, b"\xff" * 16_000) as fd:
        name = "../" * 50_000 + "звонок\n\x00.ulaw"
        assert prober.probe(fd, name).duration_s == pytest.approx(2.0)


def test_the_callers_place_in_the_file_is_left_alone(prober: Prober, tmp_path: Path) -> None:
    with opened(tmp_path, wav(CALL)) as fd:
        os.lseek(fd, 1_000, os.SEEK_SET)
        prober.probe(fd, "call.wav")
        assert os.lseek(fd, 0, os.SEEK_CUR) == 1_000


def test_the_server_has_one_thread_few_descriptors_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a second thread, a fork could inherit a lock nobody will ever release."""
    monkeypatch.setenv("FAIRSCRIBE_DATABASE_URL", "postgresql://user:secret@host/db")
    own = Prober()
    with opened(tmp_path, wav(CALL)) as fd:
        own.probe(fd, "call.wav")
    pid = own.server_pid
    assert idle(pid)
    assert len(os.listdir(f"/proc/{pid}/task")) == 1
    assert len(os.listdir(f"/proc/{pid}/fd")) <= 5  # 0 to 2, the socket, the selector
    assert b"secret" not in Path(f"/proc/{pid}/environ").read_bytes()
    own.close()


def test_a_killed_server_is_started_again(tmp_path: Path) -> None:
    own = Prober()
    first = own.server_pid
    for _ in range(2):
        os.kill(own.server_pid, signal.SIGKILL)
        with opened(tmp_path, wav(CALL)) as fd:
            assert own.probe(fd, "call.wav").duration_s == pytest.approx(12.0)
    assert gone(first)
    own.close()


def test_a_request_in_flight_survives_the_end_of_its_server(tmp_path: Path) -> None:
    own = Prober()
    with opened(tmp_path, wav(np.tile(CALL, 40))) as fd, packed(tmp_path) as out:
        own.probe(fd, "call.wav")
        pid = own.server_pid
        threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
        plan = own.survey(fd, out, "call.wav").plan
        assert plan.duration_s == pytest.approx(480.0)
        assert os.fstat(out).st_size == 2 * sum(w.sample_count for w in plan.windows)
    assert gone(pid)
    own.close()


def test_a_child_that_was_killed_once_costs_its_recording_nothing(tmp_path: Path) -> None:
    # as the kernel kills whom it likes, when memory is short for all
    own = Prober()
    with opened(tmp_path, wav(np.tile(CALL, 40))) as fd, packed(tmp_path) as out:
        own.probe(fd, "call.wav")
        assert idle(own.server_pid)

        def kill_it() -> None:
            while not (children := children_of(own.server_pid)):
                time.sleep(0.002)
            os.kill(children[0], signal.SIGKILL)

        killing = threading.Thread(target=kill_it)
        killing.start()
        assert own.survey(fd, out, "call.wav").plan.duration_s == pytest.approx(480.0)
        killing.join()
    own.close()


def test_a_survey_that_is_called_off_ends_at_once_and_costs_no_other(tmp_path: Path) -> None:
    own, reading, late = Prober(), Reading(), Reading()
    with opened(tmp_path, wav(np.tile(CALL, 40))) as fd, packed(tmp_path) as out:
        own.probe(fd, "call.wav")
        assert idle(own.server_pid)

        def stop_it() -> None:
            while not (children := children_of(own.server_pid)):
                time.sleep(0.002)
            os.kill(children[0], signal.SIGSTOP)  # it would read for ever
            reading.call_off()

        stopping = threading.Thread(target=stop_it)
        stopping.start()
        with pytest.raises(PartDown, match="called off"):
            own.survey(fd, out, "call.wav", "", reading)
        stopping.join()
        assert idle(own.server_pid)
        # one called off before it began ends the same way
        late.call_off()
        with pytest.raises(PartDown, match="called off"):
            own.survey(fd, out, "call.wav", "", late)
        assert idle(own.server_pid)
        assert own.survey(fd, out, "call.wav").plan.duration_s == pytest.approx(480.0)
    own.close()


def test_closing_leaves_no_process_behind(tmp_path: Path) -> None:
    own = Prober()
    with opened(tmp_path, wav(CALL)) as fd:
        own.probe(fd, "call.wav")
    pid = own.server_pid
    assert idle(pid)
    own.close()
    own.close()
    assert gone(pid)


@pytest.mark.parametrize(
    ("busy", "forked"),
    [(False, False), (True, False), (False, True)],
    ids=["idle", "in the middle of a survey", "its socket held by a process it had forked"],
)
def test_a_killed_parent_leaves_no_process_behind(tmp_path: Path, busy: bool, forked: bool) -> None:
    """A worker killed by signal 9: neither the server nor a child of it may stay."""
    write(tmp_path, "long.wav", wav(np.tile(CALL, 300)))
    script = f"""
        import os, signal, threading
        from pipeline.intake.prober import Prober
        prober = Prober()
        fd = os.open({str(tmp_path / "long.wav")!r}, os.O_RDONLY)
        prober.probe(fd, "call.wav")
        out = os.open({str(tmp_path / "out")!r}, os.O_RDWR | os.O_CREAT)
        if {busy}:
            threading.Thread(target=prober.survey, args=(fd, out, "call.wav")).start()
        heir = os.fork() if {forked} else 0
        if {forked} and not heir:
            os.closerange(0, 3)
            signal.pause()
        print(prober.server_pid, heir, flush=True)
        threading.Event().wait()
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid, heir = map(int, parent.stdout.readline().split())
    pids = [pid]
    if busy:
        time.sleep(0.3)
        pids += children_of(pid)
        assert len(pids) == 2
    parent.kill()
    parent.wait()
    all_gone = all(gone(each, within_s=3.0) for each in pids)
    if heir:
        os.kill(heir, signal.SIGKILL)
    parent.stdout.close()
    assert all_gone


def test_a_server_outlives_the_thread_that_first_asked_for_it(tmp_path: Path) -> None:
    """The kernel's parent-death signal follows the thread that forked, not its process."""
    made: list[Prober] = []
    thread = threading.Thread(target=lambda: made.append(Prober()))
    thread.start()
    thread.join()
    (own,) = made
    pid = own.server_pid
    time.sleep(0.2)
    assert not gone(pid, within_s=0.3)
    own.close()


@pytest.fixture(scope="module")
def misbehaving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., None]]:
    """Run a line of Python as a request, in a child confined like any other."""
    folder = tmp_path_factory.mktemp("misbehaving")
    server = folder / "misbehaving_server.py"
    server.write_text(
        textwrap.dedent(
            """
            import array, ctypes, os, signal, socket, time
            from pipeline.intake import prober_child
            def run(fds, file_name, max_duration_s, raw_format):
                exec(file_name, globals(), {"fds": fds})
                return {}
            prober_child._VERBS["probe"] = run
            prober_child.main()
            """
        )
    )
    environment = prober_module._environment()
    environment["PYTHONPATH"] += f":{folder}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prober_module, "_environment", lambda: environment)
        patch.setattr(prober_module, "_CHILD_MODULE", "misbehaving_server")
        own = Prober(probe_wall_s=2.0)

    def run(line: str) -> None:
        with opened(folder, b"x") as fd:
            own.probe(fd, line)

    yield run
    own.close()


@pytest.mark.parametrize(
    ("line", "raised"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", ParserCrashed),
        ("os.abort()", ParserCrashed),
        ("ctypes.string_at(0)", ParserCrashed),
        ("os._exit(3)", ParserCrashed),
        ("os._exit(0)", ParserCrashed),
        ("raise IndexError('mutagen')", ParserCrashed),
        ("raise PermissionError(13, 'no')", ParserCrashed),
        ("time.sleep(60)", LimitExceeded),
        ("[0 for _ in iter(int, 1)]", LimitExceeded),
        ("bytearray(1 << 40)", LimitExceeded),
        ("signal.setitimer(signal.ITIMER_REAL, 0); time.sleep(60)", LimitExceeded),
        ("raise OSError(28, 'No space left on device')", PartDown),
        ("os.kill(os.getpid(), signal.SIGTERM)", PartDown),
        ("os.kill(os.getpid(), signal.SIGKILL)", LimitExceeded),  # again and again
        ("os.write(fds[0], b'x' * 100_000); os._exit(0)", ParserCrashed),
        ("pass", ParserCrashed),  # an answer that is no probe
        ("os.write(fds[0], b'{broken'); os.abort()", ParserCrashed),
        ("os.write(fds[0], b'[' * 100_000 + b'\\n'); os.abort()", ParserCrashed),
    ],
)
def test_a_child_that_fails_costs_itself_and_is_told_by_name(
    misbehaving: Callable[..., None], line: str, raised: type[FairscribeError]
) -> None:
    with pytest.raises(FairscribeError) as caught:
        misbehaving(line)
    assert type(caught.value) is raised


OPENINGS = [
    "open('/etc/hostname')",
    "open(VICTIM, 'w')",
    "open('/proc/self/fd/%d' % fds[1], 'r+b')",  # the recording again, to write to it
    "open('/proc/%d/environ' % os.getppid())",
    "os.listdir('/')",
    "os.open('/', os.O_PATH)",
    "os.dup(fds[1])",
    "os.memfd_create('x')",
    "os.pipe()",
    "socket.socket().connect(('127.0.0.1', PORT))",
    "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT))",
    "socket.socket(socket.AF_UNIX).connect(LISTENING)",
    "socket.socket(socket.AF_UNIX).connect('\\0abstract')",
]
DEEDS = [
    "os.unlink(VICTIM)",
    "os.truncate(VICTIM, 0)",
    "os.rename(VICTIM, VICTIM + 'x')",
    "os.symlink(VICTIM, VICTIM + 'x')",
    "os.mkdir(VICTIM + 'x')",
    "os.execv('/bin/true', ['true'])",
    "os.kill(os.getppid(), signal.SIGKILL)",
    "os.kill(os.getppid(), 0)",
]


def kept_out(
    misbehaving: Callable[..., None], folder: Path, line: str, allowed: tuple[int, ...]
) -> None:
    """A line of a child that was taken over: it must fail, by one of these error numbers."""
    victim = write(folder, "neighbour.wav", b"another caller's recording")
    listening = folder / "socket"
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as local,
    ):
        local.bind(str(listening))
        local.listen()
        attempt = (
            line.replace("PORT", str(server.getsockname()[1]))
            .replace("VICTIM", repr(str(victim)))
            .replace("LISTENING", repr(str(listening)))
        )
        check = f"""
try:
    {attempt}
except OSError as error:
    assert error.errno in {allowed}, error
    raise OSError(28, 'kept out')
"""
        with pytest.raises(PartDown, match="kept out"):
            misbehaving(check)
    assert victim.read_bytes() == b"another caller's recording"
    assert sorted(folder.iterdir()) == [victim, listening]


@pytest.mark.parametrize("line", OPENINGS)
def test_a_child_taken_over_opens_nothing_whatever_the_kernel(
    misbehaving: Callable[..., None], tmp_path: Path, line: str
) -> None:
    kept_out(misbehaving, tmp_path, line, (errno.EMFILE, errno.EINVAL))  # EINVAL: dup


@pytest.mark.skipif(landlock_abi() < 6, reason="this kernel's Landlock is older than version 6")
@pytest.mark.parametrize("line", DEEDS)
def test_a_child_taken_over_changes_nothing(
    misbehaving: Callable[..., None], tmp_path: Path, line: str
) -> None:
    kept_out(misbehaving, tmp_path, line, (errno.EACCES, errno.EPERM))


def test_a_child_holds_only_what_it_was_given(misbehaving: Callable[..., None]) -> None:
    """The reply, the recording: no socket to the server, no log, no other child's recording."""
    line = (
        "assert {os.fstat(fd).st_rdev for fd in range(3)} == {os.makedev(1, 3)}\n"  # /dev/null
        "alive = []\n"
        "for fd in range(3, 64):\n"
        "    try: os.fstat(fd); alive.append(fd)\n"
        "    except OSError: pass\n"
        "assert alive == sorted(fds), alive\n"
        "raise OSError(28, 'as promised')"
    )
    with pytest.raises(PartDown, match="as promised"):
        misbehaving(line)


def test_a_child_that_fails_does_not_disturb_the_next(misbehaving: Callable[..., None]) -> None:
    with ThreadPoolExecutor(4) as threads:
        futures = [threads.submit(misbehaving, "os.abort()") for _ in range(8)]
    assert all(isinstance(future.exception(), ParserCrashed) for future in futures)
