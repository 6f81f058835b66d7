"""The legs of one call, joined by time."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import BadRequest
from pipeline.recording import Channel, Lengths, Segment, Transcript
from pipeline.transcript.formats import FORMATS
from pipeline.transcript.legs import (
    CALL_ID_LIMIT,
    OFFSET_LIMIT_S,
    Leg,
    Place,
    distinct,
    join,
    kept_place,
    read_place,
)


def body(
    *said: tuple[float, float, int, str],
    labels: tuple[str, ...] = ("mono",),
    language: str = "en",
    duration_s: float = 60.0,
    speech_s: float = 20.0,
    **options: Any,
) -> dict[str, Any]:
    """A transcript's document: (start, end, channel, words) of each segment."""
    sided = len(labels) > 1
    segments = tuple(Segment(s, e, n, labels[n] if sided else None, t, 0.9) for s, e, n, t in said)
    return Transcript(
        "id",
        " ".join(segment.text for segment in segments),
        language,
        duration_s,
        segments,
        no_speech=not said,
        channels=tuple(Channel(name, name if sided else None, language) for name in labels),
        lengths=Lengths(duration_s, duration_s, speech_s, speech_s),
        provenance={"model": "m", "options": options},
    ).to_json()


def leg(label: str, document: dict[str, Any], offset_s: float = 0.0, job_id: str = "a") -> Leg:
    return Leg(job_id, Place("7", label, offset_s), document)


AGENT = leg("agent", body((0.5, 1.5, 0, "Good morning."), (4.0, 5.0, 0, "Sure.")))
CUSTOMER = leg("customer", body((0.8, 2.0, 0, "Hello."), language="de", speech_s=9.0), 1.2, "b")


def lines(document: dict[str, Any]) -> list[tuple[float, float, int, str, str]]:
    return [
        (said["start_s"], said["end_s"], said["channel"], said["speaker"], said["text"])
        for said in document["segments"]
    ]


def test_the_words_of_both_legs_stand_in_the_order_they_were_said() -> None:
    document = join("7", [CUSTOMER, AGENT])
    assert lines(document) == [
        (0.5, 1.5, 0, "agent", "Good morning."),
        (2.0, 3.2, 1, "customer", "Hello."),
        (4.0, 5.0, 0, "agent", "Sure."),
    ]
    assert document["text"] == "Good morning. Hello. Sure."
    assert document["language"] == "en"  # 20 s of it against 9 of German
    assert document["duration_s"] == 61.2
    assert document["speakers_separated"]
    assert [channel["language"] for channel in document["channels"]] == ["en", "de"]
    assert document["lengths"] == {
        "probed_s": 120.0, "decoded_s": 120.0, "speech_s": 29.0, "transcribed_s": 29.0
    }  # fmt: skip
    assert [told["leg"] for told in document["legs"]] == ["agent", "customer"]


def test_a_leg_with_sides_of_its_own_has_a_channel_and_a_name_for_each() -> None:
    stereo = body((0.0, 1.0, 0, "One."), (1.0, 2.0, 1, "Two."), labels=("left", "right"))
    document = join("7", [leg("desk", stereo), leg("line", body((0.5, 1, 0, "Three.")), 1.0, "b")])
    assert [(n, who) for _, _, n, who, _ in lines(document)] == [
        (0, "desk/left"),
        (1, "desk/right"),
        (2, "line"),
    ]
    assert [channel["speaker"] for channel in document["channels"]] == [
        *("desk/left", "desk/right", "line")
    ]


def test_one_leg_of_one_channel_separates_no_speakers() -> None:
    document = join("7", [AGENT])
    assert not document["speakers_separated"]
    assert {who for _, _, _, who, _ in lines(document)} == {"agent"}


def test_a_leg_without_words_is_there_all_the_same() -> None:
    document = join("7", [AGENT, leg("customer", body(duration_s=90.0), 2.0, "b")])
    assert (document["no_speech"], document["duration_s"], len(document["channels"])) == (
        *(False, 92.0),
        2,
    )
    assert join("7", [leg("a", body()), leg("b", body(), 0, "b")])["no_speech"]


def test_what_was_asked_of_every_leg_alike_is_told_of_the_call() -> None:
    english = body((0, 1, 0, "Hi."), language="de", task="translate", vocabulary="a")
    other = body((0, 1, 0, "Hi."), language="de", task="translate", vocabulary="b")
    document = join("7", [leg("a", english), leg("b", other, 0.0, "b")])
    assert document["provenance"]["options"] == {"task": "translate"}
    assert '"language":"english"' in FORMATS["verbose_json"].write(document)


def test_transcripts_of_older_versions_are_joined_as_far_as_they_tell() -> None:
    old = body((0.0, 1.0, 0, "One."), (1.0, 2.0, 1, "Two."), labels=("left", "right"))
    for name in ("channels", "lengths", "channel_reason", "speakers_separated"):
        del old[name]
    document = join("7", [leg("desk", old), AGENT])
    assert document["lengths"] is None
    assert [channel["speaker"] for channel in document["channels"]] == [
        *("agent", "desk/left", "desk/right")
    ]


LABELS = st.text(
    st.characters(blacklist_categories=("Cc", "Cs", "Cn", "Co", "Zl", "Zp")),
    min_size=1,
    max_size=40,
)
SAID = st.tuples(st.floats(0, 100), st.floats(0, 9), st.integers(0, 1), st.text(max_size=20)).map(
    lambda said: (said[0], said[0] + said[1], said[2], said[3])
)
LEGS = st.lists(
    st.tuples(LABELS, st.floats(0, 1000), st.lists(SAID, max_size=4)), min_size=1, max_size=4
)


@given(LEGS, st.randoms(use_true_random=False))
def test_any_legs_in_any_order_make_one_file_whose_times_go_on(
    given_: list[tuple[str, float, list[Any]]], chance: random.Random
) -> None:
    legs = [
        leg(label, body(*sorted(said), labels=("left", "right")), offset_s, f"{n:03}")
        for n, (label, offset_s, said) in enumerate(given_)
    ]
    document = join("7", legs)
    chance.shuffle(legs)
    assert join("7", legs) == document, "the order they are found in is nothing"
    starts = [said["start_s"] for said in document["segments"]]
    assert starts == sorted(starts)
    assert len(starts) == sum(len(said) for _, _, said in given_), "nothing lost, nothing doubled"
    assert len(document["channels"]) == 2 * len(legs)
    assert all(said["channel"] < len(document["channels"]) for said in document["segments"])
    for known in FORMATS.values():
        known.write(document).encode("utf-8")


@pytest.mark.parametrize(
    ("metadata", "place"),
    [
        ({}, None),
        ({"call_id": None, "leg": "agent"}, None),
        ({"leg": 7, "leg_offset_s": "soon"}, None),  # of no call: the sender's own affair
        ({"call_id": "7"}, Place("7", "left side", 0.0, False)),
        ({"call_id": "a/b %", "leg": " agent "}, Place("a/b %", "agent", 0.0)),
        ({"call_id": "7", "leg": "a", "leg_offset_s": 2}, Place("7", "a", 2.0)),
        ({"call_id": "7", "leg": "a", "leg_offset_s": " 2,5 "}, Place("7", "a", 2.5)),
        ({"call_id": "7", "leg": None, "leg_offset_s": None}, Place("7", "left side", 0.0, False)),
    ],
)
def test_metadata_tells_the_call_the_leg_and_when_it_begins(
    metadata: dict[str, Any], place: Place | None
) -> None:
    assert read_place(metadata, "calls/left side.wav") == place


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            {"call_id": given}
            for given in (7, "", ".", "..", ["7"], "x" * (CALL_ID_LIMIT + 1), True)
        ),
        *({"call_id": given} for given in ("a/transcript", "a\nb", "a\x85")),
        *({"leg": given} for given in (7, "", "  ", ["a"], "x" * 41, "a\nb", "a\0", "\u202eab")),
        *({"leg_offset_s": given} for given in ("soon", "", "1:30", True, [1], {}, -0.1)),
        *({"leg_offset_s": given} for given in (OFFSET_LIMIT_S + 1, "inf", "nan", float("nan"))),
    ],
)
def test_what_cannot_be_meant_of_a_call_is_refused_and_read_as_unsaid_where_it_was_kept(
    wrong: dict[str, Any],
) -> None:
    metadata = {"call_id": "7", "leg": "agent", "leg_offset_s": 1.0, **wrong}
    with pytest.raises(BadRequest, match=next(iter(wrong))):
        read_place(metadata)
    kept = kept_place(metadata, "a.wav")
    assert (kept.label, kept.offset_s) == ("a", 0.0)


@pytest.mark.parametrize(
    ("file_name", "label"),
    [
        *(("agent.wav", "agent"), ("/calls/x\\y.tar.gz", "y.tar"), ("noending", "noending")),
        *(("", "leg"), (".wav", ".wav"), ("\u202egnp.wav", "gnp"), ("a\r\nb.wav", "a b")),
        *(("n" * 300 + ".wav", "n" * 40), ("\ud800.wav", "\ufffd"), ("Gespräch.mp3", "Gespräch")),
    ],
)
def test_a_leg_nobody_named_is_called_as_its_file(file_name: str, label: str) -> None:
    assert kept_place({"call_id": "7"}, file_name).label == label


def test_labels_nobody_gave_are_told_apart_and_those_given_stay() -> None:
    unnamed = [Place("7", name, 0.0, named=False) for name in ("call", "agent", "call", "call")]
    named = Place("7", "agent", 0.0)
    labels = [place.label for place in distinct([*unnamed, named, named])]
    assert labels == ["call", "agent 2", "call 2", "call 3", "agent", "agent"]
