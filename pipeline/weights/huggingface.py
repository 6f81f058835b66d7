"""Write Whisper tensors as a Hugging Face folder: renamed, unfused, with its five JSON files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.errors import BadRequest
from pipeline.weights.ctranslate2 import Tensors

FILES = (
    "model.safetensors",
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "preprocessor_config.json",
    "generation_config.json",
)
"""A folder with all of these, none empty, is complete."""

ENCODER_POSITIONS = 1500
DECODER_POSITIONS = 448
MULTILINGUAL_VOCABULARY = 51_865
"""Vocabularies of this size and more hold languages; the English one is smaller by one."""

_LAYER = {
    "self_attention/layer_norm": "self_attn_layer_norm",
    "self_attention/linear_0": "self_attn.q_proj+k_proj+v_proj",
    "self_attention/linear_1": "self_attn.out_proj",
    "ffn/layer_norm": "final_layer_norm",
    "ffn/linear_0": "fc1",
    "ffn/linear_1": "fc2",
}
_CROSS = {
    "attention/layer_norm": "encoder_attn_layer_norm",
    "attention/linear_0": "encoder_attn.q_proj",
    "attention/linear_1": "encoder_attn.k_proj+v_proj",
    "attention/linear_2": "encoder_attn.out_proj",
}
"""CTranslate2 stacks the projections of one input into one matrix; `+` names its rows in order."""

_KINDS = {"gamma": "weight", "beta": "bias", "weight": "weight", "bias": "bias"}

Array = npt.NDArray[np.generic]


def write_folder(
    folder: Path, tensors: Tensors, tokenizer: bytes, source_config: Mapping[str, Any]
) -> None:
    """Write the six `FILES` into the existing `folder`.

    `tokenizer` is the tokenizer.json to keep as it is, `source_config` the checkpoint's own
    config.json (suppressed tokens, languages). Raises `BadRequest` when a tensor is missing, has
    the wrong shape or is quantised, or the tokenizer lacks Whisper's own tokens.
    """
    from safetensors.numpy import save_file

    weights = dict(_renamed(tensors))
    sizes = _sizes(tensors, weights)
    ids = _special_ids(tokenizer, sizes["vocab_size"])
    save_file(
        {name: np.ascontiguousarray(array) for name, array in weights.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    (folder / "tokenizer.json").write_bytes(tokenizer)
    documents = {
        "config.json": _config(sizes, ids, weights),
        "tokenizer_config.json": _tokenizer_config(),
        "preprocessor_config.json": _preprocessor_config(sizes["num_mel_bins"]),
        "generation_config.json": _generation_config(sizes, ids, source_config),
    }
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _renamed(tensors: Tensors) -> Iterator[tuple[str, Array]]:
    """Every tensor under its Hugging Face name, fused ones cut apart."""
    for side in ("encoder", "decoder"):
        embeddings = f"{side}/position_encodings/encodings"
        yield f"model.{side}.embed_positions.weight", _floats(tensors, embeddings)
        yield from _renamed_one(tensors, f"{side}/layer_norm", f"model.{side}.layer_norm")
        for layer in range(_layer_count(tensors, side)):
            for old, new in (_LAYER if side == "encoder" else _LAYER | _CROSS).items():
                yield from _renamed_one(
                    tensors, f"{side}/layer_{layer}/{old}", f"model.{side}.layers.{layer}.{new}"
                )
    for name in ("conv1", "conv2"):
        yield from _renamed_one(tensors, f"encoder/{name}", f"model.encoder.{name}")
    embeddings = _floats(tensors, "decoder/embeddings/weight")
    yield "model.decoder.embed_tokens.weight", embeddings


def _renamed_one(tensors: Tensors, old: str, new: str) -> Iterator[tuple[str, Array]]:
    prefix, _, rows = new.rpartition(".")
    parts = rows.split("+")
    for kind_before, kind in _KINDS.items():
        if f"{old}/{kind_before}" not in tensors:
            continue
        array = _floats(tensors, f"{old}/{kind_before}")
        if array.shape[0] % len(parts):
            raise BadRequest(f"The checkpoint's {old} cannot be cut into {len(parts)} parts.")
        for part, piece in zip(parts, np.split(array, len(parts)), strict=True):
            # Whisper's keys have no bias; CTranslate2 fills their rows with zeros.
            if not (part == "k_proj" and kind == "bias"):
                yield f"{prefix}.{part}.{kind}", piece


def _floats(tensors: Tensors, name: str) -> Array:
    if name not in tensors:
        raise BadRequest(f"The checkpoint lacks {name}.")
    array = tensors[name]
    if array.dtype not in (np.float16, np.float32):
        raise BadRequest(f"The checkpoint's {name} is quantised ({array.dtype}), expected floats.")
    if array.ndim == 0:
        raise BadRequest(f"The checkpoint's {name} is a single number, expected an array.")
    return array


def _layer_count(tensors: Tensors, side: str) -> int:
    count = 0
    while f"{side}/layer_{count}/self_attention/linear_0/weight" in tensors:
        count += 1
    if count == 0:
        raise BadRequest(f"The checkpoint has no {side} layers.")
    return count
