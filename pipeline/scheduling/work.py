"""How much work a recording is, and which size bucket that falls in.

    S = a + b * windows + c * tokens        tokens = kappa(language) * seconds of speech

S is in reference slot seconds: what one slot of the reference engine (Whisper base, float32, one
window alone on a 2-core CPU) needs. The order of jobs depends only on ratios of S, so another
engine's speed does not matter to it. Coefficients are fixed at deploy; a learned speed may enter
estimates of time but never moves a job to another bucket, so learning reorders nothing.

What an engine really needs, in its own busy seconds, is a `WorkModel` of the same form, learned
from finished work (scheduling/learning.py). `REFERENCE` is the one buckets go by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

WINDOW_S = 0.566
"""b: encoding one 30 s window, reference slot seconds."""
TOKEN_S = 0.031
"""c: decoding one token, reference slot seconds."""
JOB_S = 0.05
"""a: what a job costs whatever its length."""

KAPPA = {"en": 5.34, "ar": 4.5, "es": 3.3}
"""Tokens a second of speech, published values by language."""
KAPPA_DEFAULT = 4.4
"""Tokens a second of speech in any other language."""

PACKED_S = 27.0
"""Seconds of speech a window holds on average when its length is not planned yet."""

S0 = 0.01
"""Work of bucket 0, reference slot seconds."""
GROWTH = 1.1
"""Each bucket holds 10 % more work than the one before: finer than any forecast of work."""
BUCKETS = 300
"""Buckets 0..299 reach 2.4e10 s of work: longer than any recording there is."""


@dataclass(frozen=True)
class WorkModel:
    """S = job_s + window_s * windows + token_s * kappa(language) * speech_s, all in seconds of one
    engine's busy time.
    """

    job_s: float
    """a: what a job costs whatever its length, seconds."""
    window_s: float
    """b: what a window costs whatever is said in it, seconds."""
    token_s: float
    """c: what a decoded token costs, seconds."""
    kappa: Mapping[str, float]
    """Tokens a second of speech by language; any other has `KAPPA_DEFAULT`."""
    jobs: int = 0
    """How many finished jobs it was learned from."""
    r2: float | None = None
    """Share of those jobs' variance it explains, at most 1; None where that says nothing."""

    def tokens(self, speech_s: float, language: str | None) -> float:
        """Tokens that `speech_s` seconds of speech decode to, about."""
        return self.kappa.get(language or "", KAPPA_DEFAULT) * speech_s

    def predicted_s(self, speech_s: float, windows: int, language: str | None) -> float:
        """Busy seconds of an engine for `speech_s` seconds of speech in `windows` windows."""
        tokens = self.tokens(speech_s, language)
        return self.job_s + self.window_s * windows + self.token_s * tokens


REFERENCE = WorkModel(JOB_S, WINDOW_S, TOKEN_S, KAPPA)
"""The work model fixed at deploy, in reference slot seconds."""


def predicted_work_s(speech_s: float, windows: int | None, language: str | None) -> float:
    """S for `speech_s` seconds of speech in `windows` windows (None: not planned yet).

    >>> round(predicted_work_s(60.0, 3, "en"), 3)      # 0.05 + 3*0.566 + 0.031*5.34*60
    11.68
    """
    if windows is None:
        windows = max(1, math.ceil(speech_s / PACKED_S))
    return REFERENCE.predicted_s(speech_s, windows, language)


def bucket_of(work_s: float) -> int:
    """The bucket nearest to `work_s` on a logarithmic scale, 0..BUCKETS-1.

    >>> bucket_of(0.01), bucket_of(0.011), bucket_of(3600.0)
    (0, 1, 134)
    """
    if work_s <= S0:
        return 0
    return min(BUCKETS - 1, round(math.log(work_s / S0) / math.log(GROWTH)))


def bucket_work_s(bucket: int) -> float:
    """The work every job of a bucket is taken to be, reference slot seconds."""
    return S0 * GROWTH**bucket


def bucket_windows(bucket: int) -> int:
    """Windows a job of this bucket has, about; at least 1. Used to claim no more than fits."""
    one = predicted_work_s(PACKED_S, 1, "en")
    return max(1, math.floor(bucket_work_s(bucket) / one))


SURVEY_FILE_S = 6.0
"""What surveying a file costs whatever its length, in seconds of audio surveyed: opening the
sandbox, storing, committing. Measured on two cores: 0.06 s, and 9 ms a second of audio."""


def survey_work_s(audio_s: float) -> float:
    """The work of surveying a file of `audio_s` seconds, in seconds of audio."""
    return SURVEY_FILE_S + audio_s


@lru_cache(maxsize=BUCKETS)
def bucket_survey_s(bucket: int) -> float:
    """The work of surveying a file of this bucket, about: `predicted_work_s` turned round.

    >>> round(bucket_survey_s(bucket_of(predicted_work_s(60.0, 3, "en"))))  # a bucket is 10 % wide
    69
    """
    windows = bucket_windows(bucket)
    tokens = (bucket_work_s(bucket) - JOB_S - WINDOW_S * windows) / TOKEN_S
    return survey_work_s(max(0.0, tokens / KAPPA["en"]))
