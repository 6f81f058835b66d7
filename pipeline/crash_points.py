"""Named places where a process can be told to die, so that tests know what each crash leaves.

FAIRSCRIBE_CRASH_AT=after_grant makes the process that reaches that point first end there, as by
kill -9: nothing is flushed, nothing is given back. For tests and `make chaos` only. A
point that does not exist is refused at once: a test that names it would pass without a crash.
"""

from __future__ import annotations

import os

from pipeline.errors import BadSetting

VARIABLE = "FAIRSCRIBE_CRASH_AT"

EXIT_CODE = 9
"""How a process ends that was told to."""

POINTS = (
    "accept_after_store",
    "accept_after_row",
    "fetch_after_store",
    "fetch_after_row",
    "probe_before_keep",
    "probe_after_keep",
    "after_claim",
    "after_grant",
    "after_artefact",
    "after_survey_commit",
    "mid_work",
    "after_transcript_commit",
    "after_complete",
    "give_back_after_postgres",
    "outbox_after_enqueue",
    "reap_after_takeover",
    "reap_after_postgres",
    "cancel_after_postgres",
    "erase_after_tombstone",
    "erase_after_sound",
    "erase_after_row",
    "retry_after_commit",
    "retire_after_sound",
    "delivery_taken",
    "delivery_sent",
)
"""Every point, in the order a recording meets them; those of recovery and of people at the end."""

_told = os.environ.get(VARIABLE)

if _told and _told not in POINTS:
    raise BadSetting(f"{VARIABLE}={_told!r}: expected one of {', '.join(POINTS)}")


def reach(point: str) -> None:
    """End this process if it was told to die at `point`, one of `POINTS`."""
    if _told == point:
        os._exit(EXIT_CODE)
