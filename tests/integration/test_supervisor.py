"""What `fairscribe up` promises about its parts, shown on toy parts: shell lines and small scripts.

The supervisor runs in a process of its own, as it does in life. Its clock may run faster than ours
so that backing off costs no real seconds.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pipeline.errors import BadSetting
from tests.servers import is_alive, throwaway_home, wait_until
from workers.addresses import answers_health, answers_port, take_ports

ROOT = Path(__file__).resolve().parents[2]

TOY_UP = """
import json, sys, time
from pathlib import Path
from workers.part import command
from workers.state_folder import StateFolder
from workers.supervisor import Supervisor

home, speed, stages = Path(sys.argv[1]), float(sys.argv[2]), json.loads(sys.argv[3])

class FastClock:
    def monotonic_s(self): return time.monotonic() * speed
    def sleep(self, seconds): time.sleep(min(seconds, 0.01))

def say(text): print(text, file=sys.stderr, flush=True)
def on_ready(pids): print(json.dumps(pids), flush=True)

with StateFolder(home) as folder:
    parts = [
        [command(name, ["sh", "-c", line], folder, **options) for name, line, options in stage]
        for stage in stages
    ]
    sys.exit(Supervisor(parts, say, on_ready, FastClock()).run())
"""

READY = 'touch "$FAIRSCRIBE_READY_FILE"'
SERVE = f"{READY}; exec sleep 60"


def toy(name: str, line: str, **options: Any) -> tuple[str, str, dict[str, Any]]:
    """A part that is a line of shell."""
    return name, line, options


@pytest.fixture
def home() -> Iterator[Path]:
    with throwaway_home() as home:
        yield home


@pytest.fixture
def toy_up(home: Path) -> Iterator[Any]:
    """Starts a supervisor on toy parts; none outlives the test."""
    started = []

    def start(*stages: list[Any], speed: float = 1.0) -> Up:
        up = Up([sys.executable, "-c", TOY_UP, str(home), str(speed), json.dumps(stages)])
        started.append(up)
        return up

    yield start
    for up in started:
        up.close()


class Up:
    """A supervisor in a process of its own."""

    def __init__(self, argv: list[str], **environ: str) -> None:
        self.process = subprocess.Popen(
            argv,
            cwd=ROOT,
            env={k: v for k, v in os.environ.items() if "FAIRSCRIBE" not in k} | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ready(self) -> dict[str, Any]:
        """Wait for the line on stdout that comes when all parts are ready."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, f"never ready: {self.process.communicate()[1]}"
        return dict(json.loads(line))

    def read_until(self, pattern: str) -> str:
        """What it says on stderr up to the line that matches `pattern`."""
        assert self.process.stderr
        said = ""
        for line in self.process.stderr:
            said += line
            if re.search(pattern, line):
                return said
        raise AssertionError(f"it never said {pattern!r}, but:\n{said}")

    def end(self, within_s: float = 20.0) -> tuple[int, str]:
        """Wait for its end: exit code, and what else it said on stderr."""
        said = self.process.communicate(timeout=within_s)[1]
        return self.process.returncode, said

    def stop(self) -> tuple[int, str]:
        """Ask it to stop, and wait for its end."""
        self.process.send_signal(signal.SIGTERM)
        return self.end()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_a_stage_begins_when_the_one_before_is_ready(toy_up: Any, home: Path) -> None:
    first = f"sleep 0.2; echo first is ready >> {home}/order; {SERVE}"
    once = f"echo once has run >> {home}/order"
    last = f"echo last begins >> {home}/order; {SERVE}"
    up = toy_up(
        [toy("first", first)],
        [toy("once", once, once=True)],
        [toy("last", last)],
    )
    pids = up.ready()
    assert (home / "order").read_text().splitlines() == [
        "first is ready",
        "once has run",
        "last begins",
    ]
    assert list(pids) == ["first", "last"]
    assert all(is_alive(pid) for pid in pids.values())
    code, said = up.stop()
    assert code == 0
    assert re.search(r"first +ready +\d+\.\d s\nonce +done +\d+\.\d s\nlast +ready", said)


def test_parts_end_rank_by_rank_and_a_clean_stop_is_exit_code_0(toy_up: Any, home: Path) -> None:
    def ending(name: str) -> str:
        return f"trap 'sleep 0.1; echo {name} >> {home}/order; exit' TERM; {READY}; sleep 60 & wait"

    up = toy_up(
        [
            toy("store", ending("store"), stop_rank=4),
            toy("door", ending("door"), stop_rank=0),
            toy("worker", ending("worker"), stop_rank=1),
        ]
    )
    pids = up.ready()
    code, _ = up.stop()
    assert code == 0
    assert (home / "order").read_text().split() == ["door", "worker", "store"]
    assert not any(map(is_alive, pids.values()))


@pytest.mark.parametrize("request_", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_every_way_to_ask_is_heeded_even_before_all_are_ready(toy_up: Any, request_: str) -> None:
    up = toy_up([toy("quick", SERVE), toy("slow", "exec sleep 60")])
    up.read_until("quick +ready")
    up.process.send_signal(signal.Signals[request_])
    code, _ = up.end()
    assert code == 0


def test_a_part_that_dies_is_named_with_its_last_words_and_started_again(
    toy_up: Any, home: Path
) -> None:
    line = f"if [ ! -e {home}/seen ]; then touch {home}/seen; echo out of ink; exit 3; fi; {SERVE}"
    up = toy_up([toy("press", line)], speed=10)
    up.ready()
    code, said = up.stop()
    assert code == 0
    assert (
        f"press died: exit code 3. Last lines of {home}/logs/press.log:\n    out of ink\n" in said
    )
    assert "press is started again in 1 s" in said
    assert "press       ready again" in said


def test_a_part_killed_while_it_works_is_named_by_the_signal_and_comes_back(toy_up: Any) -> None:
    up = toy_up([toy("press", SERVE), toy("other", SERVE)], speed=10)
    pids = up.ready()
    os.kill(pids["press"], signal.SIGKILL)
    said = up.read_until("press +ready again")
    assert "press died: killed by SIGKILL" in said
    assert is_alive(pids["other"])


def test_what_a_dead_part_leaves_in_its_process_group_is_ended(toy_up: Any, home: Path) -> None:
    line = f"{READY}; sleep 60 & echo $! > {home}/child; wait"
    up = toy_up([toy("press", line)])
    pids = up.ready()
    wait_until(lambda: (home / "child").exists(), 3, "the part has a child")
    child = int((home / "child").read_text())
    os.kill(pids["press"], signal.SIGKILL)
    wait_until(lambda: not is_alive(child), 3, "its child is gone")


def test_a_part_that_keeps_dying_ends_all_with_exit_code_1(toy_up: Any) -> None:
    up = toy_up([toy("steady", SERVE), toy("press", f"{READY}; sleep 0.01; exit 7")], speed=20)
    code, said = up.end()
    assert code == 1
    assert said.count("press died: exit code 7") == 5
    waits = [int(s) for s in re.findall(r"started again in (\d+) s", said)]
    assert waits == [1, 2, 4, 8]
    assert "press died 5 times within 60 s: giving up" in said
    assert said.endswith("stopped\n")


def test_deaths_far_apart_are_forgiven(toy_up: Any) -> None:
    # Ready for 0.25 s, which is 75 s on this clock: the death before is too old to count.
    up = toy_up([toy("press", f"{READY}; sleep 0.25; exit 7")], speed=300)
    up.ready()
    said = "".join(up.read_until("started again") for _ in range(6))
    assert re.findall(r"started again in (\d+) s", said) == ["1"] * 6
    assert up.process.poll() is None


def test_a_part_that_never_becomes_ready_is_as_good_as_dead(toy_up: Any) -> None:
    up = toy_up([toy("press", "echo loading; exec sleep 60", ready_within_s=40)], speed=400)
    code, said = up.end()
    assert code == 1
    assert said.count("press was not ready within 40 s") == 5
    assert "    loading" in said
    assert "press did not become ready in 5 starts: giving up" in said


def test_a_failed_migration_is_told_and_ends_all(toy_up: Any) -> None:
    up = toy_up([toy("store", SERVE)], [toy("migrations", "echo no such table; exit 1", once=True)])
    code, said = up.end()
    assert code == 1
    assert "migrations died: exit code 1" in said
    assert "    no such table" in said


def test_a_part_that_cannot_be_started_at_all_ends_all(home: Path) -> None:
    script = TOY_UP.replace('["sh", "-c", line]', '["/no/such/program"]')
    stages = json.dumps([[toy("press", "")]])
    up = Up([sys.executable, "-c", script, str(home), "1", stages])
    code, said = up.end()
    assert code == 1
    assert "cannot start /no/such/program" in said


def test_a_part_that_does_not_end_in_its_time_is_killed(toy_up: Any) -> None:
    deaf = f"trap '' TERM; {READY}; while :; do sleep 1; done"
    up = toy_up([toy("deaf", deaf, stop_within_s=0.3)])
    pids = up.ready()
    code, said = up.stop()
    assert code == 0
    assert "deaf did not end in" in said
    assert not is_alive(pids["deaf"])


def test_asked_a_second_time_parts_hurry(toy_up: Any, home: Path) -> None:
    line = (
        f"trap 'echo asked > {home}/asked' TERM; trap 'echo gave back > {home}/end; exit' QUIT; "
        f"{READY}; while :; do sleep 0.02; done"
    )
    options = {"stop_within_s": 60, "hurry_signal": signal.SIGQUIT}
    up = toy_up([toy("worker", line, **options)])
    up.ready()
    up.process.send_signal(signal.SIGINT)
    wait_until(lambda: (home / "asked").exists(), 3, "the worker was asked to end")
    up.process.send_signal(signal.SIGINT)
    code, _ = up.end()
    assert code == 0
    assert (home / "end").read_text() == "gave back\n"


def test_a_killed_supervisor_leaves_nothing(toy_up: Any) -> None:
    deaf = f"trap '' TERM INT HUP; {READY}; while :; do sleep 0.1; done"
    up = toy_up([toy("one", SERVE)], [toy("deaf", deaf)])
    pids = up.ready()
    up.process.kill()
    wait_until(lambda: not any(map(is_alive, pids.values())), 3, "both parts are gone")


REAL_UP = """
import os, sys
from workers import parts_table, supervisor

real = parts_table.command_line
parts_table.command_line = lambda part, settings: (
    real(part, settings) if part == "migrations" else ["sh", "-c", os.environ["TOY"]]
)
parts_table.answers_health = parts_table.answers_port = lambda *_: lambda: True
sys.exit(supervisor.main(sys.argv[1:]))
"""


def test_up_starts_and_migrates_real_servers_and_says_so_in_one_line_of_json(home: Path) -> None:
    environ = {
        "FAIRSCRIBE_HOME": str(home),
        "FAIRSCRIBE_API_PORT": "0",
        "FAIRSCRIBE_FLOWER_PORT": "0",
        "FAIRSCRIBE_ENGINE": "echo",
        "TOY": f'env > "$FAIRSCRIBE_READY_FILE.env"; {SERVE}',
    }
    up = Up([sys.executable, "-c", REAL_UP, "--json"], **environ)
    try:
        told = up.ready()
        assert set(told) == {
            *("home", "api", "flower", "database_url", "redis_url", "pids", "engine", "model")
        }
        assert list(told["pids"]) == [
            *("postgres", "valkey", "api", "errands", "survey", "transcribe", "flower")
        ]
        assert json.loads((home / "run" / "up.json").read_text()) == told
        passed_on = (home / "run" / "transcribe.ready.env").read_text()
        assert f"FAIRSCRIBE_DATABASE_URL={told['database_url']}\n" in passed_on
        assert f"FAIRSCRIBE_REDIS_URL={told['redis_url']}\n" in passed_on
        with psycopg.connect(told["database_url"].replace("+psycopg", "", 1)) as c:
            assert c.execute("SELECT count(*) FROM jobs").fetchone() == (0,)
        up.process.send_signal(signal.SIGTERM)
        out, said = up.process.communicate(timeout=20)
        assert (up.process.returncode, out) == (0, ""), said
        assert not any(map(is_alive, told["pids"].values()))
        assert not (home / "run" / "up.json").exists()
    finally:
        up.close()


def test_a_port_that_is_taken_is_refused_by_name() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BadSetting, match=f"FAIRSCRIBE_API_PORT={port}"):
            take_ports(api_port=("127.0.0.1", port), flower_port=("127.0.0.1", 0))


def test_free_ports_differ() -> None:
    ports = take_ports(api_port=("127.0.0.1", 0), flower_port=("0.0.0.0", 0))
    assert len({0, *ports.values()}) == 3


def test_an_address_where_nobody_listens_does_not_answer() -> None:
    port = take_ports(api_port=("127.0.0.1", 0))["api_port"]
    assert not answers_port("127.0.0.1", port)()
    assert not answers_health("127.0.0.1", port)()
