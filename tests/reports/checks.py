"""What is asked of a file of a report: each function returns a check that runs in a `Here`."""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jiwer
import pytest

from pipeline.errors import FairscribeError, RecordingRefused
from pipeline.intake.prober import Prober
from pipeline.recording import Probe, SurveyReport
from tests.reports.hearing import Words

Content = Callable[[], bytes]


@dataclass
class Here:
    """The real parts a check may use; each is started when it is first asked for."""

    ask: Callable[[str], Any]
    """The fixture of that name."""

    @property
    def prober(self) -> Prober:
        """The sandbox, with a limit of 4 h."""
        return self.ask("prober")

    @property
    def words(self) -> Mapping[str, Words]:
        """What each sound of `hearing.sounds` became."""
        return self.ask("words")

    def probe(self, content: bytes, name: str = "call") -> Probe:
        """Probe bytes."""
        with opened(content) as fd:
            return self.prober.probe(fd, name)

    def survey(self, content: bytes, name: str = "call") -> SurveyReport:
        """Survey bytes."""
        with opened(content) as fd, opened(b"") as out:
            return self.prober.survey(fd, out, name)


Check = Callable[[Here], None]


@contextmanager
def opened(content: bytes) -> Iterator[int]:
    """A descriptor of a file without a name that holds `content`."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        yield file.fileno()


def near(found_s: float, true_s: float) -> bool:
    """Within 2 %, or a quarter of a second: encoders pad that much."""
    return abs(found_s - true_s) <= max(0.02 * true_s, 0.25)


def lasts(make: Content, true_s: float, name: str = "call") -> Check:
    """Probe and survey both give this length."""

    def check(here: Here) -> None:
        content = make()
        probed, surveyed = here.probe(content, name), here.survey(content, name)
        assert near(probed.duration_s, true_s), probed
        assert near(surveyed.plan.duration_s, true_s), surveyed.plan

    return check


def all_last(makes: Mapping[str, Content], true_s: float) -> Check:
    """As `lasts`, for several files by name."""

    def check(here: Here) -> None:
        for name, make in makes.items():
            lasts(make, true_s, name)(here)

    return check


def refused(make: Content, code: str, name: str = "call") -> Check:
    """Probe and survey both refuse it by this code, with a sentence for people."""

    def check(here: Here) -> None:
        content = make()
        for read in (here.probe, here.survey):
            with pytest.raises(RecordingRefused) as caught:
                read(content, name)
            assert caught.value.code == code
            assert caught.value.message.endswith(".")

    return check


def damaged(make: Content, true_s: float) -> Check:
    """What is left of it is measured right, and it is told that something is missing."""

    def check(here: Here) -> None:
        content = make()
        probed, surveyed = here.probe(content), here.survey(content)
        assert near(probed.duration_s, true_s), probed
        assert near(surveyed.plan.duration_s, true_s), surveyed.plan
        assert surveyed.damaged_packets or probed.reason

    return check


def heard_at(make: Content, channels: tuple[str, ...], from_s: float = 0.0) -> Check:
    """Speech is found, on these channels, and none before a moment."""

    def check(here: Here) -> None:
        plan = here.survey(make()).plan
        assert plan.channels == channels
        starts = [piece.start_s for window in plan.windows for piece in window.pieces]
        assert starts
        assert min(starts) >= from_s, starts

    return check


def says(sound: str, words: str, least: float = 1.0) -> Check:
    """The text has these words: a share of at least `least` of them, in their order."""

    def check(here: Here) -> None:
        heard = here.words[sound]
        assert share_said(words, heard.text) >= least, heard.text
        assert looped(heard.text) <= 2

    return check


def says_nothing(sound: str) -> Check:
    """No words, or words marked doubtful."""

    def check(here: Here) -> None:
        assert here.words[sound].believed == ""

    return check


def of_words(sound: str, holds: Callable[[Words], bool]) -> Check:
    """Something is true of what the sound became."""

    def check(here: Here) -> None:
        assert holds(here.words[sound]), here.words[sound]

    return check


def every(*checks: Check) -> Check:
    """All of these."""

    def check(here: Here) -> None:
        for each in checks:
            each(here)

    return check


def share_said(words: str, text: str) -> float:
    """Which share of `words` is in `text`, in their order (numbers in digits count as words).

    >>> share_said("please keep the box", "Please, the box!")
    0.75
    """
    counts = jiwer.process_words(
        words, text, reference_transform=_PLAIN, hypothesis_transform=_PLAIN
    )
    return counts.hits / (counts.hits + counts.substitutions + counts.deletions)


def added_words(words: str, text: str) -> int:
    """Words of `text` that nobody said."""
    counts = jiwer.process_words(
        words, text, reference_transform=_PLAIN, hypothesis_transform=_PLAIN
    )
    return int(counts.insertions)


_PLAIN = jiwer.Compose(
    [
        jiwer.ToLowerCase(),
        jiwer.RemovePunctuation(),
        jiwer.RemoveMultipleSpaces(),
        jiwer.Strip(),
        jiwer.ReduceToListOfListOfWords(),
    ]
)


def looped(text: str) -> int:
    """How often the same one to six words stand one after the other, at most.

    >>> looped("you are welcome. you are welcome. you are welcome."), looped("good morning")
    (3, 1)
    """
    words = text.lower().split()
    most = 1
    for size in range(1, 7):
        for at in range(len(words) - size):
            run = 1
            while words[at : at + size] == words[at + run * size : at + (run + 1) * size]:
                run += 1
            most = max(most, run)
    return most


def squeezed(text: str) -> float:
    """Length over compressed length: beyond 2.4 a decoder repeats itself (Whisper's own rule)."""
    plain = text.encode()
    return len(plain) / len(zlib.compress(plain)) if plain else 0.0


def memory_bytes(pid: int) -> int:
    """Resident memory of a process."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def refusal_of(read: Callable[[], Any]) -> str | None:
    """The code something is refused with; None when it is not."""
    try:
        read()
    except FairscribeError as error:
        return error.code
    return None
