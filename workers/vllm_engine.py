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

from pipeline.engine import FirstToken, Heard, Prepared
from pipeline.errors import EngineDead, EngineFull, EnginePoisoned
from pipeline.recording import SAMPLE_RATE_HZ
from workers import fork_server
from workers.in_flight import InFlight, window_length_s
from workers.last_words import LastWords, is_full
from workers.utterances import read_utterances
from workers.vllm_answer import is_poisoned, likely_after, read_first_token, token_logprobs
from workers.vllm_environment import (
    cpu_args,
    cpu_dtype,
    engine_args,
    name_weights,
    on_gpu,
    prepare_environment,
)
from workers.vllm_request import EngineGone, answered, prompt_of, rendered, text_tokens
from workers.whisper_tokens import (
    WhisperTokens,
    detection_params,
    prob_of,
    sampling_params,
)

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.outputs import RequestOutput
    from vllm.v1.engine.async_llm import AsyncLLM

CPU_SLOTS = 16
GPU_SLOTS = 32
"""Knees of the throughput curve: beyond them each window only gets slower."""

SHUTDOWN_S = 2
"""EngineCore gets this long to leave by itself before it is killed."""

POISONED = "The speech engine is poisoned: it answers only '!'."


class VllmEngine:
    """Fulfils `pipeline.engine.SpeechEngine` with vLLM; see there for what each method promises.

    `model` is a folder or a Hugging Face id. `slots` 0 takes the device's knee. `dtype` "auto" is
    bfloat16 on CPUs that have it, else float32; on a GPU vLLM's own choice. `threads` 0 takes all
    cores. `kv_cache_gib` (CPU) and `gpu_memory_utilization` (GPU, share of its memory) bound the
    attention cache. `window_limit_s` is how long an answer is waited for. Start, stop and all
    windows belong to one running event loop.
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
        window_limit_s: float = math.inf,
    ) -> None:
        self._on_gpu = on_gpu()
        self.slots = slots or (GPU_SLOTS if self._on_gpu else CPU_SLOTS)
        self._model = model
        self._dtype = cpu_dtype() if dtype == "auto" and not self._on_gpu else dtype
        self._threads = threads
        self._kv_cache_gib = kv_cache_gib
        self._gpu_memory_utilization = gpu_memory_utilization
        self._window_limit_s = window_limit_s
        self._last_words = LastWords()
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
            self._windows = InFlight(self._window_limit_s)
            await self._warm_up()
        except Exception as error:
            words = self._last_words.take() or str(error)
            await self.stop()
            kind = EngineFull if is_full(words) else EngineDead
            raise kind(f"The speech engine could not be started: {words}") from error

    def _import(self) -> None:
        """Set vLLM's environment and import it; runs on the keeper's thread."""
        self._last_words.ask()
        prepare_environment(model=self._model, threads=self._threads)
        if not self._on_gpu:
            fork_server.start()
        import vllm.v1.engine.async_llm  # noqa: F401

    def _build(self) -> AsyncLLM:
        """Start EngineCore; runs on the keeper's thread. Raises what vLLM does."""
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        # The engine's loop tasks are started by the first window, which is the warm-up.
        with contextlib.nullcontext() if self._on_gpu else fork_server.in_use():
            engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**self._engine_args()))
        self._weights_hash = name_weights(self._model, engine.model_config.hf_config)
        return engine

    def _engine_args(self) -> dict[str, Any]:
        if self._on_gpu:
            limit: dict[str, Any] = {"gpu_memory_utilization": self._gpu_memory_utilization}
        else:
            limit = cpu_args(self._kv_cache_gib)
        return engine_args(self._model, self._dtype, self.slots) | limit

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
        words = text_tokens(self._tokenizer(), vocabulary)
        prompt = self._tokens.prompt(language, task, words)
        features = await self._windows.run(self._render(pcm, prompt))
        return Prepared(pcm, length_s, language, task, vocabulary, features)

    async def transcribe(self, window: Prepared, *, temperature: float = 0.0) -> Heard:
        """See `SpeechEngine`."""
        if self._windows is None or self._tokens is None:
            raise EngineDead("The engine was not started.")
        with self._windows.shares.one_more() as share:
            output = await self._windows.run(self._decode(window.features, temperature))
        said = output.outputs[0]
        prompt = prompt_of(window.features)
        likely = likely_after(output, prompt.index(self._tokens.start))
        if is_poisoned(said) or any(map(math.isnan, likely.values())):
            self._die_of_poison()
        tokens = list(said.token_ids)
        return Heard(
            utterances=read_utterances(
                tokens,
                end_of_text=self._tokens.end,
                first_timestamp=self._tokens.first_timestamp,
                length_s=window.length_s,
                decode=self._decode_text,
                logprobs=token_logprobs(said),
            ),
            language=window.language,
            tokens=len(prompt) + len(tokens),
            mean_logprob=(said.cumulative_logprob or 0.0) / max(1, len(tokens)),
            finish=cast(Literal["stop", "length", "repetition"], said.finish_reason),
            busy_s=share.busy_s,
            no_speech_prob=prob_of(self._tokens.no_speech, likely) if likely else None,
            temperature=temperature,
        )

    async def first_token(self, pcm: bytes) -> FirstToken:
        """See `SpeechEngine`. One token on the window: an encoder pass and a step.

        A model that hears English only has no choice of language and is not asked.
        """
        window_length_s(pcm)
        if self._windows is None or self._tokens is None:
            raise EngineDead("The engine was not started.")
        if not self._tokens.languages:
            return FirstToken("en", 1.0, None)
        request = await self._windows.run(self._render(pcm, [self._tokens.start]))
        with self._windows.shares.one_more():  # charged for itself, not to the windows beside it
            output = await self._windows.run(self._ask(request, detection_params(self._tokens)))
        first = read_first_token(output.outputs[0], self._tokens)
        return first or self._die_of_poison()

    async def _render(self, pcm: bytes, prompt: list[int]) -> Any:
        """The window and the decoder's first tokens as vLLM takes them."""
        engine = self._engine
        if engine is None:
            raise EngineDead("The engine was not started.")
        try:
            return await rendered(engine, pcm, prompt)
        except RuntimeError as error:
            if self._engine is engine:
                raise
            raise EngineDead("The speech engine was put away.") from error  # and its threads

    async def _decode(self, request: Any, temperature: float) -> RequestOutput:
        """The decoder's whole output for one window."""
        assert self._engine is not None
        assert self._tokens is not None
        room = self._engine.model_config.max_model_len - len(prompt_of(request))
        sampling = sampling_params(self._tokens, temperature=temperature, max_tokens=room)
        return await self._ask(request, sampling)

    async def _ask(self, request: Any, sampling: SamplingParams) -> RequestOutput:
        """What the decoder says to a rendered request; cancelling aborts it in the engine."""
        assert self._engine is not None
        assert self._windows is not None
        try:
            return await answered(self._engine, request, sampling, f"w{next(self._numbers)}")
        except EngineGone as error:
            words = self._last_words.take()
            kind = EngineFull if is_full(words) else EngineDead
            self._windows.die(f"The speech engine died under a window: {words or 'killed'}", kind)
            raise EngineDead from error

    def _decode_text(self, ids: list[int]) -> str:
        return str(self._tokenizer().decode(ids))

    def _tokenizer(self) -> Any:
        return cast(Any, self._engine).get_tokenizer()

    def _die_of_poison(self) -> NoReturn:
        assert self._windows is not None
        self._windows.die(POISONED, EnginePoisoned)
        raise EnginePoisoned(POISONED)

    def fewer_slots(self) -> bool:
        """See `SpeechEngine`. Fewer windows are encoded at once then, and less is kept of each."""
        before, self.slots = self.slots, max(1, self.slots // 2)
        return self.slots < before

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
        self._last_words.take()
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
