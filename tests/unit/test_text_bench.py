"""The measurement of words counts what it says it counts."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from bench.kept import Kept, key_of
from bench.ours import Answer, Surveyed, cuts_of, hear_all
from bench.report import report
from bench.slips import Tally, by_place, interval, slips, tally, timed, together, words_of
from bench.talks import gapless, longest_pause_s
from bench.text_table import told
from bench.truths import Said, Truth, read_manifest, said_in
from pipeline.engine import FirstToken, Prepared
from pipeline.errors import BadRequest
from pipeline.recording import Piece, Plan, Segment, Window
from workers.echo_engine import EchoEngine

ROWS = "# made up\nname\tlength\ttranscript\n"


def manifest(folder: Path, text: str | bytes) -> Path:
    file = folder / "set.tsv"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    for name in ("one.wav", "-rf --help.wav", "звонок ☎.mp3"):
        (folder / name).write_bytes(b"\0")
    return file


# -- what was said --------------------------------------------------------------------------


def test_rows_are_read_by_the_names_of_their_columns_and_those_without_words_told(
    tmp_path: Path,
) -> None:
    rows = ROWS + "one.wav\t3\tHello, you.\n\n# no row\n-rf --help.wav\t1\t\n"
    rows += "звонок ☎.mp3\t2\t[L] Здравствуйте. [R] Да.\none.wav\t9\t(music)\n"
    rows += "one.wav\t9\tIt begins so ...\n"
    truths, skipped = read_manifest(manifest(tmp_path, rows))
    assert [(truth.name, truth.text) for truth in truths] == [
        ("one.wav", "Hello, you."),
        ("звонок ☎.mp3", "Здравствуйте. Да."),
    ]
    assert [said.side for said in truths[1].said] == ["left", "right"]
    assert [(row.name, row.why) for row in skipped] == [
        ("-rf --help.wav", "no transcript"),
        ("one.wav", "a remark and no words"),
        ("one.wav", "the transcript says that it goes on"),
    ]


def test_a_file_of_another_system_reads_the_same(tmp_path: Path) -> None:
    plain = "name\ttranscript\tlanguage\none.wav\tHallo.\tde\n"
    for text in (plain, "\ufeff" + plain.replace("\n", "\r\n")):
        (truth,), _ = read_manifest(manifest(tmp_path, text))
        assert (truth.text, truth.language) == ("Hallo.", "de")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "set.tsv has no row with a transcript: there is nothing to compare."),
        (ROWS, "set.tsv has no row with a transcript: there is nothing to compare."),
        (ROWS + "one.wav\t1\t \n", "set.tsv has no row with a transcript: there is nothing to"),
        ("name\twords\none.wav\tHello\n", "set.tsv has no column 'transcript'; its first line"),
        ("name,transcript\none.wav,Hello\n", "set.tsv has no column 'name'; its first line"),
        ("name\ttranscript\tname\n", "set.tsv names the column 'name' twice."),
        (ROWS + "one.wav\tHello\n", "set.tsv, line 3: 2 columns, but the first line names 3."),
        (ROWS + "one.wav\t1\tHello\tyou\n", "set.tsv, line 3: 4 columns, but the first"),
        (ROWS + "two.wav\t1\tHello\n", "set.tsv, line 3: there is no file 'two.wav' beside it."),
        (ROWS + "a\0b\t1\tHello\n", "set.tsv, line 3: "),
        (ROWS + ".\t1\tHello\n", "set.tsv, line 3: there is no file '.' beside it."),
        (ROWS + "\t1\tHello\n", "set.tsv, line 3: the name is empty."),
        (ROWS.encode() + b"one.wav\t1\t\xff\n", "set.tsv is not UTF-8 (byte "),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused_in_a_sentence(
    tmp_path: Path, text: str | bytes, sentence: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        read_manifest(manifest(tmp_path, text))
    assert refused.value.message.startswith(sentence)


def test_a_manifest_that_is_not_there_or_no_file_is_refused(tmp_path: Path) -> None:
    for place, sentence in ((tmp_path / "none", "There is no"), (tmp_path, "The manifest")):
        with pytest.raises(BadRequest, match=sentence):
            read_manifest(place)


# -- counting -------------------------------------------------------------------------------


def test_words_are_compared_in_whispers_own_normal_form() -> None:
    assert words_of("It's four four seven two, um, OK?", "en") == ["it", "is", "4472", "ok"]
    assert words_of("Größe, Straße!", "de") == ["größe", "straße"]


@pytest.mark.parametrize(
    ("heard", "lost", "added", "other", "doubled"),
    [
        ("a b c d e f", 0, 0, 0, 0),
        ("a b e f", 2, 0, 0, 0),
        ("a b c c d e f", 0, 1, 0, 1),  # heard by both sides of a cut
        ("a b c x d e f", 0, 1, 0, 0),
        ("a b x d e f", 0, 0, 1, 0),
        ("", 6, 0, 0, 0),
        ("a x y d e f", 0, 0, 2, 0),
    ],
)
def test_wrong_words_are_lost_added_or_other(
    heard: str, lost: int, added: int, other: int, doubled: int
) -> None:
    said = ["a", "b", "c", "d", "e", "f"]
    assert tally(6, slips(said, heard.split())) == Tally(6, lost, added, other, doubled)


def test_where_nothing_was_said_every_word_is_added() -> None:
    assert tally(0, slips([], ["you", "thank"])) == Tally(0, 0, 2, 0)
    assert Tally(0, 0, 2, 0).rate == 0.0


def test_wrong_words_are_told_by_how_near_a_cut_they_are() -> None:
    # Given ten words, one a second from 0.5 s, a cut at 8 s, "b" lost at 1.5 s, "h" at 7.5 s, and
    # "i" (8.5 s) heard twice
    letters = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]
    said = [
        word for n, one in enumerate(letters) for word in timed([Said(one, None, n, n + 1)], "")
    ]
    wrong = slips(letters, ["a", "c", "d", "e", "f", "g", "i", "i", "j"])
    # Then what lies within 3 s of it is at the cut: 5.5 to 9.5 s
    near, far = by_place(said, wrong, [8.0])
    assert (near.words, far.words) == (5, 5)
    assert near.wrong == 1  # the nearest alignment takes "h" for "i"
    assert (far.lost, far.wrong) == (1, 1)


def test_words_whose_time_nobody_knows_are_at_no_cut() -> None:
    near, far = by_place(timed([Said("a b")], "de"), slips(["a", "b"], ["a"]), [0.0])
    assert (near, far) == (Tally(), Tally(2, 1))


def test_the_interval_is_the_same_each_time_and_of_one_recording_a_point() -> None:
    tallies = [Tally(100, n) for n in range(20)]
    assert interval(tallies) == interval(tallies)
    low, high = interval(tallies)
    # the mean of twenty draws of 0..19 %, deviation 5.8/sqrt(20) = 1.29 %: 9.5 +- 2.53 %
    assert (low, high) == (pytest.approx(0.0697, abs=0.002), pytest.approx(0.1203, abs=0.002))
    assert interval(tallies[3:4]) == (0.03, 0.03)


def test_the_difference_is_taken_of_the_same_recordings() -> None:
    # Given recordings of very different difficulty, each one word of a hundred worse than by hand
    ours, theirs = (
        [Tally(100, n + 1) for n in range(0, 60, 3)],
        [Tally(100, n) for n in range(0, 60, 3)],
    )
    # Then that is known for certain, though each rate by itself is not
    assert interval(ours, theirs) == (0.01, 0.01)
    assert interval(ours)[1] - interval(ours)[0] > 0.1


def test_one_text_recorded_often_is_drawn_as_one() -> None:
    rows = [("a", Tally(10, 1)), ("b", Tally(10)), ("a", Tally(10, 2))]
    assert together(rows) == [Tally(20, 3), Tally(10)]


# -- recordings made on the spot ------------------------------------------------------------


def test_nobody_pauses_in_gapless_speech_and_its_words_lie_end_to_end(tmp_path: Path) -> None:
    (talk,) = gapless(tmp_path, files=1, length_s=30.0)
    assert longest_pause_s(talk.path) <= 0.09
    assert all(one.end_s == next_.start_s for one, next_ in pairwise(talk.said))


# -- cuts and the report --------------------------------------------------------------------


def window(
    index: int, channel: int, start_s: float, length_s: float, over_s: float = 0.0
) -> Window:
    piece = Piece(0.0, start_s, length_s)
    return Window(index, channel, 0, int(length_s * 16_000), (piece,), over_s)


def test_a_cut_is_where_two_windows_of_a_channel_meet_overlap_or_leave_a_pause() -> None:
    assert cuts_of([window(0, 0, 0.0, 30.0), window(1, 0, 30.0, 30.0)]) == (30.0,)
    assert cuts_of([window(0, 0, 0.0, 30.0), window(1, 0, 27.0, 30.0, 3.0)]) == (28.5,)
    assert cuts_of([window(0, 0, 0.0, 25.0), window(1, 0, 40.0, 30.0)]) == (25.0, 40.0)
    assert cuts_of([window(0, 0, 0.0, 30.0), window(1, 1, 5.0, 25.0)]) == ()


class Noting(EchoEngine):
    """Thinks of channels what it was given, in turn, and notes the language of each window."""

    def __init__(self, *thinks: FirstToken) -> None:
        super().__init__(fixed_s=0.0, per_second_s=0.0)
        self.thinks, self.heard_in = list(thinks), list[str]()

    async def first_token(self, pcm: bytes) -> FirstToken:
        return self.thinks.pop(0)

    async def prepare(
        self, pcm: bytes, *, language: str, task: str = "transcribe", vocabulary: str = ""
    ) -> Prepared:
        self.heard_in.append(language)
        return await super().prepare(pcm, language=language)


@pytest.mark.parametrize(
    ("right_s", "right", "heard_in"),
    [
        (10.0, FirstToken("de", 0.9, 0.0), ["en", "de"]),
        (10.0, FirstToken("cy", 0.2, 0.0), ["en", "en"]),  # not sure: the call's
        (1.0, None, ["en", "en"]),  # says too little to be asked
    ],
)
def test_each_side_is_heard_in_the_language_a_worker_would_hear_it_in(
    right_s: float, right: FirstToken | None, heard_in: list[str]
) -> None:
    windows = (window(0, 0, 0.0, 20.0), window(1, 1, 20.0, right_s))
    plan = Plan(30.0, 30.0, ("left", "right"), "", windows)
    call = Surveyed(Truth("call", Path("x"), said_in("Hello.")), plan, bytes(2 * 20 * 16_000))
    engine = Noting(*[FirstToken("en", 0.9, 0.0), right][: 2 if right else 1])

    async def run() -> list[Answer]:
        await engine.start()
        return await hear_all(engine, [call])

    (answer,) = asyncio.run(run())
    assert sorted(engine.heard_in) == sorted(heard_in)
    assert [one.language for one in answer.languages] == ["en", right.language if right else ""]


def heard(text: str, *more: str) -> Answer:
    texts = (text, *more)
    segments = tuple(Segment(n, n + 1, n, None, one, None) for n, one in enumerate(texts))
    labels = ("mono",) if not more else ("left", "right")
    first = tuple(FirstToken("en", 0.9, 0.0) for _ in texts)
    return Answer(segments, labels, first, windows=len(texts), seconds=1.0)


def sound(said: str, duration_s: float, channels: tuple[str, ...] = ("mono",)) -> Surveyed:
    plan = Plan(duration_s, duration_s, channels, "", (window(0, 0, 0.0, 10.0),))
    return Surveyed(Truth(said[:3], Path("x"), said_in(said)), plan)


def test_the_report_holds_what_is_promised_and_counts_a_refused_file_as_unheard() -> None:
    sides = "[L] Good day to you. [R] Hello."
    refused = Surveyed(
        Truth("bad", Path("x"), said_in("fine words")), None, refused="not_audio: No."
    )
    sounds = [sound("a fine day", 31.0), sound(sides, 29.0, ("left", "right")), refused]
    ours = [heard("A fine day."), heard("Good day to you", "Hello"), Answer()]
    by_hand = [heard("A wine day."), heard("Good day you", "Hello"), Answer()]
    found = report(sounds, ours, by_hand, None, timed=False)
    assert (found["files"], found["words"]) == (3, 10)
    assert (found["wer"], found["wer_by_hand"]) == (0.2, 0.4)
    assert (found["windows"], found["windows_fixed"]) == (3, 2 + 2)
    assert found["refused"] == {"bad": "not_audio: No."}
    assert [row["ours"]["lost"] for row in found["rows"]] == [0, 0, 2]
    assert found["interval"]["difference"][0] < 0 <= found["interval"]["difference"][1]
    more = {"model": "m", "dtype": "float32", "by_hand": "somebody"}
    assert "refused: bad: not_audio: No." in told(found | more)


def test_without_a_comparison_the_report_says_nothing_of_one() -> None:
    found = report([sound("a fine day", 31.0)], [heard("A fine day.")], None, None, timed=True)
    assert found["wer"] == 0.0
    assert found["wer_by_hand"] is found["difference"] is found["rows"][0]["by_hand"] is None
    assert found["cuts"]["by_hand_there"] is None
    more = {"model": "m", "dtype": "float32", "by_hand": None}
    assert not [line for line in told(found | more) if "by hand" in line]


# -- kept answers ---------------------------------------------------------------------------


def test_an_answer_by_hand_is_found_again_for_the_same_sound_and_nothing_else(
    tmp_path: Path,
) -> None:
    file = tmp_path / "kept.json"
    answer = Answer((Segment(0.0, 1.0, 0, None, "Grüße", None),), ("mono",), (), (1.5,), 1, 0.1)
    sound_of = np.zeros(9, np.float32)
    key = key_of([sound_of], ["tiny.en", None])
    Kept(file).put(key, answer)
    assert Kept(file).get(key) == answer
    for other in (key_of([sound_of + 1], ["tiny.en", None]), key_of([sound_of], ["base", None])):
        assert Kept(file).get(other) is None
    assert Kept(None).get(key) is None


@pytest.mark.parametrize("content", ["", "[1]", "no JSON", "3"])
def test_a_file_of_something_else_is_not_overwritten(tmp_path: Path, content: str) -> None:
    file = tmp_path / "kept.json"
    file.write_text(content)
    with pytest.raises(BadRequest, match="does not hold answers by hand"):
        Kept(file)
    assert file.read_text() == content
