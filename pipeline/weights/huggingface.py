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
        positions = _floats(tensors, f"{side}/position_encodings/encodings")
        yield f"model.{side}.embed_positions.weight", positions
        yield from _renamed_one(tensors, f"{side}/layer_norm", f"model.{side}.layer_norm")
        for layer in range(_layer_count(tensors, side)):
            for old, new in (_LAYER if side == "encoder" else _LAYER | _CROSS).items():
                yield from _renamed_one(
                    tensors, f"{side}/layer_{layer}/{old}", f"model.{side}.layers.{layer}.{new}"
                )
    for name in ("conv1", "conv2"):
        yield from _renamed_one(tensors, f"encoder/{name}", f"model.encoder.{name}")
    yield "model.decoder.embed_tokens.weight", _floats(tensors, "decoder/embeddings/weight")


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


def _sizes(tensors: Tensors, weights: Mapping[str, Array]) -> dict[str, int]:
    """The model's sizes as config.json names them, read off the tensors and checked on all."""
    width = _floats(tensors, "encoder/layer_norm/gamma").shape[0]
    stated = tensors.get("encoder/num_heads")
    heads = int(stated.flat[0]) if stated is not None and stated.size == 1 else 0
    if heads < 1 or width % heads:
        raise BadRequest(f"The checkpoint has {heads} attention heads for a width of {width}.")
    convolution = weights["model.encoder.conv1.weight"]
    sizes = {
        "d_model": width,
        "encoder_layers": _layer_count(tensors, "encoder"),
        "decoder_layers": _layer_count(tensors, "decoder"),
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": 4 * width,
        "decoder_ffn_dim": 4 * width,
        "num_mel_bins": convolution.shape[1] if convolution.ndim == 3 else 0,
        "vocab_size": weights["model.decoder.embed_tokens.weight"].shape[0],
        "max_source_positions": ENCODER_POSITIONS,
        "max_target_positions": DECODER_POSITIONS,
    }
    expected = dict(_expected_shapes(sizes))
    for name in sorted(expected.keys() | weights.keys()):
        found = weights[name].shape if name in weights else None
        if found != expected.get(name):
            raise BadRequest(f"{name} has shape {found}, expected {expected.get(name)}.")
    return sizes


def _expected_shapes(sizes: Mapping[str, int]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every tensor of a Whisper model of these sizes."""
    d, wide = sizes["d_model"], sizes["encoder_ffn_dim"]
    yield "model.encoder.conv1.weight", (d, sizes["num_mel_bins"], 3)
    yield "model.encoder.conv2.weight", (d, d, 3)
    yield "model.encoder.conv1.bias", (d,)
    yield "model.encoder.conv2.bias", (d,)
    yield "model.encoder.embed_positions.weight", (ENCODER_POSITIONS, d)
    yield "model.decoder.embed_positions.weight", (DECODER_POSITIONS, d)
    yield "model.decoder.embed_tokens.weight", (sizes["vocab_size"], d)
    for side in ("encoder", "decoder"):
        attentions = ["self_attn"] if side == "encoder" else ["self_attn", "encoder_attn"]
        norms = [f"model.{side}.layer_norm"]
        for layer in range(sizes[f"{side}_layers"]):
            at = f"model.{side}.layers.{layer}"
            norms += [f"{at}.final_layer_norm", *(f"{at}.{a}_layer_norm" for a in attentions)]
            for part in (f"{at}.{a}.{p}_proj" for a in attentions for p in ("q", "k", "v", "out")):
                yield f"{part}.weight", (d, d)
                if not part.endswith("k_proj"):
                    yield f"{part}.bias", (d,)
            yield from {f"{at}.fc1.weight": (wide, d), f"{at}.fc2.weight": (d, wide)}.items()
            yield from {f"{at}.fc1.bias": (wide,), f"{at}.fc2.bias": (d,)}.items()
        for norm in norms:
            yield f"{norm}.weight", (d,)
            yield f"{norm}.bias", (d,)


def _special_ids(tokenizer: bytes, vocab_size: int) -> dict[str, int]:
    """Whisper's own tokens and their ids, from tokenizer.json."""
    try:
        ids = {t["content"]: int(t["id"]) for t in json.loads(tokenizer)["added_tokens"]}
    except (ValueError, KeyError, TypeError):
        raise BadRequest("The package's tokenizer.json is not a tokenizer.") from None
    for token in ("<|endoftext|>", "<|startoftranscript|>", "<|transcribe|>", "<|notimestamps|>"):
        if not 0 <= ids.get(token, -1) < vocab_size:
            raise BadRequest(f"The package's tokenizer.json lacks {token}.")
    return ids


def _config(
    sizes: Mapping[str, int], ids: Mapping[str, int], weights: Mapping[str, Array]
) -> dict[str, Any]:
    end = ids["<|endoftext|>"]
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        **sizes,
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": end,
        "decoder_start_token_id": ids["<|startoftranscript|>"],
        "activation_function": "gelu",
        "scale_embedding": False,
        "is_encoder_decoder": True,
        "tie_word_embeddings": True,
        "use_cache": True,
        "torch_dtype": str(weights["model.decoder.embed_tokens.weight"].dtype),
    }


def _tokenizer_config() -> dict[str, Any]:
    end = "<|endoftext|>"
    return {
        "tokenizer_class": "WhisperTokenizer",
        "processor_class": "WhisperProcessor",
        "model_max_length": 1024,
        "bos_token": end,
        "eos_token": end,
        "unk_token": end,
        "pad_token": end,
        "add_prefix_space": False,
        "errors": "replace",
    }


def _preprocessor_config(mel_bins: int) -> dict[str, Any]:
    return {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "WhisperProcessor",
        "chunk_length": 30,
        "feature_size": mel_bins,
        "hop_length": 160,
        "n_fft": 400,
        "n_samples": 480_000,
        "nb_max_frames": 3000,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": False,
        "sampling_rate": 16_000,
    }


def _generation_config(
    sizes: Mapping[str, int], ids: Mapping[str, int], source: Mapping[str, Any]
) -> dict[str, Any]:
    end, many = ids["<|endoftext|>"], sizes["vocab_size"] >= MULTILINGUAL_VOCABULARY
    config: dict[str, Any] = {
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": end,
        "decoder_start_token_id": ids["<|startoftranscript|>"],
        "no_timestamps_token_id": ids["<|notimestamps|>"],
        "max_length": DECODER_POSITIONS,
        "is_multilingual": many,
        "suppress_tokens": source.get("suppress_ids", []),
        "begin_suppress_tokens": source.get("suppress_ids_begin", []),
        "alignment_heads": source.get("alignment_heads", []),
    }
    if many:
        languages = set(source.get("lang_ids", []))
        config["lang_to_id"] = {token: i for token, i in ids.items() if i in languages}
        config["task_to_id"] = {t: ids[f"<|{t}|>"] for t in ("transcribe", "translate")}
    return config
