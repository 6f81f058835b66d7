"""How both lines stand at one moment, and what follows from it for a job. Asks nobody."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from pipeline.job import STAGES, SURVEY, TRANSCRIBE, Stage, State
from pipeline.queue.order import Ahead
from pipeline.scheduling.calibration import Calibration
from pipeline.scheduling.forecast import (
    Amount,
    Capacity,
    Inflow,
    inflow,
    rest_s,
    service_s,
    turn_s,
    with_overtaking,
)
from pipeline.scheduling.policies import Policy, Waiting, order_key, pairs
from pipeline.scheduling.sketch import Marks, Sketch
from pipeline.scheduling.work import bucket_survey_s, bucket_work_s
from pipeline.steps.forecast.measures import WORK_OF, Measures, stage_of
from pipeline.steps.forecast.told import Times
from pipeline.store.load import Standing

SLICE_S, SLICES = 5.0, 12
"""Arrivals are counted over the last minute."""

LOOKS = 3
"""How often the order is looked at while it moves: now, then at the turn expected last."""

HEAD = 20
"""Of those who go first so many get a forecast at once."""

WorkAt = Callable[[int], float]
"""Work that waits before a job at a moment, ms of Postgres time."""


@dataclass(frozen=True)
class Outlook:
    """Both lines at one moment."""

    measures: Measures
    now_ms: int
    """Postgres time."""
    in_hand: Sequence[Standing]
    policies: Mapping[str, Policy]
    """By stage name, as the next."""
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
        measures, place = self.measures, standing.place
        own = measures.left(standing) if stage is TRANSCRIBE else measures.unplanned(place)
        return self.waiting_s(stage, place, own, ahead=ahead)

    def waiting_s(
        self, stage: Stage, place: Waiting, own: Amount, *, ahead: Ahead | None = None
    ) -> float | None:
        """Seconds until the end of a job that waits at `stage`; `own` is its work for the engine.

        `ahead`: see `times`.
        """
        asked = {stage.name: ahead} if ahead else {}
        return self._end_s(stage, place, own, lambda at: self._work_before(at, place, asked))

    def _end_s(
        self, stage: Stage, place: Waiting, own: Amount, before: Callable[[Stage], WorkAt]
    ) -> float | None:
        """The same, by the work that waits `before` the job at a stage."""
        engine = self.measures.capacity(TRANSCRIBE)
        if engine is None:
            return None
        ahead = before(TRANSCRIBE)
        if stage is TRANSCRIBE:
            return self._turn_s(TRANSCRIBE, engine, place, ahead) + self._service_s(engine, own)
        surveyors = self.measures.capacity(SURVEY)
        if surveyors is None:
            return None
        surveyed_s = self._turn_s(SURVEY, surveyors, place, before(SURVEY))
        surveyed_s += surveyors.residence_s(bucket_survey_s(place.bucket))
        return self._after_survey_s(engine, place, own, surveyed_s, ahead)

    def _after_survey_s(
        self, engine: Capacity, place: Waiting, own: Amount, surveyed_s: float, ahead: WorkAt
    ) -> float:
        """The end of a job whose survey ends in `surveyed_s`, or its turn comes later than that."""
        turn = self._turn_s(TRANSCRIBE, engine, place, ahead)
        return max(surveyed_s, turn) + self._service_s(engine, own)

    def _in_hand_s(self, stage: Stage, standing: Standing) -> float | None:
        capacity, engine = self.measures.capacity(stage), self.measures.capacity(TRANSCRIBE)
        if capacity is None or engine is None:
            return None
        place = self.measures.place_left(standing)
        left = whole = self.measures.left(standing)
        if stage is TRANSCRIBE:
            whole = replace(left, units=max(1, standing.windows_total))
        waiting = 0.0
        if left.units * capacity.workers > capacity.slots:
            waiting = self._work_before(stage, place)(self.now_ms)
        rest = rest_s(
            capacity,
            left,
            whole=whole,
            since_s=standing.since_s,
            serving=self._serving(stage, place, self.now_ms),
            waiting_work=waiting,
            busy_slots=self._busy(stage),
        )
        if stage is TRANSCRIBE:
            return rest
        ahead = self._work_before(TRANSCRIBE, place)
        return self._after_survey_s(engine, place, self.measures.unplanned(place), rest, ahead)

    def head_times(self, stage: Stage, places: Sequence[Waiting]) -> list[Times | None]:
        """Of the first who wait at `stage`, in their order; None beyond the first HEAD.

        Like `waiting_s`, but the order is looked at once, now: their turn is soon.
        """
        other = TRANSCRIBE if stage is SURVEY else SURVEY
        survey_of, engine_of = bucket_survey_s, bucket_work_s
        table = pairs(self.policies[other.name])
        first: dict[int, int] = {}
        found: list[Times | None] = []
        for place in places[:HEAD]:
            ahead = self.lines[other.name].ahead(place, table, self.now_ms)
            coming = self._outranking(SURVEY, place, self.now_ms)
            work = sum(engine_of(held.bucket) for held, _ in coming)
            work += _work(first, engine_of) + _work(ahead, engine_of)
            before = _unmoved({SURVEY: _work(first, survey_of), TRANSCRIBE: work})
            raw_s = self._end_s(stage, place, self.measures.unplanned(place), before)
            found.append(None if raw_s is None else self.calibrated(stage.waiting, raw_s))
            first[place.bucket] = first.get(place.bucket, 0) + 1
        return found + [None] * (len(places) - len(found))

    def all_done(self) -> Times | None:
        """When everything that is probed by now will have ended; None when nobody can say."""
        engine, surveyors = self.measures.capacity(TRANSCRIBE), self.measures.capacity(SURVEY)
        survey_of, engine_of = bucket_survey_s, bucket_work_s
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
        """The same with others in the survey's line, which does not know of them yet."""
        line = self.lines[SURVEY.name].joined_by(others)
        return replace(self, lines={**self.lines, SURVEY.name: line})

    # -- the parts of a forecast ------------------------------------------------------------

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
                work_of=WORK_OF[stage.name],
            )
            before_s = expected_s
            expected_s = with_overtaking(base_s, capacity.speed, overtaking)
            if abs(expected_s - before_s) <= 0.05 * expected_s:
                break
        return expected_s

    def _work_before(
        self, stage: Stage, place: Waiting, asked: Mapping[str, Ahead] | None = None
    ) -> WorkAt:
        """Work that waits before a place at `stage`, as a function of the moment.

        For the engine that is also what is not surveyed yet and outranks it: it will come first.
        `asked`: who was found ahead of it in a line just now.
        """
        lines = (SURVEY,) if stage is SURVEY else STAGES
        work_of = WORK_OF[stage.name]

        def waits(line: str, moment: int) -> float:
            table = pairs(self.policies[line])
            return _work(self.lines[line].ahead(place, table, moment), work_of)

        # what has come and gone since the look shows in the line that was just asked
        since = {
            line: _work(ahead.by_bucket, work_of) - waits(line, self.now_ms)
            for line, ahead in (asked or {}).items()
        }

        def work(moment: int) -> float:
            names = [line.name for line in lines]
            found = sum(max(0.0, waits(name, moment) + since.get(name, 0.0)) for name in names)
            if stage is TRANSCRIBE:
                coming = self._outranking(SURVEY, place, moment)
                found += sum(work_of(held.bucket) for held, _ in coming)
            return found

        return work

    def _service_s(self, engine: Capacity, own: Amount) -> float:
        return service_s(engine, own, engine.slots - self._busy(TRANSCRIBE))

    @cached_property
    def _inflows(self) -> dict[str, Inflow]:
        return {name: inflow(self.slices, SLICE_S, work_of) for name, work_of in WORK_OF.items()}

    @cached_property
    def _held(self) -> dict[str, list[tuple[Waiting, Amount]]]:
        """Jobs in hand by stage: where they would stand with what is left of them, and that."""
        return {
            stage.name: [
                (self.measures.place_left(held), self.measures.left(held))
                for held in self.in_hand
                if held.state is stage.working
            ]
            for stage in STAGES
        }

    def _outranking(
        self, stage: Stage, place: Waiting | None, moment: int
    ) -> list[tuple[Waiting, Amount]]:
        """Jobs in hand at `stage` that go before `place`; all of them for None."""
        held = self._held[stage.name]
        if place is None:
            return held
        table = pairs(self.policies[stage.name])
        own = order_key(place, table, moment)
        return [one for one in held if order_key(one[0], table, moment) < own]

    def _serving(self, stage: Stage, place: Waiting | None = None, moment: int = 0) -> Amount:
        amounts = [amount for _, amount in self._outranking(stage, place, moment)]
        return Amount(sum(a.work for a in amounts), sum(a.units for a in amounts))

    def _busy(self, stage: Stage) -> int:
        return self._serving(stage).units


def _work(by_bucket: Mapping[int, float], work_of: Callable[[int], float]) -> float:
    return sum(work_of(bucket) * count for bucket, count in by_bucket.items())


def _unmoved(work: Mapping[Stage, float]) -> Callable[[Stage], WorkAt]:
    """Work before a job at each stage, the same at any moment."""
    return lambda stage: lambda _: work[stage]
