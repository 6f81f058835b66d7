"""The legs of one call, each a recording of its own, joined to one transcript by time.

Many recorders write a file a side. Its sender says in the metadata which call it belongs to
(`call_id`), whose side it is (`leg`) and how many seconds after the call's start it begins
(`leg_offset_s`); each is a job of its own in the order of work.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.errors import BadRequest
from pipeline.transcript.subtitles import fold

CALL_ID_LIMIT = 200
"""Longest id of a call, characters."""

LABEL_LIMIT = 40
"""Longest label of a leg, characters."""

OFFSET_LIMIT_S = 7 * 86_400
"""A leg that begins later is a mistake: of milliseconds for seconds, or a time of day."""

UNNAMED = "leg"

REASON = "each leg of the call is a recording of its own"


@dataclass(frozen=True)
class Place:
    """Where a recording belongs."""

    call_id: str
    label: str
    """Whose side it is."""
    offset_s: float
    """Seconds from the call's start to the recording's."""
    named: bool = True
    """False: nobody said whose side it is; `label` comes of the file's name."""


@dataclass(frozen=True)
class Leg:
    """A recording of a call, and what is heard of it."""

    job_id: str
    place: Place
    body: Mapping[str, Any]
    """Its transcript's document, whole or so far."""


def read_place(metadata: Mapping[str, Any], file_name: str = "") -> Place | None:
    """What the metadata says of a call; None where it names none.

    Raises `BadRequest` for what cannot be meant. A number may be a text: tables know no other.

    >>> read_place({"call_id": "7", "leg_offset_s": "1.5"}, "agent.wav")
    Place(call_id='7', label='agent', offset_s=1.5, named=False)
    """
    call_id, label = metadata.get("call_id"), metadata.get("leg")
    if call_id is None:
        return None
    if not isinstance(call_id, str) or not 1 <= len(call_id) <= CALL_ID_LIMIT:
        raise BadRequest(f"call_id is a text of 1 to {CALL_ID_LIMIT} characters.")
    if call_id in (".", "..") or call_id.endswith("/transcript"):
        raise BadRequest(f"A call_id cannot be {call_id}: no address could name it.")
    if any(unicodedata.category(letter) == "Cc" for letter in call_id):
        raise BadRequest("call_id holds a control character, which no address could name.")
    if label is not None and not _is_label(label):
        raise BadRequest(
            f"leg is a text of 1 to {LABEL_LIMIT} characters without control characters."
        )
    name = label.strip() if label is not None else _stem(file_name)
    return Place(call_id, name, _offset_s(metadata.get("leg_offset_s")), label is not None)


def kept_place(metadata: Mapping[str, Any], file_name: str) -> Place:
    """The same of a job that was accepted, perhaps before anybody looked at its metadata: what
    cannot be meant counts as not said.
    """
    try:
        place = read_place(metadata, file_name)
    except BadRequest:
        place = None
    return place or Place(str(metadata.get("call_id", "")), _stem(file_name), 0.0, False)


def _is_label(given: Any) -> bool:
    return isinstance(given, str) and 1 <= len(given.strip()) <= LABEL_LIMIT and given.isprintable()


def _stem(file_name: str) -> str:
    name = re.split(r"[/\\]", file_name)[-1]
    # nothing that turns the direction of what follows, or cannot be seen
    shown = "".join(x for x in name.rpartition(".")[0] or name if unicodedata.category(x) != "Cf")
    return fold(shown)[:LABEL_LIMIT].strip() or UNNAMED


def _offset_s(given: Any) -> float:
    if given is None:
        return 0.0
    number = given
    if isinstance(given, str):
        try:
            number = float(given.strip().replace(",", "."))
        except ValueError:
            number = math.nan
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if not is_number or not 0 <= number <= OFFSET_LIMIT_S:
        raise BadRequest(f"leg_offset_s is a number of seconds, 0 to {OFFSET_LIMIT_S:,}.")
    return float(number)


def distinct(places: Sequence[Place]) -> list[Place]:
    """The same places, those nobody named so labelled that no two of them are alike.

    >>> [place.label for place in distinct([Place("1", "call", 0.0, named=False)] * 2)]
    ['call', 'call 2']
    """
    seen = {place.label for place in places if place.named}
    made = []
    for place in places:
        label, number = place.label, 1
        while not place.named and label in seen:
            number += 1
            label = f"{place.label} {number}"
        seen.add(label)
        made.append(Place(place.call_id, label, place.offset_s, place.named))
    return made


def in_order(legs: Iterable[Leg]) -> list[Leg]:
    """Legs as they are numbered: by their offset, then their label, then the age of their jobs."""
    return sorted(legs, key=lambda leg: (leg.place.offset_s, leg.place.label, leg.job_id))


def join(call_id: str, legs: Iterable[Leg]) -> dict[str, Any]:
    """The call's transcript: the document of a recording, of all `legs` (at least one).

    Channels are numbered through all legs, in their order. A leg's words are its label's; of a leg
    with several sides each is `label/side`. `lengths` are those of all legs together, `duration_s`
    is that of the call. The language is the one of most speech.
    """
    ordered = in_order(legs)
    channels: list[dict[str, Any]] = []
    segments: list[dict[str, Any]] = []
    for leg in ordered:
        names = _names(leg)
        segments += _moved(leg, names, len(channels))
        channels += [
            {**channel, "speaker": names[number]}
            for number, channel in enumerate(_channels(leg.body))
        ]
    segments.sort(key=lambda said: (said["start_s"], said["channel"]))
    return {
        "call_id": call_id,
        "text": " ".join(said["text"] for said in segments),
        "language": _language(ordered),
        "duration_s": round(max(leg.place.offset_s + leg.body["duration_s"] for leg in ordered), 3),
        "segments": segments,
        "no_speech": all(leg.body["no_speech"] for leg in ordered),
        "channels": channels,
        "channel_reason": REASON,
        "speakers_separated": len(channels) > 1,
        "lengths": _lengths(ordered),
        "legs": [_told(leg) for leg in ordered],
        "provenance": {"options": _shared_options(ordered)},
    }


def _channels(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The channels of a document; one written before channels were told has what its words tell."""
    if told := body.get("channels"):
        return list(told)
    speakers = {said["channel"]: said["speaker"] for said in body["segments"]}
    return [
        {
            "label": speakers.get(n) or f"channel {n + 1}",
            "speaker": speakers.get(n),
            "language": body["language"],
        }
        for n in range(max(speakers, default=0) + 1)
    ]


def _names(leg: Leg) -> list[str]:
    """The speaker of each channel of a leg."""
    label, channels = leg.place.label, _channels(leg.body)
    if len(channels) == 1:
        return [label]
    return [f"{label}/{channel['speaker'] or channel['label']}" for channel in channels]


def _moved(leg: Leg, names: Sequence[str], first: int) -> list[dict[str, Any]]:
    """Its segments in the call's time, on the call's channels from `first`."""
    offset_s = leg.place.offset_s
    return [
        {
            **said,
            "start_s": round(said["start_s"] + offset_s, 3),
            "end_s": round(said["end_s"] + offset_s, 3),
            "channel": first + said["channel"],
            "speaker": names[said["channel"]],
        }
        for said in leg.body["segments"]
    ]


def _language(legs: Sequence[Leg]) -> str:
    spoken: dict[str, float] = {}
    for leg in legs:
        lengths = leg.body.get("lengths") or {"speech_s": leg.body["duration_s"]}
        language = leg.body["language"]
        spoken[language] = spoken.get(language, 0.0) + lengths["speech_s"]
    return max(spoken, key=spoken.__getitem__)


def _lengths(legs: Sequence[Leg]) -> dict[str, float | None] | None:
    """The sums; None where a leg has none, and of one measure where a leg was not measured so."""
    told = [leg.body.get("lengths") for leg in legs]
    if not all(told):
        return None
    sums: dict[str, float | None] = {}
    for name in ("probed_s", "decoded_s", "speech_s", "transcribed_s"):
        values = [lengths[name] for lengths in told if lengths]
        sums[name] = None if None in values else round(sum(values), 3)
    return sums


def _shared_options(legs: Sequence[Leg]) -> dict[str, Any]:
    """What was asked of every leg alike."""
    asked = [(leg.body.get("provenance") or {}).get("options") or {} for leg in legs]
    return {
        name: value
        for name, value in asked[0].items()
        if all(name in other and other[name] == value for other in asked)
    }


def _told(leg: Leg) -> dict[str, Any]:
    return {
        "job_id": leg.job_id,
        "leg": leg.place.label,
        "leg_offset_s": leg.place.offset_s,
        "duration_s": leg.body["duration_s"],
        "language": leg.body["language"],
        "channel_reason": leg.body.get("channel_reason", ""),
        "provenance": leg.body.get("provenance") or {},
    }
