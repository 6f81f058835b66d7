"""Which engine a worker runs, from its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from pipeline.engine import SpeechEngine
from pipeline.weights import find_model
from workers.echo_engine import EchoEngine
from workers.vllm_engine import CPU_SLOTS, VllmEngine


class EngineSettings(Protocol):
    """The part of `pipeline.settings.Settings` an engine is made from."""

    @property
    def engine(self) -> str:
        """`vllm` or `echo`."""
        ...

    @property
    def model(self) -> str:
        """A packaged model's name, a folder or a Hugging Face id."""
        ...

    @property
    def home(self) -> Path:
        """State folder; packaged models are imported under it."""
        ...

    @property
    def slots(self) -> int:
        """Windows in flight; 0 takes the device's own."""
        ...

    @property
    def dtype(self) -> str:
        """Number format, or `auto`."""
        ...

    @property
    def engine_threads(self) -> int:
        """CPU threads; 0 takes all cores."""
        ...

    @property
    def kv_cache_gib(self) -> float:
        """Attention cache on a CPU, GiB."""
        ...

    @property
    def gpu_memory_utilization(self) -> float:
        """Share of a GPU's memory."""
        ...

    @property
    def echo_fixed_s(self) -> float:
        """Echo engine: seconds a window takes at least."""
        ...

    @property
    def echo_per_second_s(self) -> float:
        """Echo engine: more seconds a second of speech."""
        ...


def make_engine(settings: EngineSettings) -> SpeechEngine:
    """The engine the settings name, not yet started.

    Imports a packaged model's weights when they are asked for the first time (a second or so).
    Raises `BadRequest` when they are not there.
    """
    if settings.engine == "echo":
        return EchoEngine(
            slots=settings.slots or CPU_SLOTS,
            fixed_s=settings.echo_fixed_s,
            per_second_s=settings.echo_per_second_s,
        )
    return VllmEngine(
        find_model(settings.model, settings.home),
        slots=settings.slots,
        dtype=settings.dtype,
        threads=settings.engine_threads,
        kv_cache_gib=settings.kv_cache_gib,
        gpu_memory_utilization=settings.gpu_memory_utilization,
    )
