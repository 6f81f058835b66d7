"""Names anybody may have chosen become paths that stay in their folder, on any disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.cli.file_names import Places, safe_path


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("call.wav", "call"),
        ("monday/call.2.wav", "monday/call.2"),
        ("../../../root/.ssh/authorized_keys", "root/_ssh/authorized_keys"),
        ("/etc/passwd", "etc/passwd"),
        ("C:\\Windows\\con.wav", "C_/Windows/_con"),
        ("aux/COM1.mp3", "_aux/_COM1"),
        ("\x1b[2J\n.wav", "_[2J_"),
        ("gnp\u202e3pm.wav", "gnp_3pm"),
        ("trailing. .wav", "trailing"),
        ("", "recording"),
        ("../..", "recording"),
        ("no ending", "no ending"),
        ("v1.2 of the whole call", "v1.2 of the whole call"),
        ("Grüße 🙂.wav", "Grüße 🙂"),
    ],
)
def test_a_name_becomes_a_path(name: str, path: str) -> None:
    assert str(safe_path(name)) == path


@given(st.lists(st.text(alphabet=st.characters(), max_size=400), max_size=30))
def test_every_path_can_be_written_stays_inside_and_is_its_own(names: list[str]) -> None:
    places = Places()
    paths = [places.place(name, ".txt") for name in names]
    for path in paths:
        steps = path.split("/")
        assert not Path(path).is_absolute()
        assert ".." not in steps
        assert all(step and not step.startswith(".") for step in steps)
        assert all(len(step.encode()) <= 255 for step in steps)
    assert len({path.casefold() for path in paths}) == len(paths)


def test_the_same_names_are_numbered_and_always_alike() -> None:
    names = ["call.wav", "call.mp3", "CALL.wav", "call-2.wav", "a/call.wav", "call.wav"]
    wanted = ["call.txt", "call-2.txt", "CALL-3.txt", "call-2-2.txt", "a/call.txt", "call-4.txt"]
    for _ in range(2):
        places = Places()
        assert [places.place(name, ".txt") for name in names] == wanted


def test_a_file_is_no_folder_on_the_way_of_another() -> None:
    places = Places()
    paths = [
        places.place(name, ".txt") for name in ("a.wav", "a.txt/b.wav", "c.txt/d.wav", "c.wav")
    ]
    assert paths == ["a.txt", "a.txt_b.txt", "c.txt/d.txt", "c-2.txt"]


def test_ten_thousand_of_one_name_are_numbered_at_once() -> None:
    places = Places()
    assert [places.place("call.wav", ".srt") for _ in range(10_000)][-1] == "call-10000.srt"
