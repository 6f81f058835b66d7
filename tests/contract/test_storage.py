"""What storage promises: whole, durable, erased, or a named error; and nothing half done.

One suite for each fulfilment. The object store is obstore's own in memory, which knows neither
folders nor descriptors, like the ones behind a URL.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from pipeline.errors import EmptyRecording, PartDown, RecordingMissing, SoundUnreadable, TooLarge
from pipeline.intake import storage as storage_module
from pipeline.intake.storage import Storage

KEY = "recordings/01890a5d-ac96-774b-bcce-b302099a8057"
LIMIT = 1 << 30


@pytest.fixture(params=["folder", "object store"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "folder":
        return Storage(tmp_path / "storage")
    found = Storage("memory:///")
    assert isinstance(found._store, MemoryStore)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "storage"


def megabytes(count: int) -> Iterator[bytes]:
    """An upload, in the pieces a web server hands over."""
    for number in range(count * 16):
        yield bytes([number % 256]) * 65_536


@pytest.mark.parametrize("count", [1, 17], ids=["one piece", "many parts"])
def test_what_was_put_comes_back(storage: Storage, count: int) -> None:
    whole = b"".join(megabytes(count))
    size_bytes, sha256 = storage.put(KEY, megabytes(count), LIMIT)
    assert (size_bytes, sha256) == (len(whole), hashlib.sha256(whole).hexdigest())
    assert storage.size(KEY) == len(whole)
    assert storage.read_range(KEY, 0, len(whole)) == whole
    assert storage.read_range(KEY, 65_530, 10) == whole[65_530:65_540]
    assert storage.read_range(KEY, 5, 0) == b""


def test_a_descriptor_reads_the_whole_recording_and_writes_nothing(storage: Storage) -> None:
    storage.put(KEY, [b"call", b" one"], LIMIT)
    fd = storage.open_fd(KEY)
    try:
        assert os.pread(fd, 100, 0) == b"call one"
        assert os.get_inheritable(fd) is False
    finally:
        os.close(fd)


def test_a_descriptor_outlives_its_key(storage: Storage) -> None:
    storage.put(KEY, [b"call"], LIMIT)
    fd = storage.open_fd(KEY)
    storage.delete(KEY)
    assert os.pread(fd, 100, 0) == b"call"
    os.close(fd)


@pytest.mark.parametrize("count", [1, 17])
def test_a_file_over_the_limit_leaves_nothing(storage: Storage, count: int) -> None:
    with pytest.raises(TooLarge, match="1000000 bytes"):
        storage.put(KEY, megabytes(count), 1_000_000)
    with pytest.raises(RecordingMissing):
        storage.size(KEY)


def test_a_file_of_exactly_the_limit_is_taken(storage: Storage) -> None:
    assert storage.put(KEY, [b"12345", b"67890"], 10)[0] == 10


@pytest.mark.parametrize("chunks", [[], [b"", b""]])
def test_an_empty_file_is_refused_and_leaves_nothing(storage: Storage, chunks: list[bytes]) -> None:
    with pytest.raises(EmptyRecording):
        storage.put(KEY, chunks, LIMIT)
    with pytest.raises(RecordingMissing):
        storage.size(KEY)


@pytest.mark.parametrize("count", [1, 17])
def test_an_upload_that_breaks_off_leaves_nothing_and_says_so_itself(
    storage: Storage, count: int
) -> None:
    def broken() -> Iterator[bytes]:
        yield from megabytes(count)
        raise ConnectionResetError("the sender hung up")

    with pytest.raises(ConnectionResetError, match="hung up"):
        storage.put(KEY, broken(), LIMIT)
    with pytest.raises(RecordingMissing):
        storage.size(KEY)


def test_what_is_not_there_is_missing(storage: Storage) -> None:
    for ask in (storage.size, storage.open_fd, lambda key: storage.read_range(key, 0, 1)):
        with pytest.raises(RecordingMissing):
            ask(KEY)


def test_one_file_that_cannot_be_read_is_told_from_a_store_that_answers_nobody(
    folder: Path,
) -> None:
    store = Storage(folder)
    asks = (store.size, store.open_fd, lambda key: store.read_range(key, 0, 1))
    (folder / "recordings").mkdir()
    (folder / KEY).symlink_to((folder / KEY).name)  # leads to itself: root cannot open it either
    for ask in asks * 2:
        with pytest.raises(SoundUnreadable):
            ask(KEY)
    assert not store.breaker.is_open
    (folder / KEY).unlink()
    (folder / "recordings").rmdir()
    (folder / "recordings").symlink_to("recordings")
    for ask in asks:
        with pytest.raises(PartDown) as down:
            ask(KEY)
        assert not isinstance(down.value, SoundUnreadable)
    assert store.breaker.is_open


def test_a_range_beyond_the_end_is_missing(storage: Storage) -> None:
    storage.put(KEY, [b"call"], LIMIT)
    for start in (2, 100):
        with pytest.raises(RecordingMissing, match="shorter"):
            storage.read_range(KEY, start, 4)


def test_deleting_twice_is_as_good_as_once(storage: Storage) -> None:
    storage.put(KEY, [b"call"], LIMIT)
    storage.delete(KEY)
    storage.delete(KEY)
    with pytest.raises(RecordingMissing):
        storage.size(KEY)


@pytest.mark.parametrize(
    "key", ["../passwd", "recordings/../../x", "/etc/passwd", "recordings/a b", "recordings/", ""]
)
def test_a_key_that_is_not_ours_is_refused(storage: Storage, key: str) -> None:
    with pytest.raises(ValueError, match="not a storage key"):
        storage.put(key, [b"x"], LIMIT)
    for ask in (storage.size, storage.open_fd, storage.delete):
        with pytest.raises(ValueError, match="not a storage key"):
            ask(key)


def test_file_and_folders_are_flushed_before_put_returns(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[Path] = []
    monkeypatch.setattr(storage_module, "_fsync", flushed.append)
    storage = Storage(folder)
    storage.put(KEY, [b"call"], LIMIT)
    assert flushed == [folder / KEY, folder / "recordings", folder]


def test_a_failed_flush_is_not_told_as_success(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(storage_module, "_fsync", fail)
    with pytest.raises(PartDown, match="full"):
        Storage(folder).put(KEY, [b"call"], LIMIT)


def test_a_folder_that_went_away_is_a_part_that_is_down(folder: Path) -> None:
    storage = Storage(folder)
    (folder / "recordings").write_text("a file stands where the folder should be")
    with pytest.raises(PartDown, match="Storage does not answer"):
        storage.put(KEY, [b"call"], LIMIT)


def test_a_full_disk_is_told_in_a_sentence() -> None:
    with pytest.raises(PartDown, match=r"^Storage is full\.$"), storage_module._telling():
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_link_put_in_place_of_a_recording_is_not_followed(folder: Path, tmp_path: Path) -> None:
    storage = Storage(folder)
    (folder / "recordings").mkdir()
    (tmp_path / "secret").write_text("not a recording")
    (folder / KEY).symlink_to(tmp_path / "secret")
    with pytest.raises(PartDown):
        storage.open_fd(KEY)
