"""Where speech is found, and where not."""

from __future__ import annotations

import numpy as np
import pytest

from bench.tones import NOT_SPEECH, keys, pcm
from pipeline.intake import speech
from pipeline.intake.speech import PAD_S, probabilities, speech_spans
from tests.sounds import Samples, joined, noise, silence, tone, voice


@pytest.mark.parametrize(
    "pcm", [silence(3), tone(5), noise(5), noise(5, level=0.0005), silence(0), tone(0.01)]
)
def test_what_nobody_says_is_not_speech(pcm: Samples) -> None:
    assert speech_spans(pcm) == []


@pytest.mark.parametrize("name", NOT_SPEECH)
@pytest.mark.parametrize("gain", [1.0, 0.01], ids=["loud", "-40 dB"])
def test_tones_keys_fax_and_plain_music_are_not_speech(name: str, gain: float) -> None:
    assert speech_spans((NOT_SPEECH[name] * gain).astype(np.int16)) == []


def test_speech_is_found_after_the_line_has_rung() -> None:
    ringing = NOT_SPEECH["ring tone, US"]
    rang_s = len(ringing) / 16_000
    spans = speech_spans(joined([ringing, voice(4), silence(1)]))
    assert spans[0].start_s == pytest.approx(rang_s, abs=PAD_S + 0.3)
    assert spans[-1].end_s == pytest.approx(rang_s + 4, abs=PAD_S + 0.3)


def test_keys_pressed_while_somebody_talks_do_not_hide_the_talk() -> None:
    talk = joined([silence(1), voice(6), silence(1)])
    pressed = np.resize(pcm(keys("4711#", off_s=0.6)), len(talk)) // 2
    spans = speech_spans((talk + pressed).astype(np.int16))
    assert sum(span.length_s for span in spans) > 5.5


@pytest.mark.parametrize("level", [0.3, 0.03, 0.003], ids=["loud", "-20 dB", "-40 dB"])
def test_speech_is_found_however_quiet_the_line(level: float) -> None:
    call = joined(
        [silence(2), voice(3, level=level), silence(3), voice(2, level=level), silence(1)]
    )
    spans = speech_spans(call)
    assert spans[0].start_s == pytest.approx(2.0, abs=PAD_S + 0.2)
    assert spans[-1].end_s == pytest.approx(10.0, abs=PAD_S + 0.3)
    assert not any(span.start_s < 6.5 < span.end_s for span in spans)


def test_spans_lie_in_order_within_the_recording() -> None:
    call = joined([voice(1), silence(1), voice(1), silence(0.35), voice(1)])
    spans = speech_spans(call)
    edges = [edge for span in spans for edge in (span.start_s, span.end_s)]
    assert edges == sorted(edges)
    assert edges[0] >= 0
    assert edges[-1] <= len(call) / 16_000


def test_a_click_is_not_speech_and_does_not_hide_any() -> None:
    call = joined([silence(1), voice(2, level=0.003), silence(1)])
    call[100] = 32_767
    assert len(speech_spans(call)) == 1


def test_the_detector_hears_one_recording_and_not_its_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The detector's state and 64 samples go over from block to block."""
    call = voice(20)
    in_blocks_of_16_s = probabilities(call)
    monkeypatch.setattr(speech, "_BLOCK", 10_000)
    assert np.abs(probabilities(call) - in_blocks_of_16_s).max() < 1e-5
