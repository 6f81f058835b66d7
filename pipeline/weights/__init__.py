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

from pipeline.errors import BadRequest
from pipeline.weights.ctranslate2 import read_checkpoint
from pipeline.weights.huggingface import FILES, write_folder

