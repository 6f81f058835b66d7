"""What a recording is told that the speech engine died of too often, by what it died of."""

from __future__ import annotations

from pipeline.errors import (
    EngineCrashedOnJob,
    EngineDead,
    EngineFull,
    EngineHung,
    EnginePoisoned,
    JobFailed,
    WindowHung,
)

NONSENSE = "The speech engine answered this recording, alone, with nonsense each time."
NO_MEMORY = "The speech engine ran out of memory over this recording, alone, each time."


def blamed(death: EngineDead) -> JobFailed:
    """The reason of a job that was alone in an engine that died like this, once too often."""
    if isinstance(death, EngineHung):
        return WindowHung()
    if isinstance(death, EnginePoisoned):
        return EngineCrashedOnJob(NONSENSE)
    if isinstance(death, EngineFull):
        return EngineCrashedOnJob(NO_MEMORY)
    return EngineCrashedOnJob()
