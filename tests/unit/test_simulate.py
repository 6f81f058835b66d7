"""`fairscribe simulate` as it is typed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.settings import DEFAULT_POLICY


@dataclass(frozen=True)
class Ended:
    """What a command came to."""

    code: int
    stdout: str
    stderr: str


Typed = Callable[..., Ended]


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    def type_it(*words: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["fairscribe", "simulate", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Ended(int(ended.value.code or 0), said.out, said.err)

    return type_it


def test_a_table_shows_what_each_order_would_do(typed: Typed) -> None:
    shown = typed("calls", "--jobs", "200", "--seeds", "1").stdout
    assert "calls: 200 jobs, 1 x 32 slots, load 0.95" in shown
    for word in ("file-fcfs", DEFAULT_POLICY, "P99", "longest", "slowdown", "Time to first slot"):
        assert word in shown


def test_a_recorded_day_is_played_again(typed: Typed, tmp_path: Path) -> None:
    trace = tmp_path / "day.jsonl"
    rows = [{"arrived_s": 1000 + n * 0.2, "speech_s": 20 + 300 * (n % 5 == 0)} for n in range(100)]
    trace.write_text("\n".join(json.dumps(row) for row in rows))
    ended = typed("--trace", str(trace), "--slots", "4", "--policies", "fcfs,sjf", "--json")
    answer = json.loads(ended.stdout)
    assert (answer["workload"], answer["jobs"], answer["lengths"]) == ("trace", 100, "recorded")
    assert answer["rate"] == pytest.approx(100 / 19.8, rel=1e-3)
    rows_of = answer["policies"]
    assert rows_of["sjf"]["p50_s"] < rows_of["fcfs"]["p50_s"]


def test_file_level_lets_a_long_recording_keep_its_slot(typed: Typed) -> None:
    words = ("--jobs", "200", "--seeds", "1", "--policies", "fcfs", "--json")
    by_window = json.loads(typed("calls", *words).stdout)["policies"]["fcfs"]
    by_file = json.loads(typed("calls", *words, "--level", "file").stdout)["policies"]["fcfs"]
    assert by_file["p99_s"] > 2 * by_window["p99_s"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("nothing",), "'nothing' is not a workload"),
        (("calls", "--policies", "best"), "'best' is not a policy"),
        (("calls", "--policies", " , "), "no policy is named"),
        (("calls", "--level", "job"), "window or file"),
        (("calls", "--load", "0"), "load is above 0"),
        (("calls", "--load", "1", "--rate", "1"), "not both"),
        (("--trace", "no/such/file"), "no/such/file cannot be read: No such file"),
        (("--trace", __file__), "no number in arrived_s"),
        (("--trace", "/dev/zero"), "/dev/zero: more than 64 million characters"),
        (("bulk", "--rate", "1e6"), "more than 200,000"),
        (("day", "--load", "1e6"), "more than 200,000"),
        (("day", "--jobs", "40"), "as many jobs as its loads make"),
        (("day", "--window-s", "1e-6"), "more than 200,000"),
        (("calls", "--rate", "1e-308"), "rate is 1e-06 to 1e+06, not 1e-308"),
        (("calls", "--window-s", "1e308"), "window_s is 1e-06 to 1e+06"),
        (("calls", "--knee", "1e-320"), "knee is 1e-06 to 1e+06"),
        (("librispeech", "--fixed-share", "1e308"), "a fixed share is 0 to 1e+06"),
        (("calls", "--policies", "sjf@1e306"), "behind the @"),
        (("librispeech", "--jobs", "3000", "--durations", "{short}"), "3000 lengths are wanted"),
    ],
)
def test_nonsense_is_one_sentence_and_exit_code_2(
    typed: Typed, words: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    short = tmp_path / "short.tsv"
    short.write_text("duration_s\n4.5\n")
    ended = typed(*(word.format(short=short) for word in words))
    assert (ended.code, ended.stdout) == (2, "")
    assert why in ended.stderr
    assert "Traceback" not in ended.stderr
