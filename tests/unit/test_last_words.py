"""What an engine leaves behind when it dies, and what of it means that memory was full."""

from __future__ import annotations

import importlib.util
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from workers.last_words import DEATH, FULL, LOGGER, VARIABLE, LastWords, is_full

DYING = f"""
import logging, os, sys
from workers.last_words import listen
listen(); listen()
log = logging.getLogger({LOGGER!r})
log.addHandler(logging.NullHandler()); log.propagate = False
def told(text, error):
    try:
        raise error
    except Exception:
        log.exception(text)
told("Unexpected error pre-processing request %s", ValueError("of one request"))
if len(sys.argv) > 1:
    told("EngineCore encountered a fatal error.", RuntimeError(sys.argv[1]))
"""


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LastWords:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv(VARIABLE, "")
    asking = LastWords()
    asking.ask()
    return asking


def die(*of: str) -> None:
    subprocess.run([sys.executable, "-c", DYING, *of], check=True, env=dict(os.environ))


def test_an_engines_last_words_are_read_once(words: LastWords) -> None:
    die("CUDA out of memory.\n  Tried to allocate 2.00 GiB.")
    assert words.take() == "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB."
    assert words.take() == ""


def test_an_error_of_one_request_is_no_last_word(words: LastWords) -> None:
    die()
    assert words.take() == ""


def test_words_are_written_for_us_alone_and_through_no_link(
    words: LastWords, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    path = Path(os.environ[VARIABLE])
    path.symlink_to(victim)
    die("over")
    assert victim.read_text() == "mine"
    assert path.stat().st_mode & 0o077 == 0
    assert words.take() == "RuntimeError: over"


def test_without_anybody_to_read_them_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert LastWords().take() == ""
    handlers = list(logging.getLogger(LOGGER).handlers)
    die("nobody asked")
    assert logging.getLogger(LOGGER).handlers == handlers


@pytest.mark.parametrize(
    ("said", "full"),
    [
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has", True),
        ("AcceleratorError: CUDA error: out of memory", True),
        ("RuntimeError: CUDA out of memory occurred when warming up sampler with 32", True),
        ("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you", True),
        ("ValueError: No available memory for the cache blocks. Try increasing `gpu_", True),
        ("RuntimeError: Worker failed with error 'CUDA out of memory. Tried to", True),
        # more slots or fewer, it is an operator's setting or somebody else on the GPU
        ("ValueError: Free memory on device cuda:0 (3.1/79.2 GiB) on startup is less", False),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", False),
        ("ValueError: model type `bert` is not supported", False),
        ("", False),
    ],
)
def test_full_memory_is_told_from_other_deaths(said: str, full: bool) -> None:
    assert is_full(said) is full


def test_the_texts_are_those_of_the_vllm_that_is_installed() -> None:
    found = importlib.util.find_spec("vllm")
    if found is None or found.origin is None:
        pytest.skip("vllm is not installed")
    vllm = Path(found.origin).parent
    cache = (vllm / "v1/core/kv_cache_utils.py").read_text()
    assert "No available memory for the cache blocks" in cache
    assert 'larger than the available KV cache "\n            f"memory (' in cache
    core = (vllm / "v1/engine/core.py").read_text()
    for told in ("EngineCore failed to start.", "EngineCore encountered a fatal error."):
        assert f'logger.exception("{told}")' in core
        assert DEATH in told
    assert "logger = init_logger(__name__)" in core
    assert "out of memory" in FULL
