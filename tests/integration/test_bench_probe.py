"""`fairscribe bench probe` tells the truth of a list, and refuses an unreadable one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.probe import measured, read_rows
from pipeline.errors import BadRequest
from tests.sounds import encoded, mulaw_wav, noise, tone, wav, write

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = "name\tnote\texpected\ttrue_duration_s\n"
PROMISED = [
    *("decodable", "right", "refusable", "accepted", "wrong", "accepted_names"),
    *("header_ms", "scan_ms", "fork_ms", "mutagen_ms", "pyav_header_ms", "fork_cpu_ms"),
    *("mutagen_right", "pyav_right", "sources", "refusals", "rounds"),
    *("probe_limit_h", "survey_limit_h"),
]


def listed(folder: Path, *lines: str) -> Path:
    return write(folder, "list.tsv", ("# a remark\n" + COLUMNS + "\n".join(lines) + "\n").encode())


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of two files as they are said to be, and four that are not."""
    tmp_path = tmp_path_factory.mktemp("listed")
    write(tmp_path, "звонок №1\u2028.wav", wav(tone(4)))
    write(tmp_path, "piped.flac", encoded(noise(3), "flac", "flac"))
    write(tmp_path, "said to be longer.wav", mulaw_wav(tone(4, rate=8_000)))
    write(tmp_path, "letter.mp3", b"Dear customer, " * 99)
    write(tmp_path, "sound after all.wav", wav(tone(2)))
    write(tmp_path, "either.wav", wav(tone(2)))
    rows = read_rows(
        listed(
            tmp_path,
            "звонок №1\u2028.wav\t\tok\t4.0",
            'piped.flac\t"quoted\tpartial\t3.0',
            "said to be longer.wav\t\tok\t5.0",
            "letter.mp3\t\treject\t",
            "letter.mp3\t\tok\t60",
            "",
            "sound after all.wav\t\treject\tunknown",
            "either.wav\t\treject_or_recover\t2.0",
        )
    )
    return measured(rows, rounds=1)


def test_the_report_says_what_is_right_wrong_and_accepted(report: dict[str, Any]) -> None:
    assert list(report) == PROMISED
    assert (report["decodable"], report["right"]) == (4, 2)
    assert report["wrong"] == [
        {"name": "said to be longer.wav", "true_s": 5.0, "found": 4.0},
        {"name": "letter.mp3", "true_s": 60.0, "found": "not_audio"},
    ]
    assert (report["refusable"], report["accepted"]) == (2, 1)
    assert report["accepted_names"] == ["sound after all.wav"]
    assert report["mutagen_right"] == report["pyav_right"] == 2
    assert report["sources"] == {"header": 4, "scan": 1}
    assert report["refusals"] == {"not_audio": 2}  # it is listed twice


def test_every_way_to_a_length_is_timed(report: dict[str, Any]) -> None:
    for name in ("header_ms", "scan_ms", "fork_cpu_ms", "mutagen_ms", "pyav_header_ms"):
        assert 0 < report[name] < 10_000, name
    # the header path is looked at in this process: it cannot cost what a process of its own does
    assert report["header_ms"] < report["fork_ms"]


def test_where_no_file_goes_a_way_its_time_is_told_as_none(tmp_path: Path) -> None:
    write(tmp_path, "letter.mp3", b"Dear customer, " * 99)
    report = measured(read_rows(listed(tmp_path, "letter.mp3\t\treject\t")), rounds=1)
    assert [report[name] for name in ("header_ms", "scan_ms", "fork_ms")] == [None] * 3
    assert (report["decodable"], report["accepted"]) == (0, 0)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "lists no file"),
        (b"# only a remark\n", "lists no file"),
        (COLUMNS.encode(), "lists no file"),
        (b"name\texpected\nx.wav\tok\n", "no column 'true_duration_s'"),
        (b"\xff\xfename", "not UTF-8"),
        ((COLUMNS + "gone.wav\t\tok\t1\n").encode(), "line 2: there is no file 'gone.wav'"),
        ((COLUMNS + "\t\tok\t1\n").encode(), "line 2: the name is empty"),
        ((COLUMNS + "x\0.wav\t\tok\t1\n").encode(), "line 2: there is no file"),
        ((COLUMNS + "x.wav\tok\n").encode(), "line 2: 2 columns, but"),
        ((COLUMNS + "x.wav\t\tfine\t1\n").encode(), "line 2: expected is one of"),
        ((COLUMNS + "x.wav\t\tok\t\n").encode(), "line 2: true_duration_s is a number"),
        ((COLUMNS + "x.wav\t\tok\tnan\n").encode(), "line 2: true_duration_s is a number"),
        ((COLUMNS + "x.wav\t\tok\t-1\n").encode(), "line 2: true_duration_s is a number"),
    ],
)
def test_a_list_that_cannot_be_meant_is_refused_by_its_line(
    tmp_path: Path, content: bytes, told: str
) -> None:
    write(tmp_path, "x.wav", wav(tone(1)))
    with pytest.raises(BadRequest, match=told):
        read_rows(write(tmp_path, "list.tsv", content))


def test_the_command_prints_json_alone_and_ends_with_1_where_it_can_do_nothing(
    tmp_path: Path,
) -> None:
    def run(manifest: Path) -> subprocess.CompletedProcess[str]:
        words = ["bench", "probe", "--json", "--rounds", "1", "--manifest", str(manifest)]
        command = [sys.executable, "-c", "from pipeline.cli.commands import main; main()", *words]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    write(tmp_path, "a.wav", wav(tone(1)))
    ran = run(listed(tmp_path, "a.wav\t\tok\t1.0"))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.stdout)["right"] == 1
    ran = run(tmp_path / "none.tsv")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.splitlines() == [
        f"fairscribe bench probe: There is no manifest {tmp_path / 'none.tsv'}."
    ]
