"""An engine's speed is learned from finished work: robustly, never negative, not from nothing."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.scheduling.learning import PRIOR_JOBS, Done, differs, learn, r2
from pipeline.scheduling.work import KAPPA, KAPPA_DEFAULT, REFERENCE, WorkModel, predicted_work_s


def jobs_of(model: WorkModel, count: int, *, noise: float = 0.0, odd: float = 0.0) -> list[Done]:
    """Calls as an engine of this speed does them, lengths lognormal with a median of two minutes.

    `noise`: standard deviation of a window's time, as a share. `odd`: share of jobs that took ten
    times as long, as on a machine that was put to sleep.
    """
    chance = random.Random(1)
    made = []
    for _ in range(count):
        speech_s = 120 * math.exp(chance.gauss(0, 1))
        windows = math.ceil(speech_s / chance.uniform(20, 29))
        language = chance.choice(list(model.kappa))
        tokens = max(1, round(model.tokens(speech_s, language) * chance.uniform(0.9, 1.1)))
        busy_s = model.job_s + model.window_s * windows + model.token_s * tokens
        busy_s *= 1 + chance.gauss(0, noise / math.sqrt(windows))
        busy_s *= 10 if chance.random() < odd else 1
        made.append(Done(language, speech_s, windows, tokens, max(1e-6, busy_s)))
    return made


def worst_error(learned: WorkModel | None, truth: WorkModel) -> float:
    """How far off typical calls are foretold, as a share."""
    assert learned is not None
    calls = [(s, math.ceil(s / 25), lang) for s in (30, 120, 900) for lang in truth.kappa]
    told = [(learned.predicted_s(*call), truth.predicted_s(*call)) for call in calls]
    return max(abs(a - b) / b for a, b in told)


coefficients = st.builds(
    WorkModel,
    job_s=st.floats(0.001, 0.1),
    window_s=st.floats(0.01, 2.0),
    token_s=st.floats(0.0005, 0.1),
    kappa=st.just({"en": 5.0, "de": 6.0}),
)


@settings(max_examples=25, deadline=None)
@given(coefficients)
def test_known_coefficients_are_found_again_though_one_job_in_ten_is_odd(truth: WorkModel) -> None:
    learned = learn(jobs_of(truth, 600, noise=0.2, odd=0.1))
    assert worst_error(learned, truth) < 0.1
    assert learned is not None
    assert learned.kappa["de"] == pytest.approx(6.0, rel=0.03)


def test_a_thousand_plain_jobs_give_each_coefficient() -> None:
    truth = WorkModel(0.02, 0.1, 0.004, {"en": 5.0})
    learned = learn(jobs_of(truth, 1000, noise=0.1))
    assert learned is not None
    assert learned.window_s == pytest.approx(truth.window_s, rel=0.15)
    assert learned.token_s == pytest.approx(truth.token_s, rel=0.1)
    assert learned.r2 is not None
    assert learned.r2 > 0.99
    assert learned.jobs == 1000


@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            Done,
            language=st.sampled_from(["en", "xx"]),
            speech_s=st.floats(0.1, 20_000),
            windows=st.integers(1, 900),
            tokens=st.integers(1, 200_000),
            busy_s=st.floats(1e-6, 1e6),
        ),
        max_size=40,
    )
)
def test_nothing_learned_is_ever_negative_or_no_number(done: list[Done]) -> None:
    learned = learn(done)
    assert (learned is None) == (not done)
    if learned is not None:
        found = [learned.job_s, learned.window_s, learned.token_s, *learned.kappa.values()]
        assert all(math.isfinite(x) and x >= 0 for x in found)
        assert learned.predicted_s(60.0, 3, "en") >= 0


def test_one_job_tells_how_fast_the_engine_is_and_nothing_else() -> None:
    # A minute of speech in 3 windows that decoded as published, in a twentieth of the time
    one = Done("en", 60.0, 3, round(KAPPA["en"] * 60), predicted_work_s(60.0, 3, "en") / 20)
    learned = learn([one])
    assert learned is not None
    parts = ("job_s", "window_s", "token_s")
    ratios = [getattr(REFERENCE, p) / getattr(learned, p) for p in parts]
    assert ratios == pytest.approx([20, 20, 20], rel=0.01)


def test_few_jobs_are_drawn_to_the_published_tokens_and_many_are_not() -> None:
    def learned(jobs: int) -> float:
        model = learn([Done("xx", 100.0, 4, 800, 5.0)] * jobs)
        assert model is not None
        return model.kappa["xx"]

    # five jobs of 8 tokens a second against as much weight of the default: half way
    assert learned(PRIOR_JOBS) == pytest.approx((8 + KAPPA_DEFAULT) / 2)
    assert learned(1000) == pytest.approx(8, abs=0.05)


def test_a_language_nobody_spoke_keeps_its_published_value() -> None:
    learned = learn([Done("xx", 100.0, 4, 800, 5.0)] * 20)
    assert learned is not None
    assert learned.kappa["es"] == KAPPA["es"]


def test_nothing_is_learned_from_nothing() -> None:
    assert learn([]) is None
    assert learn([Done("en", 0.0, 0, 0, 0.0)]) is None


def test_a_model_is_worth_writing_down_when_it_foretells_something_else() -> None:
    assert differs(REFERENCE, None)
    assert not differs(REFERENCE, REFERENCE)
    for change, expected in ((1.01, False), (1.05, True)):
        other = WorkModel(
            REFERENCE.job_s * change,
            REFERENCE.window_s * change,
            REFERENCE.token_s * change,
            REFERENCE.kappa,
        )
        assert differs(other, REFERENCE) is expected
    assert differs(WorkModel(0.05, 0.566, 0.031, {**KAPPA, "de": 9.0}), REFERENCE)


def test_explained_variance_needs_something_that_varies() -> None:
    assert r2([2.0, 2.0], [2.0, 2.0]) is None
    assert r2([1.0, 3.0], [3.0, 1.0]) == pytest.approx(-3.0)


@pytest.mark.parametrize("odd", [math.nan, math.inf, 1e300, 1e-300, -1.0])
@pytest.mark.parametrize("where", ["busy_s", "speech_s"])
def test_a_number_no_job_has_is_no_job(odd: float, where: str) -> None:
    jobs = jobs_of(REFERENCE, 20)
    assert learn([*jobs, replace(jobs[0], **{where: odd})]) == learn(jobs)
