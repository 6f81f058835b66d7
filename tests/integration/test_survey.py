"""A recording through the survey: both sides in true time, what is wrong in words, one artefact."""

from __future__ import annotations

import io
from collections.abc import Callable

import av
import numpy as np
import pytest

from pipeline.errors import LeaseLost
from pipeline.intake.prober import Prober
from pipeline.job import SURVEY, TRANSCRIBE, Ticket
from pipeline.parts import Parts
from pipeline.recording import Plan, Probe, Span, SurveyReport
from pipeline.steps.accept import Upload, accept
from pipeline.steps.survey import Packed, commit, pack, what_is_wrong
from pipeline.steps.tidy import tidy
from pipeline.store import jobs, partials, views
from pipeline.store.session import transaction
from tests.sounds import Samples, joined, sides, silence, voice, wav


def granted(parts: Parts, content: bytes, probed_s: float) -> Ticket:
    """A job probed as so long, in the hands of a survey."""
    job_id = accept(parts.store, parts.storage, Upload("call", [content]), 10**9).job_id
    found = Probe(probed_s, "header", False, "wav", "pcm_s16le", 16_000, 2)
    with transaction(parts.store) as c:
        jobs.keep_probe(c, job_id, found, 50)
        (ticket,) = jobs.grant(c, SURVEY, [job_id], "s@here", None)
    return ticket


def surveyed(
    parts: Parts, prober: Prober, content: bytes, probed_s: float
) -> tuple[Ticket, Packed]:
    ticket = granted(parts, content, probed_s)
    packed = pack(parts.storage, prober, ticket)
    commit(parts.store, parts.storage, parts.queues[TRANSCRIBE.name], ticket, packed, "en")
    return ticket, packed


def degraded(parts: Parts, ticket: Ticket) -> str | None:
    with transaction(parts.store) as c:
        view = views.view(c, ticket.job_id)
    assert view is not None
    return view.degraded


def artefacts(parts: Parts) -> list[str]:
    return [key for key, _ in parts.storage.keys("packed")]


def webm(left: Samples, right: Samples, heard: Callable[[float], bool]) -> bytes:
    """Two sides at 48 kHz, of which only the packets whose time is `heard` (s) are kept."""
    out = io.BytesIO()
    with av.open(out, "w", format="webm") as file:
        stream = file.add_stream("libopus", rate=48_000)
        stream.layout, stream.bit_rate = "stereo", 96_000
        frame = av.AudioFrame.from_ndarray(sides(left, right)[None], format="s16", layout="stereo")
        frame.sample_rate, frame.pts = 48_000, 0
        resampler = av.AudioResampler(stream.format, "stereo", 48_000, stream.frame_size or None)
        parts = [*resampler.resample(frame), *resampler.resample(None), None]
        for packet in [packet for part in parts for packet in stream.encode(part)]:
            assert packet.pts is not None
            if heard(float(packet.pts * packet.time_base)):
                file.mux(packet)
    return out.getvalue()


def spans_of(plan: Plan, channel: int) -> list[Span]:
    return [
        Span(piece.start_s, piece.start_s + piece.length_s)
        for window in plan.windows
        if window.channel == channel
        for piece in window.pieces
    ]


def test_both_sides_of_a_call_are_planned_in_true_time_over_a_gap(
    parts: Parts, prober: Prober
) -> None:
    # Given an agent at 1 s and 14 s, a customer at 5 s and 18 s, and nothing sent from 8.5 to 13
    def at(rate: int = 48_000, *starts: float, pitch_hz: float, seed: int) -> Samples:
        track = silence(22, rate)
        for start_s in starts:
            said = voice(3, rate, pitch_hz=pitch_hz, seed=seed)
            track[round(start_s * rate) :][: len(said)] = said
        return track

    left = at(48_000, 1, 14, pitch_hz=120, seed=1)
    right = at(48_000, 5, 18, pitch_hz=210, seed=2)
    content = webm(left, right, lambda time_s: not 8.5 < time_s < 13)
    ticket, packed = surveyed(parts, prober, content, 22.0)
    plan = packed.report.plan
    # Then each side is a channel, and its words lie where they were said
    assert plan.channels == ("left", "right")
    for channel, starts in ((0, (1, 14)), (1, (5, 18))):
        found = spans_of(plan, channel)
        assert [span.start_s for span in found] == pytest.approx(starts, abs=0.5)
        assert [span.end_s for span in found] == pytest.approx([s + 3 for s in starts], abs=0.5)
    assert plan.duration_s == pytest.approx(22, abs=0.1)
    assert degraded(parts, ticket) == "no sound for 4.5 s at 8.5 s was filled with silence"
    # And the artefact holds those very sounds: a window's pitch tells whose it is
    for window in plan.windows:
        heard = parts.storage.read_range(
            packed.artefact_key, window.first_sample * 2, window.sample_count * 2
        )
        assert len(heard) == window.sample_count * 2
        assert np.abs(np.frombuffer(heard, "<i2")).max() > 3_000


def test_a_sound_recorded_on_both_channels_is_packed_once(parts: Parts, prober: Prober) -> None:
    said = joined([silence(1), voice(4), silence(1)])
    late = np.concatenate((np.zeros(320, np.int16), said))[: len(said)]
    _, packed = surveyed(parts, prober, wav(sides(said, late), channels=2), 6.0)
    plan = packed.report.plan
    assert plan.channels == ("mono",)
    assert plan.channel_reason == "right repeats left 20 ms later"
    assert packed.report.channels == 2
    with open(parts.storage.open_fd(packed.artefact_key), "rb") as file:
        stored = len(file.read())
    assert stored == 2 * sum(window.sample_count for window in plan.windows)
    assert stored / 32_000 == pytest.approx(4.4, abs=0.4)


@pytest.mark.parametrize(
    ("decoded_s", "filled_s", "gaps", "longest", "damaged", "probed_s", "told"),
    [
        (10.0, 0.0, 0, None, 0, 10.0, None),
        (10.0, 0.0, 0, None, 0, None, None),
        (10.0, 0.0, 0, None, 2, 10.0, "2 of 500 packets of audio could not be decoded"),
        (8.8, 0.0, 0, None, 0, 18.3, "18.3 s were expected and 8.8 s could be decoded"),
        (18.3, 0.0, 0, None, 0, 8.8, "8.8 s were expected and 18.3 s could be decoded"),
        # apart by 4.9 s; apart by 9 %
        (10.0, 0.0, 0, None, 0, 14.9, None),
        (100.0, 0.0, 0, None, 0, 109.0, None),
        # the probe may have counted what plays, or only what is there
        (13.2, 5.0, 1, Span(5.0, 10.0), 0, 18.2,
         "no sound for 5.0 s at 5.0 s was filled with silence"),
        (13.2, 5.0, 1, Span(5.0, 10.0), 0, 13.2,
         "no sound for 5.0 s at 5.0 s was filled with silence"),
        (60.0, 12.4, 31, Span(5.0, 6.0), 0, 60.0,
         "no sound for 12.4 s at 31 places, the longest at 5.0 s, was filled with silence"),
        (60.0, 0.06, 3, Span(5.0, 5.02), 3, 60.0,
         "3 of 500 packets of audio could not be decoded"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_the_sound_is_said_in_words(
    decoded_s: float,
    filled_s: float,
    gaps: int,
    longest: Span | None,
    damaged: int,
    probed_s: float | None,
    told: str | None,
) -> None:
    plan = Plan(decoded_s + filled_s, 5.0, ("mono",), "one channel", (), filled_s)
    report = SurveyReport(plan, 500, damaged, "webm", "opus", 1, gaps, longest)
    assert what_is_wrong(report, probed_s) == told


def test_a_probe_that_promised_more_is_told_of(parts: Parts, prober: Prober) -> None:
    ticket, _ = surveyed(parts, prober, wav(voice(8.0)), 18.3)
    assert degraded(parts, ticket) == "18.3 s were expected and 8.0 s could be decoded"


def test_a_survey_cut_short_between_artefact_and_commit_leaves_nothing_in_the_end(
    parts: Parts, prober: Prober
) -> None:
    """Killed there, it leaves packed speech no plan names; the job is surveyed again."""
    first = granted(parts, wav(voice(3.0)), 3.0)
    left = pack(parts.storage, prober, first)
    with transaction(parts.store) as c:
        jobs.give_back(c, SURVEY, first, 50)
        (again,) = jobs.grant(c, SURVEY, [first.job_id], "s@there", None)
    packed = pack(parts.storage, prober, again)
    commit(parts.store, parts.storage, parts.queues[TRANSCRIBE.name], again, packed, "en")
    assert set(artefacts(parts)) == {left.artefact_key, packed.artefact_key}
    # The first one, waking up late, writes nothing and takes its own artefact with it
    with pytest.raises(LeaseLost):
        commit(parts.store, parts.storage, parts.queues[TRANSCRIBE.name], first, left, "en")
    assert artefacts(parts) == [packed.artefact_key]
    with transaction(parts.store) as c:
        found = partials.plan_of(c, first.job_id)
    assert found is not None
    assert found[1] == packed.artefact_key
    assert tidy(parts.store, parts.storage) == 0
