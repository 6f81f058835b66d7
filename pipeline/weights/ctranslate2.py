"""Read a CTranslate2 checkpoint (`model.bin`): names and arrays, nothing else.

The layout, little-endian: format version (u32), spec name, spec revision (u32), number of
variables (u32), then for each its name, rank (u8), dimensions (u32 each), dtype (u8), size in
bytes (u32) and the values. Names are a length (u16) and that many bytes, a NUL last. Aliases
close the file. Every length is checked against what is left before it is used.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.errors import BadRequest

FORMAT_VERSION = 6
SPEC_NAME = "WhisperSpec"
RANK_LIMIT = 4
"""Whisper's convolutions have three dimensions; more is not a Whisper checkpoint."""

DTYPES: dict[int, type[np.generic]] = {
    0: np.float32,
    1: np.int8,
    2: np.int16,
    3: np.int32,
    4: np.float16,
}
"""bfloat16 (5) is left out: numpy has no such type, and no packaged checkpoint uses it."""

Tensors = dict[str, npt.NDArray[np.generic]]


@dataclass
class _Cursor:
    """A position in the file's bytes; each reading moves it and none runs past the end."""

    raw: memoryview
    at: int = 0

    def take(self, count: int, what: str) -> memoryview:
        if count > len(self.raw) - self.at:
            raise BadRequest(f"The checkpoint is cut off in {what} (byte {self.at}).")
        piece = self.raw[self.at : self.at + count]
        self.at += count
        return piece

    def number(self, form: str, what: str) -> int:
        return int(struct.unpack("<" + form, self.take(struct.calcsize(form), what))[0])

    def name(self, what: str) -> str:
        piece = bytes(self.take(self.number("H", what), what))
        try:
            return piece.removesuffix(b"\0").decode("ascii")
        except UnicodeDecodeError:
            raise BadRequest(f"The checkpoint has {what} that is not text.") from None


def read_checkpoint(raw: bytes) -> Tensors:
    """All tensors of a Whisper checkpoint by their CTranslate2 names, aliases included.

    The arrays are views into `raw`. Raises `BadRequest` when `raw` is not such a checkpoint, is
    cut off, or states sizes that contradict each other.
    """
    cursor = _Cursor(memoryview(raw))
    version = cursor.number("I", "the header")
    if version != FORMAT_VERSION:
        raise BadRequest(
            f"Not a CTranslate2 checkpoint of format {FORMAT_VERSION}: it begins with {version}."
        )
    spec = cursor.name("the header")
    if spec != SPEC_NAME:
        raise BadRequest(f"The checkpoint holds a {spec!r} model, expected {SPEC_NAME!r}.")
    cursor.number("I", "the header")  # the spec's revision: the tensors themselves are checked
    count = cursor.number("I", "the header")
    tensors = dict(_read_tensor(cursor) for _ in range(count))
    for _ in range(cursor.number("I", "the aliases")):
        alias, target = cursor.name("an alias"), cursor.name("an alias")
        if target not in tensors:
            raise BadRequest(f"The checkpoint's alias {alias!r} points at nothing ({target!r}).")
        tensors[alias] = tensors[target]
    return tensors


def _read_tensor(cursor: _Cursor) -> tuple[str, npt.NDArray[np.generic]]:
    name = cursor.name("a tensor's name")
    rank = cursor.number("B", name)
    if rank > RANK_LIMIT:
        raise BadRequest(f"The checkpoint's {name} claims {rank} dimensions.")
    shape = tuple(cursor.number("I", name) for _ in range(rank))
    code = cursor.number("B", name)
    size = cursor.number("I", name)
    if code not in DTYPES:
        raise BadRequest(f"The checkpoint's {name} has an unknown number format ({code}).")
    dtype = np.dtype(DTYPES[code])
    if math.prod(shape) * dtype.itemsize != size:
        raise BadRequest(f"The checkpoint's {name} claims shape {shape} in {size} bytes.")
    return name, np.frombuffer(cursor.take(size, name), dtype).reshape(shape)
