"""Imported by the fork server and by nobody else: all that EngineCore would import, once.

The import itself is the effect, as multiprocessing wants it of a module to preload. Without vLLM,
or when it fails, EngineCore imports for itself and tells what is wrong.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal

from workers.die_with_parent import die_after, own_engines

MODULES = (
    "vllm.v1.engine.core",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.worker.cpu_worker",
    "vllm.v1.worker.cpu_model_runner",
    "vllm.model_executor.models.whisper",
    "transformers.models.whisper.processing_whisper",
    "transformers.models.whisper.tokenization_whisper",
    "transformers.models.whisper.modeling_whisper",
)

# The worker may be killed in the middle of the imports, when nobody here watches its pipe.
die_after(os.getppid(), signal.SIGKILL)
own_engines()  # EngineCore is to die with this process, which is its parent to the kernel
for module in MODULES:
    with contextlib.suppress(Exception):
        importlib.import_module(module)
