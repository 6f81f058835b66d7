"""Which engine a worker runs, from its settings."""

from __future__ import annotations

from pipeline.engine import SpeechEngine
from pipeline.settings import Settings
from pipeline.weights import find_model
from workers.echo_engine import EchoEngine
from workers.vllm_engine import CPU_SLOTS, VllmEngine


def make_engine(settings: Settings) -> SpeechEngine:
    """The engine the settings name, not yet started.

    Imports a packaged model's weights when they are asked for the first time (a second or so).
    Raises `BadRequest` when they are not there.
    """
    if settings.engine == "echo":
        return EchoEngine(
            slots=settings.slots or CPU_SLOTS,
            fixed_s=settings.echo_fixed_s,
            per_second_s=settings.echo_per_second_s,
            window_limit_s=settings.window_limit_s,
        )
    return VllmEngine(
        find_model(settings.model, settings.home),
        slots=settings.slots,
        dtype=settings.dtype,
        threads=settings.engine_threads,
        kv_cache_gib=settings.kv_cache_gib,
        gpu_memory_utilization=settings.gpu_memory_utilization,
        window_limit_s=settings.window_limit_s,
    )
