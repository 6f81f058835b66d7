"""How both lines stand at one moment, and what follows from it for a job. Asks nobody."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

from pipeline.job import STAGES, SURVEY, TRANSCRIBE, Stage, State
from pipeline.queue.board import SlotSpeed, WorkerSpeed
from pipeline.queue.order import Ahead
from pipeline.scheduling.calibration import Calibration
from pipeline.scheduling.forecast import (
    NOTHING,
    Capacity,
    Inflow,
    Share,
    inflow,
    rest_s,
    service_s,
    turn_s,
    with_overtaking,
)
from pipeline.scheduling.policies import Policy, Waiting, order_key, pairs
from pipeline.scheduling.sketch import Marks, Sketch
from pipeline.scheduling.work import (
    bucket_of,
    bucket_survey_s,
    bucket_windows,
    bucket_work_s,
    predicted_work_s,
    survey_work_s,
)
from pipeline.store.load import Standing

SLICE_S, SLICES = 5.0, 12
"""Arrivals are counted over the last minute."""

LOOKS = 3
"""How often the order is looked at while it moves: now, then at the turn expected last."""

HEAD = 20
"""Of those who go first so many get a forecast at once."""

PLAIN: dict[str, tuple[Callable[[int], float], Callable[[int], int]]] = {
    SURVEY.name: (bucket_survey_s, lambda _: 1),
    TRANSCRIBE.name: (bucket_work_s, bucket_windows),
}
"""Of a job of a bucket: its work in the measure of a stage, and its units there."""

WorkAt = Callable[[int], float]
"""Work that waits before a job at a moment, ms of Postgres time."""


@dataclass(frozen=True)
class Times:
    """When something will be done, in seconds from now."""

    p50_s: float
    """As likely sooner as later."""
    p90_s: float
    """Nine times in ten it is done by then."""


@dataclass(frozen=True)
class Forecast:
    """What can be said of a job that has not ended."""

    position: int | None
    """In the queue of its stage, from 1; None when it does not wait."""
    times: Times | None
    """None while nobody knows how fast it goes."""


UNKNOWN = Forecast(None, None)


@dataclass(frozen=True)
class Outlook:
    """Both lines at one moment."""

    language: str
    now_ms: int
    """Postgres time."""
    in_hand: Sequence[Standing]
    policies: Mapping[str, Policy]
    """By stage name, as the next three."""
    speeds: Mapping[str, Sequence[WorkerSpeed]]
    slot_speeds: Mapping[str, SlotSpeed | None]
    """Of one slot, as last known: stands in for a worker that has not measured its own yet."""
    lines: Mapping[str, Sketch]
    """Who waits."""
    slices: Sequence[Mapping[int, int]]
    """Jobs that came, by bucket, the newest slice of SLICE_S first."""
    calibration: Calibration

    # -- forecasts --------------------------------------------------------------------------

    def times(self, standing: Standing, ahead: Ahead | None = None) -> Times | None:
        """When a live job will be done; None while nobody can say.

        `ahead`: who waits before it in its own line, where that was just asked.
        """
        raw_s = self.raw_s(standing, ahead)
        return None if raw_s is None else self.calibrated(standing.state, raw_s)

    def calibrated(self, state: State, raw_s: float) -> Times:
        """What queue arithmetic found for a job in `state`, as far as it can be trusted."""
        return Times(*self.calibration.told(state.value, raw_s))

    def raw_s(self, standing: Standing, ahead: Ahead | None = None) -> float | None:
        """Seconds until a live job's end by queue arithmetic alone; see `times`."""
        stage = stage_of(standing.state)
        if standing.state is stage.working:
            return self._in_hand_s(stage, standing)
        own = self._left(standing) if stage is TRANSCRIBE else self.unplanned(standing.place)
        return self.waiting_s(stage, standing.place, own, ahead=ahead)

    def waiting_s(
        self,
        stage: Stage,
        place: Waiting,
        own: Share,
        *,
        ahead: Ahead | None = None,
        work_now: Mapping[str, float] | None = None,
    ) -> float | None:
        """Seconds until the end of a job that waits at `stage`; `own` is its work for the engine.

        `ahead`: see `times`. `work_now`: all work known to wait before it, by stage name and in
        that stage's measure; then the order is not looked at.
        """
        engine = self.capacity(TRANSCRIBE)
        if engine is None:
            return None
        asked = {stage.name: ahead} if ahead else {}
        before = self._work_before(TRANSCRIBE, place, work_now, asked)
        if stage is TRANSCRIBE:
            return self._turn_s(TRANSCRIBE, engine, place, before) + self._service_s(engine, own)
        surveyors = self.capacity(SURVEY)
        if surveyors is None:
            return None
        audio = self._work_before(SURVEY, place, work_now, asked)
        surveyed_s = self._turn_s(SURVEY, surveyors, place, audio)
        surveyed_s += surveyors.residence_s(self._work_of[SURVEY.name](place.bucket))
        return self._after_survey_s(engine, place, own, surveyed_s, before)

    def _after_survey_s(
        self, engine: Capacity, place: Waiting, own: Share, surveyed_s: float, ahead: WorkAt
    ) -> float:
        """The end of a job whose survey ends in `surveyed_s`, or its turn comes later than that."""
        turn = self._turn_s(TRANSCRIBE, engine, place, ahead)
        return max(surveyed_s, turn) + self._service_s(engine, own)

    def _in_hand_s(self, stage: Stage, standing: Standing) -> float | None:
        capacity, engine = self.capacity(stage), self.capacity(TRANSCRIBE)
        if capacity is None or engine is None:
            return None
        place = self._place_left(standing)
        left = self._left(standing)
        waiting = 0.0
        if left.units * capacity.workers > capacity.slots:
            waiting = self._work_before(stage, place)(self.now_ms)
        rest = rest_s(
            capacity,
            left,
            whole=replace(left, units=max(1, standing.windows_total))
            if stage is TRANSCRIBE
            else left,
            since_s=standing.since_s,
            serving=self._serving(stage, place, self.now_ms),
            waiting_work=waiting,
            busy_slots=self._busy(stage),
        )
        if stage is TRANSCRIBE:
            return rest
        ahead = self._work_before(TRANSCRIBE, place)
        return self._after_survey_s(engine, place, self.unplanned(place), rest, ahead)

    def head_times(self, stage: Stage, places: Sequence[Waiting]) -> list[Times | None]:
        """Of the first who wait at `stage`, in their order; None beyond the first HEAD.

        Like `waiting_s`, but the order is looked at once, now: their turn is soon.
        """
        other = TRANSCRIBE if stage is SURVEY else SURVEY
        survey_of, engine_of = self._work_of[SURVEY.name], self._work_of[TRANSCRIBE.name]
        table = pairs(self.policies[other.name])
        before: dict[int, int] = {}
        found: list[Times | None] = []
        for place in places[:HEAD]:
            ahead = self.lines[other.name].ahead(place, table, self.now_ms)
            coming = self._outranking(SURVEY, place, self.now_ms)
            work = sum(engine_of(held.bucket) for held, _ in coming)
            work += _work(before, engine_of) + _work(ahead, engine_of)
            known = {SURVEY.name: _work(before, survey_of), TRANSCRIBE.name: work}
            own = self.unplanned(place)
            raw_s = self.waiting_s(stage, place, own, work_now=known)
            found.append(None if raw_s is None else self.calibrated(stage.waiting, raw_s))
            before[place.bucket] = before.get(place.bucket, 0) + 1
        return found + [None] * (len(places) - len(found))

    def all_done(self) -> Times | None:
        """When everything that is probed by now will have ended; None when nobody can say."""
        engine, surveyors = self.capacity(TRANSCRIBE), self.capacity(SURVEY)
        survey_of, engine_of = self._work_of[SURVEY.name], self._work_of[TRANSCRIBE.name]
        sizes = {name: line.by_bucket() for name, line in self.lines.items()}
        audio = _work(sizes[SURVEY.name], survey_of) + self._serving(SURVEY).work
        unheard = [h for h in self.in_hand if h.state is SURVEY.working]
        work = self._serving(TRANSCRIBE).work + sum(engine_of(h.place.bucket) for h in unheard)
        work += sum(_work(counts, engine_of) for counts in sizes.values())
        if not work:
            return Times(0.0, 0.0)
        if engine is None or (audio and surveyors is None):
            return None
        survey_s = audio / surveyors.speed if surveyors else 0.0
        last = SURVEY if survey_s > work / engine.speed else TRANSCRIBE
        return self.calibrated(last.waiting, max(survey_s, work / engine.speed))

    def joined_by(self, others: Mapping[int, Marks]) -> Outlook:
        """With others, of whom the survey's line does not know yet, waiting in it too."""
        line = self.lines[SURVEY.name].joined_by(others)
        return replace(self, lines={**self.lines, SURVEY.name: line})

    # -- the parts of a forecast ------------------------------------------------------------

    def capacity(self, stage: Stage) -> Capacity | None:
        """What the live workers of a stage do; None when nobody knows how fast any is."""
        known = self.slot_speeds[stage.name]
        slot_speed = known.speed if known else 0.0
        speeds = [(w.speed or slot_speed * w.slots, w.slots) for w in self.speeds[stage.name]]
        live = [(speed, slots) for speed, slots in speeds if speed]
        if not live:
            return None
        return Capacity(sum(s for s, _ in live), sum(slots for _, slots in live), len(live))

    def unplanned(self, place: Waiting) -> Share:
        """What a job of this size is to the engine, before its windows are known."""
        return Share(self._work_of[TRANSCRIBE.name](place.bucket), bucket_windows(place.bucket))

    def _turn_s(self, stage: Stage, capacity: Capacity, place: Waiting, ahead: WorkAt) -> float:
        """Seconds until a place's first slot, its order looked at again for the moment found."""
        table = pairs(self.policies[stage.name])
        moves = len({u for u, _ in table}) > 1
        expected_s = 0.0
        for _ in range(LOOKS if moves else 1):
            moment = self.now_ms + int(expected_s * 1000)
            serving = self._serving(stage, place, moment)
            base_s = turn_s(capacity, ahead(moment), serving)
            overtaking = partial(
                self._inflows[stage.name].overtaking,
                place,
                table,
                self.now_ms,
                work_of=self._work_of[stage.name],
            )
            before_s = expected_s
            expected_s = with_overtaking(base_s, capacity.speed, overtaking)
            if abs(expected_s - before_s) <= 0.05 * expected_s:
                break
        return expected_s

    def _work_before(
        self,
        stage: Stage,
        place: Waiting,
        known: Mapping[str, float] | None = None,
        asked: Mapping[str, Ahead] | None = None,
    ) -> WorkAt:
        """Work that waits before a place at `stage`, as a function of the moment.

        For the engine that is also what is not surveyed yet and outranks it: it will come first.
        `asked`: who was found ahead of it in a line just now.
        """
        if known is not None:
            return lambda _: known[stage.name]
        lines = (SURVEY,) if stage is SURVEY else STAGES
        work_of = self._work_of[stage.name]

        def work(moment: int) -> float:
            found = 0.0
            for line in lines:
                fresh = asked.get(line.name) if asked and moment == self.now_ms else None
                table = pairs(self.policies[line.name])
                ahead = (
                    fresh.by_bucket if fresh else self.lines[line.name].ahead(place, table, moment)
                )
                found += _work(ahead, work_of)
            if stage is TRANSCRIBE:
                coming = self._outranking(SURVEY, place, moment)
                found += sum(work_of(held.bucket) for held, _ in coming)
            return found

        return work

    def _service_s(self, engine: Capacity, own: Share) -> float:
        return service_s(engine, own, engine.slots - self._busy(TRANSCRIBE))

    @cached_property
    def _inflows(self) -> dict[str, Inflow]:
        works = self._work_of.items()
        return {name: inflow(self.slices, SLICE_S, work_of) for name, work_of in works}

    @cached_property
    def _beside(self) -> dict[str, float]:
        """By stage: what a unit costs beside its work, as the live workers say."""
        found = {}
        for name, workers in self.speeds.items():
            known = self.slot_speeds[name]
            measured = [w.beside for w in workers if w.speed]
            found[name] = statistics.fmean(measured) if measured else known.beside if known else 0.0
        return found

    @cached_property
    def _work_of(self) -> dict[str, Callable[[int], float]]:
        """By stage: the work of a job of a bucket, with what its units cost beside."""

        def work_of(name: str) -> Callable[[int], float]:
            (work, units), beside = PLAIN[name], self._beside[name]
            return cache(lambda bucket: work(bucket) + beside * units(bucket))

        return {name: work_of(name) for name in PLAIN}

    @cached_property
    def _held(self) -> dict[str, list[tuple[Waiting, Share]]]:
        """Jobs in hand by stage: where they would stand with what is left of them, and that."""
        return {
            stage.name: [
                (self._place_left(held), self._left(held))
                for held in self.in_hand
                if held.state is stage.working
            ]
            for stage in STAGES
        }

    def _outranking(
        self, stage: Stage, place: Waiting | None, moment: int
    ) -> list[tuple[Waiting, Share]]:
        """Jobs in hand at `stage` that go before `place`; all of them for None."""
        held = self._held[stage.name]
        if place is None:
            return held
        table = pairs(self.policies[stage.name])
        own = order_key(place, table, moment)
        return [one for one in held if order_key(one[0], table, moment) < own]

    def _serving(self, stage: Stage, place: Waiting | None = None, moment: int = 0) -> Share:
        shares = [share for _, share in self._outranking(stage, place, moment)]
        return Share(sum(s.work for s in shares), sum(s.units for s in shares))

    def _busy(self, stage: Stage) -> int:
        return self._serving(stage).units

    def _left(self, standing: Standing) -> Share:
        """What is left of a job at the stage it stands at, in that stage's measure."""
        if standing.state in (SURVEY.waiting, SURVEY.working):
            return Share(survey_work_s(standing.duration_s) + self._beside[SURVEY.name], 1)
        total = max(1, standing.windows_total)
        units = max(0, total - standing.windows_done)
        if not units:
            return NOTHING
        language = standing.language or self.language
        speech_s = standing.speech_s * units / total
        work_s = predicted_work_s(speech_s, units, language)
        return Share(work_s + self._beside[TRANSCRIBE.name] * units, units)

    def _place_left(self, standing: Standing) -> Waiting:
        """Where a job in hand would stand with what is left of it: so its worker ranks it."""
        if standing.state is not TRANSCRIBE.working:
            return standing.place
        return replace(standing.place, bucket=bucket_of(self._left(standing).work))


def stage_of(state: State) -> Stage:
    """The stage a live job waits for or is in."""
    return next(stage for stage in STAGES if state in (stage.waiting, stage.working))


def _work(by_bucket: Mapping[int, float], work_of: Callable[[int], float]) -> float:
    return sum(work_of(bucket) * count for bucket, count in by_bucket.items())
