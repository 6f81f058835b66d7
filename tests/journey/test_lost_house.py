"""A house that is lost with everybody in it is restored elsewhere, without those who left it."""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import psutil
import pytest

from tests import sounds
from tests.journey.house import House, throwaway_home, until

JOBS = 30


@pytest.mark.slow
def test_all_of_a_lost_house_is_there_again_but_what_was_erased(
    running: Callable[..., AbstractContextManager[House]], tmp_path: Path
) -> None:
    # Given a house with jobs that ended, that wait, that are in work, and one that is no audio
    sound = sounds.wav(sounds.voice(20.0))
    calls = [sounds.write(tmp_path, f"{n:02}.wav", sound) for n in range(JOBS - 1)]
    calls.append(sounds.write(tmp_path, "none.wav", b"RIFF, and no more"))
    slow = {"ENGINE": "echo", "ECHO_FIXED_S": "1.0", "SLOTS": "1"}
    with throwaway_home() as place:
        backup, lost = place / "backup", place / "storage"
        with running(**slow) as old:
            ids = old.submit(*calls, batch="b")
            done = until(lambda: completed(old) if len(completed(old)) >= 5 else None, 120, "five")
            words = {job_id: old.transcript(job_id) for job_id in done}
            old.cli("backup", backup)
            # When two are erased and more come, and all of it is killed at once
            erased = [done[0], next(i for i in ids.values() if i not in completed(old))]
            old.cli("delete", *erased, "--yes")
            old.submit(calls[0], batch="later")
            killed = old.processes()
            for process in killed:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
            psutil.wait_procs(killed, 10)
            shutil.move(old.home / "storage", lost)
        # And its backup is restored in a new house, with what is left of its storage
        with running(ENGINE="echo") as new:
            told = new.cli("restore", backup, "--erased", lost)
            assert (told["jobs"], told["tombstones"], told["erased_again"]) == (JOBS, 2, 2)
            # Then all of the backup is there, what was in work is completed, and two are gone
            jobs = new.ended("b", JOBS - 2, 120)
            assert {job["id"] for job in jobs} == set(ids.values()) - set(erased)
            states = [job["status"] for job in jobs]
            assert states.count("completed") == JOBS - 3
            assert states.count("failed") == 1
            for job_id in set(words) - set(erased):
                assert new.transcript(job_id) == words[job_id]
            left = {p.name[:36] for p in (new.home / "storage" / "recordings").iterdir()}
            assert not left & set(erased)
            assert new.jobs("later") == []


def completed(house: House) -> list[str]:
    return [job["id"] for job in house.jobs("b") if job["status"] == "completed"]
