"""What a job is to each stage, in that stage's measure of work, and how fast its workers are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.job import STAGES, SURVEY, TRANSCRIBE, Stage, State
from pipeline.queue.board import WorkerSpeed
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

WORK_OF: dict[str, Callable[[int], float]] = {
    SURVEY.name: bucket_survey_s,
    TRANSCRIBE.name: bucket_work_s,
}
"""By stage: the work of a job of a bucket, in the measure of that stage."""


@dataclass(frozen=True)
class Measures:
    """As workers say at one moment."""

    language: str
    """Of recordings of which none was asked for."""
    speeds: Mapping[str, Sequence[WorkerSpeed]]
    """By stage name, as the next."""
    slot_speeds: Mapping[str, float | None]
    """Of one slot, as last known: stands in for a worker that has not measured its own yet."""

    def capacity(self, stage: Stage) -> Capacity | None:
        """What the live workers of a stage do; None when nobody knows how fast any is."""
        slot_speed = self.slot_speeds[stage.name] or 0.0
        speeds = self.speeds[stage.name]
        return together((w.speed or slot_speed * w.slots, w.slots) for w in speeds)

    def unplanned(self, place: Waiting) -> Amount:
        """What a job of this size is to the engine, before its windows are known."""
        return Amount(bucket_work_s(place.bucket), bucket_windows(place.bucket))

    def left(self, standing: Standing) -> Amount:
        """What is left of a job at the stage it stands at, in that stage's measure."""
        if standing.state in (SURVEY.waiting, SURVEY.working):
            return Amount(survey_work_s(standing.duration_s), 1)
        total = max(1, standing.windows_total)
        units = max(0, total - standing.windows_done)
        if not units:
            return NOTHING
        language = standing.language or self.language
        speech_s = standing.speech_s * units / total
        return Amount(predicted_work_s(speech_s, units, language), units)

    def place_left(self, standing: Standing) -> Waiting:
        """Where a job in hand would stand with what is left of it: so its worker ranks it."""
        if standing.state is not TRANSCRIBE.working:
            return standing.place
        return replace(standing.place, bucket=bucket_of(self.left(standing).work))


def stage_of(state: State) -> Stage:
    """The stage a live job waits for or is in."""
    return next(stage for stage in STAGES if state in (stage.waiting, stage.working))
