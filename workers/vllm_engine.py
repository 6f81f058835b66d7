"""The speech engine that hears: vLLM's AsyncLLM with a Whisper model, one window a request.

The model runs in a child process, EngineCore: forked from our fork server on a CPU, spawned by vLLM
on a GPU. Either way the program's main script must be importable, and a process that may not have
children (a Celery prefork child) cannot use this.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import math
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, cast

import numpy as np

from pipeline.engine import FirstToken, Heard, Prepared
from pipeline.errors import BadRequest, EngineDead, WindowRefused
from pipeline.recording import SAMPLE_RATE_HZ
from pipeline.weights import weights_hash
from workers import fork_server
from workers.in_flight import InFlight, window_length_s
from workers.utterances import read_utterances
from workers.vllm_environment import cpu_dtype, on_gpu, prepare_environment
from workers.whisper_tokens import (
    WhisperTokens,
    detection_params,
    sampling_params,
    share_of,
)

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.outputs import CompletionOutput
    from vllm.v1.engine.async_llm import AsyncLLM

CPU_SLOTS = 16
GPU_SLOTS = 32
"""Knees of the throughput curve: beyond them each window only gets slower."""

TOKENS_A_STEP = 8 * 1536
"""Eight windows (1500 encoder tokens each) are encoded at once; vLLM's default encodes one."""

SHUTDOWN_S = 2
"""EngineCore gets this long to leave by itself before it is killed."""

GIB = 1 << 30
FINISHES = ("stop", "length", "repetition")
POISON = 0
"""The token NaN logits decode to ("!")."""
POISON_COUNT = 3
"""So many of it and nothing else; repetition detection ends the output there."""

POISONED = "The speech engine is poisoned: it answers only '!'."


def prompt_length(request: Any) -> int:
    """Tokens the decoder of a rendered request is made to say first."""
    return len(request["decoder_prompt"]["prompt_token_ids"])


class VllmEngine:
    """Fulfils `pipeline.engine.SpeechEngine` with vLLM; see there for what each method promises.

    `model` is a folder or a Hugging Face id. `slots` 0 takes the device's knee. `dtype` "auto" is
    bfloat16 on CPUs that have it, else float32; on a GPU vLLM's own choice. `threads` 0 takes all
    cores. `kv_cache_gib` (CPU) and `gpu_memory_utilization` (GPU, share of its memory) bound the
    attention cache. Start, stop and all windows belong to one running event loop.
    """

    name = "vllm"

    def __init__(
        self,
        model: str,
        *,
        slots: int = 0,
        dtype: str = "auto",
        threads: int = 0,
        kv_cache_gib: float = 1.0,
        gpu_memory_utilization: float = 0.9,
    ) -> None:
        self._on_gpu = on_gpu()
        self.slots = slots or (GPU_SLOTS if self._on_gpu else CPU_SLOTS)
        self._model = model
        self._dtype = cpu_dtype() if dtype == "auto" and not self._on_gpu else dtype
        self._threads = threads
        self._kv_cache_gib = kv_cache_gib
        self._gpu_memory_utilization = gpu_memory_utilization
        self._keeper: ThreadPoolExecutor | None = None
        self._building: asyncio.Future[AsyncLLM] | None = None
        self._engine: AsyncLLM | None = None
        self._tokens: WhisperTokens | None = None
        self._windows: InFlight | None = None
        self._weights_hash: str | None = None
        self._numbers = itertools.count()

    async def start(self) -> None:
        """See `SpeechEngine`. Also after a death or `stop`; does nothing while alive.

        Importing vLLM takes some ten seconds and building the engine as long again; both happen
        on a thread of their own, so that the loop goes on serving leases and signals. The thread
        lives until `stop`: EngineCore dies with the thread that started it.
        """
        if self.alive():
            return
        await self._put_away()
        if self._keeper is None:
            self._keeper = ThreadPoolExecutor(1, thread_name_prefix="vllm-keeper")
        # Imported in a job of its own: vLLM keeps an exception of its import, which keeps all
        # frames it passed, and one of `_build`'s would keep the engine for ever.
        self._keeper.submit(self._import)
        loop = asyncio.get_running_loop()
        self._building = loop.run_in_executor(self._keeper, self._build)
        try:
            # Shielded: building cannot be interrupted, so `stop` must still find its outcome.
            self._engine = engine = await asyncio.shield(self._building)
            config = engine.model_config
            generation = config.try_get_generation_config()
            self._tokens = WhisperTokens.from_configs(config.hf_config, generation)
            self._windows = InFlight()
            await self._warm_up()
        except Exception as error:
            await self.stop()
            raise EngineDead(f"The speech engine could not be started: {error}") from error

    def _import(self) -> None:
        """Set vLLM's environment and import it; runs on the keeper's thread."""
        prepare_environment(model=self._model, threads=self._threads)
        if not self._on_gpu:
            fork_server.start()
        import vllm.v1.engine.async_llm  # noqa: F401

    def _build(self) -> AsyncLLM:
        """Start EngineCore; runs on the keeper's thread. Raises what vLLM does."""
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        # The engine's loop tasks are started by the first window, which is the warm-up.
        starting = contextlib.nullcontext() if self._on_gpu else fork_server.in_use()
        with starting:
            engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**self._engine_args()))
        self._weights_hash = self._hash_weights(engine)
        return engine

    def _engine_args(self) -> dict[str, Any]:
        args: dict[str, Any] = {
            "model": self._model,
            "dtype": self._dtype,
            "max_num_seqs": self.slots,
            "max_num_batched_tokens": TOKENS_A_STEP,
            "limit_mm_per_prompt": {"audio": 1},
            "disable_log_stats": True,
        }
        if self._on_gpu:
            return args | {"gpu_memory_utilization": self._gpu_memory_utilization}
        # Compiling doubles the start and gains nothing on a CPU. In bytes, for the variable
        # VLLM_CPU_KVCACHE_SPACE takes whole GiB only.
        return args | {
            "enforce_eager": True,
            "kv_cache_memory_bytes": int(self._kv_cache_gib * GIB),
        }

    def _hash_weights(self, engine: AsyncLLM) -> str | None:
        """Name the weights: by content where they are a folder of ours, else by hub commit."""
        try:
            return weights_hash(Path(self._model))
        except (BadRequest, OSError):
            commit = getattr(engine.model_config.hf_config, "_commit_hash", None)
            return f"commit {commit}" if commit else None

    async def _warm_up(self) -> None:
        assert self._tokens is not None
        language = next(iter(self._tokens.languages), "en")
        silence = bytes(2 * SAMPLE_RATE_HZ)
        await self.transcribe(await self.prepare(silence, language=language))

    async def prepare(
        self, pcm: bytes, *, language: str, task: str = "transcribe", vocabulary: str = ""
    ) -> Prepared:
        """See `SpeechEngine`. What takes time is the mel spectrogram, in vLLM's own thread."""
        length_s = window_length_s(pcm)
        if self._windows is None or self._tokens is None:
            raise EngineDead("The engine was not started.")
        prompt = self._tokens.prompt(language, task)
        features = await self._render(pcm, prompt)
        return Prepared(pcm, length_s, language, task, vocabulary, features)

    async def transcribe(self, window: Prepared, *, temperature: float = 0.0) -> Heard:
        """See `SpeechEngine`."""
        if self._windows is None or self._tokens is None:
            raise EngineDead("The engine was not started.")
        with self._windows.shares.one_more() as share:
            said = await self._windows.run(self._decode(window.features, temperature))
        self._check_poison(said)
        tokens = list(said.token_ids)
        return Heard(
            utterances=read_utterances(
                tokens,
                end_of_text=self._tokens.end,
                first_timestamp=self._tokens.first_timestamp,
                length_s=window.length_s,
                decode=self._decode_text,
            ),
            language=window.language,
            tokens=prompt_length(window.features) + len(tokens),
            mean_logprob=(said.cumulative_logprob or 0.0) / max(1, len(tokens)),
            finish=cast(Literal["stop", "length", "repetition"], said.finish_reason),
            busy_s=share.busy_s,
        )

    async def first_token(self, pcm: bytes) -> FirstToken:
        """See `SpeechEngine`. One token on the window: an encoder pass and a step."""
        window_length_s(pcm)
        if self._windows is None or self._tokens is None:
            raise EngineDead("The engine was not started.")
        if not self._tokens.languages:
            return FirstToken("en", 1.0, 0.0)
        request = await self._render(pcm, [self._tokens.start])
        with self._windows.shares.one_more():  # charged for itself, not to the windows beside it
            said = await self._windows.run(self._ask(request, detection_params(self._tokens)))
        token = said.token_ids[0]
        likely = {i: one.logprob for i, one in said.logprobs[0].items()} if said.logprobs else {}
        if not math.isfinite(likely.get(token, math.nan)):
            self._die_of_poison()
        share = share_of(token, likely, self._tokens.languages.values())
        return FirstToken(self._tokens.language_of(token), share, 0.0)

    async def _render(self, pcm: bytes, prompt: list[int]) -> Any:
        """The window and the decoder's first tokens as vLLM takes them."""
        from vllm.renderers.inputs.preprocess import parse_model_prompt

        engine = self._engine
        if engine is None:
            raise EngineDead("The engine was not started.")
        # From integers, so always finite: one NaN would poison the cache for later windows too.
        samples = np.frombuffer(pcm, "<i2").astype(np.float32) / 32768.0
        audio = {"prompt": "", "multi_modal_data": {"audio": (samples, SAMPLE_RATE_HZ)}}
        request = {"encoder_prompt": audio, "decoder_prompt": {"prompt_token_ids": prompt}}
        try:
            (rendered,) = await engine.renderer.render_cmpl_async(
                [parse_model_prompt(engine.model_config, request)]
            )
        except ValueError as error:
            raise WindowRefused(f"The speech engine refused the window: {error!r}.") from error
        except RuntimeError as error:
            if self._engine is engine:
                raise
            raise EngineDead("The speech engine was put away.") from error  # and its threads
        return rendered

    async def _decode(self, request: Any, temperature: float) -> CompletionOutput:
        """The decoder's whole output for one window."""
        assert self._engine is not None
        assert self._tokens is not None
        room = self._engine.model_config.max_model_len - prompt_length(request)
        sampling = sampling_params(self._tokens, temperature=temperature, max_tokens=room)
        return await self._ask(request, sampling)

    async def _ask(self, request: Any, sampling: SamplingParams) -> CompletionOutput:
        """What the decoder says to a rendered request; cancelling aborts it in the engine."""
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        engine = self._engine
        assert engine is not None
        assert self._windows is not None
        said = None
        try:
            async for output in engine.generate(request, sampling, f"window-{next(self._numbers)}"):
                said = output.outputs[0]
        except EngineDeadError as error:
            self._windows.die("The speech engine died under a window.")
            raise EngineDead from error
        except (EngineGenerateError, ValueError) as error:
            raise WindowRefused(f"The speech engine refused the window: {error!r}.") from error
        if said is None or said.finish_reason not in FINISHES:
            raise EngineDead("The speech engine gave up a window.")
        return said

    def _decode_text(self, ids: list[int]) -> str:
        assert self._engine is not None
        return str(self._engine.get_tokenizer().decode(ids))

    def _check_poison(self, said: CompletionOutput) -> None:
        """Raise `EngineDead`, for this and all other windows, when the output is NaN's."""
        ids = set(said.token_ids)
        poisoned = ids == {POISON} and len(said.token_ids) >= POISON_COUNT
        if poisoned or not math.isfinite(said.cumulative_logprob or 0.0):
            self._die_of_poison()

    def _die_of_poison(self) -> NoReturn:
        assert self._windows is not None
        self._windows.die(POISONED)
        raise EngineDead(POISONED)

    def alive(self) -> bool:
        """See `SpeechEngine`."""
        if self._engine is None or self._windows is None:
            return False
        return not self._windows.dead and not self._engine.errored

    def provenance(self) -> dict[str, Any]:
        """See `SpeechEngine`. `dtype` is what vLLM really uses, once it is started."""
        dtype = str(self._engine.model_config.dtype) if self._engine else self._dtype
        local = Path(self._model).is_dir()
        return {
            # A folder's name and not its path: provenance is public, a machine's layout is not.
            "model": Path(self._model).name if local else self._model,
            "weights_hash": self._weights_hash,
            "engine": self.name,
            "dtype": dtype.removeprefix("torch."),
        }

    async def stop(self) -> None:
        """See `SpeechEngine`. Windows in flight end with `EngineDead`; takes about 2 s."""
        await self._put_away()
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await asyncio.get_running_loop().run_in_executor(keeper, fork_server.stop)
            keeper.shutdown(wait=False)

    async def _put_away(self) -> None:
        """End EngineCore, dead or alive; the fork server stays and makes the next start short."""
        if self._windows is not None:
            self._windows.die("The engine was stopped.")
        building, self._building, self._engine = self._building, None, None
        keeper = self._keeper
        if building is None or keeper is None:
            return
        loop = asyncio.get_running_loop()
        try:
            engine = await asyncio.shield(building)
            if engine.output_handler is not None:
                engine.output_handler.cancel()  # else it logs the end of EngineCore as an error
            await loop.run_in_executor(keeper, partial(engine.shutdown, timeout=SHUTDOWN_S))
            await asyncio.sleep(0)  # vLLM closes its sockets on the loop, once shutdown returned
            # It is full of cycles; left to the interpreter's last moments it complains in vain.
            del engine, building
            await loop.run_in_executor(keeper, gc.collect)
            multiprocessing.active_children()  # collects the ended child, which vLLM does not
        except Exception:
            pass  # it never came up, or is half dead already: nothing of it is left to end
