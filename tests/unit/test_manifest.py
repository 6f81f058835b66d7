"""A table of recordings: what is read of it, and that a broken row costs itself alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.cli.asked import read_asked, read_pairs
from pipeline.cli.collect import read_list
from pipeline.cli.manifest import LINES_A_ROW, read_manifest
from pipeline.errors import BadRequest


def manifest(folder: Path, text: str | bytes, files: tuple[str, ...] = ("a.wav", "b.wav")) -> Path:
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    path = folder / "calls.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_each_row_is_a_recording_with_what_is_asked_of_it(tmp_path: Path) -> None:
    text = (
        "file,language,speakers,task,duration_hint_s,agent,note\n"
        'a.wav,es,"agent, customer",translate,31.5,7,"said ""hi"",\ntwice"\n'
        "sub/c.wav,,,,,,\n"
        "\n"
        "https://calls.example/x/y.wav?k=v,auto,,,,8,\n"
    )
    found, lost = read_manifest(manifest(tmp_path, text, ("a.wav", "sub/c.wav")))

    assert lost == []
    assert [(one.name, one.line) for one in found] == [("a.wav", 2), ("sub/c.wav", 4), ("y.wav", 6)]
    first, second, third = (one.asked for one in found)
    assert (first.language, first.speakers, first.task) == ("es", "agent,customer", "translate")
    assert first.metadata == {"agent": "7", "note": 'said "hi",\ntwice'}
    assert first.fields("b")["duration_hint_s"] == "31.5"
    assert (second.language, second.metadata, second.duration_hint_s) == (None, {}, None)
    assert "duration_hint_s" not in second.fields("b")
    assert (third.language, found[2].path) == ("auto", None)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("separator", [b",", b";", b"\t"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_separators_marks_and_line_ends_of_any_spreadsheet_are_read(
    tmp_path: Path, mark: bytes, separator: bytes, end: bytes
) -> None:
    rows = [[b"File", b"Kunde"], [b"a.wav", "Müller, Köln; KG".encode()], [b"b.wav", b""]]
    lines = [separator.join(b'"%s"' % cell for cell in row) for row in rows]
    found, lost = read_manifest(manifest(tmp_path, mark + end.join(lines)))
    assert (len(found), lost) == (2, [])
    assert found[0].asked.metadata == {"Kunde": "Müller, Köln; KG"}


BROKEN = [
    ("gone.wav,en", "there is no such file"),
    ("a.wav,klingon", "'klingon' is no language code"),
    (",en", "it names no file"),
    ("a.wav", "it has 1 fields where line 1 has 2"),
    ("a.wav,en,more", "it has 3 fields"),
    ('"a.wav,en', "a quote is opened and not closed"),
    ('"a.wav"x,en', "bad quoting"),
    (b"a\xff.wav,en", "it is not UTF-8"),
    ("a\0.wav,en", "that cannot be a path"),
    (".,en", "it is a folder"),
    ("x" * 5000 + ",en", "that cannot be a path"),
    ("y" * 200_000 + ",en", "bad quoting"),
]


@pytest.mark.parametrize(("row", "reason"), BROKEN, ids=lambda part: str(part)[:20])
def test_a_broken_row_is_named_by_its_line_and_the_others_are_read(
    tmp_path: Path, row: str | bytes, reason: str
) -> None:
    raw = row.encode() if isinstance(row, str) else row
    path = manifest(tmp_path, b"file,language\na.wav,en\n" + raw + b'\n"b.wav","en"\na.wav,es\n')

    found, (one,) = read_manifest(path)

    assert [(f.given, f.line, f.nth) for f in found] == [
        ("a.wav", 2, 0),
        ("b.wav", 4, 0),
        ("a.wav", 5, 1),
    ]
    assert one.line == 3
    assert reason in one.reason


def test_a_quote_that_is_never_closed_does_not_swallow_what_follows(tmp_path: Path) -> None:
    text = 'file\n"a.wav\n' + "b.wav\n" * (3 * LINES_A_ROW)
    found, (one,) = read_manifest(manifest(tmp_path, text))
    assert (len(found), one.line) == (3 * LINES_A_ROW, 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "names no column"),
        (b"a.wav,en\n", "names no column"),
        (b"file,x,x\n", "names the column 'x' twice"),
        ("file\na.wav\n".encode("utf-16"), "save it as UTF-8"),
    ],
)
def test_a_table_without_a_usable_first_line_is_refused(
    tmp_path: Path, text: bytes, said: str
) -> None:
    with pytest.raises(BadRequest, match=said):
        read_manifest(manifest(tmp_path, text))


def test_a_table_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="No such file"):
        read_manifest(tmp_path / "none.csv")


def test_a_row_names_a_file_or_a_url_and_only_http(tmp_path: Path) -> None:
    text = "file,url\na.wav,\n,http://h/b.wav\na.wav,http://h/b.wav\n,ftp://h/c.wav\n"
    found, lost = read_manifest(manifest(tmp_path, text))
    assert [one.given for one in found] == ["a.wav", "http://h/b.wav"]
    assert [(one.line, one.reason) for one in lost] == [
        (4, "it names a file and a url"),
        (5, "'ftp://h/c.wav' is no http or https URL"),
    ]


def test_the_way_to_a_file_is_its_name_only_below_the_table(tmp_path: Path) -> None:
    below = tmp_path / "tables"
    below.mkdir()
    text = f"file\n../a.wav\n{tmp_path}/b.wav\n"
    manifest(tmp_path, "file\n")
    found, lost = read_manifest(manifest(below, text, ()))
    assert (lost, [one.name for one in found]) == ([], ["a.wav", "b.wav"])


@pytest.mark.parametrize(
    ("name", "word"),
    [
        *(("language", "e"), ("language", "EN"), ("task", "sing")),
        *(("speakers", "agent"), ("speakers", "a,b,c,d,e,f,g,h,i"), ("vocabulary", "x" * 1001)),
        ("raw_format", "gsm@16000"),
        *(("deadline", "soon"), ("wait_budget_s", "1h"), ("duration_hint_s", "1:30")),
    ],
)
def test_what_cannot_be_asked_is_refused(name: str, word: str) -> None:
    with pytest.raises(BadRequest, match=f"{name}|{word}"):
        read_asked({name: word}, {})


def test_a_row_has_its_own_wishes(tmp_path: Path) -> None:
    (found,), lost = read_manifest(
        manifest(
            tmp_path,
            "file,deadline,wait_budget_s,raw_format\na.wav,2026-03-02T12:00+01:00,90,vox@6000\n",
            ("a.wav",),
        )
    )
    assert lost == []
    fields = found.asked.fields("monday")
    assert fields["deadline"] == "2026-03-02T11:00:00+00:00"
    assert fields["wait_budget_s"] == "90"
    assert fields["raw_format"] == "vox@6000"


def test_a_row_joins_a_call_and_brings_its_own_words(tmp_path: Path) -> None:
    table = (
        "file,vocabulary,call_id,leg,leg_offset_s\n"
        'a.wav,"Müller, Fairscribe",17,agent,\n'
        'b.wav,,17,customer,"1,5"\n'
        "c.wav,,17,customer,soon\n"
    )
    (first, second), (broken,) = read_manifest(
        manifest(tmp_path, table, ("a.wav", "b.wav", "c.wav"))
    )
    assert first.asked.fields("x")["vocabulary"] == "Müller, Fairscribe"
    assert first.asked.metadata == {"call_id": "17", "leg": "agent"}
    assert second.asked.metadata["leg_offset_s"] == "1,5"
    assert (broken.line, broken.path) == (4, "c.wav")
    assert "leg_offset_s" in broken.reason


@pytest.mark.parametrize("pair", ["agent", "=7", ""])
def test_metadata_is_key_and_value(pair: str) -> None:
    with pytest.raises(BadRequest, match="key=value"):
        read_pairs([pair])


def test_a_list_may_hold_names_with_line_ends_when_nul_ends_them() -> None:
    assert read_list("ä.wav\n".encode(), null=False) == ["ä.wav"]
    assert read_list(b"a\n.wav\0", null=True) == ["a\n.wav"]
