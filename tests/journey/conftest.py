"""What was said by the parts of `fairscribe up`, shown when a journey failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.journey.house import House, house


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest) -> Callable[..., AbstractContextManager[House]]:
    """Starts a house; prints its last words at the end if a test failed meanwhile."""

    @contextmanager
    def start(**settings: str) -> Iterator[House]:
        failed_before = request.session.testsfailed
        with house(**settings) as made:
            yield made
            if request.session.testsfailed > failed_before:
                print(made.last_words())

    return start
