"""What a job is to each stage, in that stage's measure of work, and how fast its workers are."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

from pipeline.job import STAGES, SURVEY, TRANSCRIBE, Stage, State
from pipeline.queue.board import SlotSpeed, WorkerSpeed
from pipeline.scheduling.forecast import NOTHING, Amount, Capacity, together
from pipeline.scheduling.policies import Waiting
from pipeline.scheduling.work import (
    bucket_of,
    bucket_survey_s,
    bucket_windows,
    bucket_work_s,
    predicted_work_s,
    survey_work_s,
)
from pipeline.store.load import Standing

PLAIN: dict[str, tuple[Callable[[int], float], Callable[[int], int]]] = {
    SURVEY.name: (bucket_survey_s, lambda _: 1),
    TRANSCRIBE.name: (bucket_work_s, bucket_windows),
}
"""Of a job of a bucket: its work in the measure of a stage, and its units there."""


@dataclass(frozen=True)
class Measures:
    """As workers say at one moment."""

    language: str
    """Of recordings of which none was asked for."""
    speeds: Mapping[str, Sequence[WorkerSpeed]]
    """By stage name, as the next."""
    slot_speeds: Mapping[str, SlotSpeed | None]
    """Of one slot, as last known: stands in for a worker that has not measured its own yet."""

    def capacity(self, stage: Stage) -> Capacity | None:
        """What the live workers of a stage do; None when nobody knows how fast any is."""
        known = self.slot_speeds[stage.name]
        slot_speed = known.speed if known else 0.0
        speeds = self.speeds[stage.name]
        return together((w.speed or slot_speed * w.slots, w.slots) for w in speeds)

    @cached_property
    def beside(self) -> dict[str, float]:
        """By stage: what a unit costs beside its work, as the live workers say."""
        found = {}
        for name, workers in self.speeds.items():
            known = self.slot_speeds[name]
            last = known.beside if known else 0.0
            measured = [w.beside for w in workers if w.speed]
            found[name] = statistics.fmean(measured) if measured else last
        return found

    @cached_property
    def work_of(self) -> dict[str, Callable[[int], float]]:
        """By stage: the work of a job of a bucket, with what its units cost beside."""

        def of(name: str) -> Callable[[int], float]:
            (work, units), beside = PLAIN[name], self.beside[name]
            return cache(lambda bucket: work(bucket) + beside * units(bucket))

        return {name: of(name) for name in PLAIN}

    def unplanned(self, place: Waiting) -> Amount:
        """What a job of this size is to the engine, before its windows are known."""
        return Amount(self.work_of[TRANSCRIBE.name](place.bucket), bucket_windows(place.bucket))

    def left(self, standing: Standing) -> Amount:
        """What is left of a job at the stage it stands at, in that stage's measure."""
        if standing.state in (SURVEY.waiting, SURVEY.working):
            return Amount(survey_work_s(standing.duration_s) + self.beside[SURVEY.name], 1)
        total = max(1, standing.windows_total)
        units = max(0, total - standing.windows_done)
        if not units:
            return NOTHING
        language = standing.language or self.language
        speech_s = standing.speech_s * units / total
        work_s = predicted_work_s(speech_s, units, language)
        return Amount(work_s + self.beside[TRANSCRIBE.name] * units, units)

    def place_left(self, standing: Standing) -> Waiting:
        """Where a job in hand would stand with what is left of it: so its worker ranks it."""
        if standing.state is not TRANSCRIBE.working:
            return standing.place
        return replace(standing.place, bucket=bucket_of(self.left(standing).work))


def stage_of(state: State) -> Stage:
    """The stage a live job waits for or is in."""
    return next(stage for stage in STAGES if state in (stage.waiting, stage.working))
