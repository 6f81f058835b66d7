"""Where is speech? One channel's samples come in, spans of true time go out.

Silero VAD in its sequence form: one call a block of 512 frames, 32 ms each, the state carried
between blocks. One thread and no pool, so the loaded model survives a fork.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from pipeline.intake.decode import Pcm
from pipeline.recording import SAMPLE_RATE_HZ, Span

THRESHOLD = 0.5
"""Speech begins at this probability..."""
HYSTERESIS = 0.35
"""...and ends when it stays under this one."""
MIN_SPEECH_S = 0.25
MIN_SILENCE_S = 0.3
PAD_S = 0.2
"""Kept on both sides of speech: Whisper needs the breath before a consonant."""

MAX_GAIN = 100.0
"""Quiet telephone sound is raised by at most this (40 dB), and only in what the detector hears.
Measured on six calls 40 dB too quiet: 0 to 100 % of the speech is found without, all of it with
this; white noise raised as far is not taken for speech."""

_FRAME = 512
_CONTEXT = 64
_BLOCK = 512
_MODEL = Path(__file__).with_name("silero_vad_16k.onnx")

Float = NDArray[np.float32]


@cache
def model() -> onnxruntime.InferenceSession:
    """The detector, loaded once a process."""
    options = onnxruntime.SessionOptions()
    options.inter_op_num_threads = 1
    options.intra_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    return onnxruntime.InferenceSession(_MODEL, options, providers=["CPUExecutionProvider"])


def speech_spans(pcm: Pcm) -> list[Span]:
    """Spans of speech in order, not overlapping, padded by `PAD_S`, within the recording."""
    end = len(pcm) / SAMPLE_RATE_HZ
    return _padded(_spoken(probabilities(pcm)), end)


def probabilities(pcm: Pcm) -> Float:
    """The probability of speech, 0..1, in each frame of 32 ms."""
    hidden = cell = np.zeros((1, 1, 128), np.float32)
    found = []
    for block in _blocks(pcm, _gain(pcm)):
        values, hidden, cell = model().run(
            ["speech_probs", "hn", "cn"], {"input": block, "h": hidden, "c": cell}
        )
        found.append(values)
    return np.concatenate(found).reshape(-1) if found else np.zeros(0, np.float32)


def _gain(pcm: Pcm) -> float:
    """What makes one sample in a thousand reach full scale; clicks do not count as loudness."""
    if not len(pcm):
        return 1.0
    # A thousandth of a long recording says as much as all of it, at a thousandth of the cost.
    loud = np.percentile(np.abs(pcm[:: max(1, len(pcm) // 1_000_000)].astype(np.int32)), 99.9)
    return float(min(max(32_768 / max(loud, 1.0), 1.0), MAX_GAIN))


def _blocks(pcm: Pcm, gain: float) -> Iterator[Float]:
    """Frames, each with the end of the one before it in front; the last is filled with zeros."""
    context = np.zeros(_CONTEXT, np.float32)
    step = _FRAME * _BLOCK
    for at in range(0, len(pcm), step):
        samples = pcm[at : at + step]
        frames = np.zeros((-(-len(samples) // _FRAME), _FRAME), np.float32)
        frames.reshape(-1)[: len(samples)] = samples * np.float32(gain / 32_768)
        np.clip(frames, -1.0, 1.0, out=frames)
        before = np.concatenate((context[None], frames[:-1, -_CONTEXT:]))
        context = frames[-1, -_CONTEXT:]
        yield np.concatenate((before, frames), axis=1)


def _spoken(values: Float) -> Iterator[Span]:
    """Unpadded spans: from the first frame over `THRESHOLD` to the silence that ends it."""
    frame_s = _FRAME / SAMPLE_RATE_HZ
    start: int | None = None
    last = 0
    for number, value in enumerate(values.tolist()):
        if start is None:
            if value >= THRESHOLD:
                start, last = number, number
        elif value >= HYSTERESIS:
            last = number
        elif (number - last) * frame_s >= MIN_SILENCE_S:
            yield Span(start * frame_s, (last + 1) * frame_s)
            start = None
    if start is not None:
        yield Span(start * frame_s, (last + 1) * frame_s)


def _padded(spans: Iterator[Span], end_s: float) -> list[Span]:
    """Long enough spans, padded; those that now touch become one."""
    found: list[Span] = []
    for span in spans:
        if span.length_s < MIN_SPEECH_S:
            continue
        start_s, stop_s = max(0.0, span.start_s - PAD_S), min(end_s, span.end_s + PAD_S)
        if found and start_s <= found[-1].end_s:
            start_s = found.pop().start_s
        found.append(Span(start_s, stop_s))
    return found
