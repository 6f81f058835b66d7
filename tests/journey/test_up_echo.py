"""The whole house by `fairscribe up`, with the echo engine: every part real but the hearing.

One house for the file. The tests go from peace to murder, and the last one stops it.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest
import redis
from kombu import Connection

from pipeline.handover import ERRANDS_QUEUE, PROBE
from pipeline.settings import celery_broker_url
from tests import sounds
from tests.journey.house import CLI, RECORDINGS, House, figures, until
from tests.servers import is_alive
from workers.errands import EVERY_S

MANIFEST = json.loads((RECORDINGS / "manifest.json").read_text())
FILES = [RECORDINGS / name for name in MANIFEST]
LONG, LATE = RECORDINGS / "long_call.mp3", RECORDINGS / "hotel.flac"

QUIET_WITHIN_S = 60.0
"""A peaceful batch takes some seconds; the rest is for a busy machine."""

STORM_WITHIN_S = 120.0
"""A lost probe is asked for again after 30 to 40 s, a lost lease after 17 s."""


@pytest.fixture(scope="module")
def up(running: Any) -> Iterator[House]:
    # Four slots and slow windows: enough is in hand whenever something is killed.
    # Flower may cancel: one test presses its Terminate.
    with running(ENGINE="echo", SLOTS="4", ECHO_FIXED_S="0.5", FLOWER_CONTROL="true") as house:
        yield house


def test_every_recording_is_one_task_in_flower_and_none_of_its_words_is_there(up: House) -> None:
    begun_s = time.monotonic()
    counted = up.worker("transcribe").get("processed", 0)
    answer = up.cli("submit", *FILES, "--batch-id", "peaceful-batch", "--watch")
    line_s = time.monotonic() - begun_s
    ids = {job["file_name"]: job["id"] for job in answer["jobs"]}
    assert sorted(ids) == sorted(MANIFEST)
    assert {job["status"] for job in answer["jobs"]} == {"completed"}
    texts = [up.transcript(job_id)["text"] for job_id in ids.values()]
    assert all(texts)

    # Flower: one task a recording, by the job's id, ended well
    until(lambda: all(up.task(i).get("state") == "SUCCESS" for i in ids.values()), 10, "SUCCESS")
    listed = up.flower("/api/tasks").json()
    tasks = {uuid: task for uuid, task in listed.items() if task["name"] == "transcribe"}
    assert set(tasks) == set(ids.values())
    assert {task["state"] for task in tasks.values()} == {"SUCCESS"}
    assert all(task["received"] and task["started"] and task["runtime"] for task in tasks.values())
    assert {(task["retries"], task["exception"]) for task in tasks.values()} == {(0, None)}
    assert len({task["worker"] for task in tasks.values()}) == 1
    assert {task["worker"].split("@")[0] for task in tasks.values()} == {"transcribe"}
    surveys = [task for task in listed.values() if task["name"] == "survey"]
    assert len(surveys) == len(ids)
    assert {task["worker"].split("@")[0] for task in surveys} == {"survey"}

    # ... and the workers have counted them
    def idle() -> dict[str, Any]:
        worker = up.worker("transcribe")
        return worker if worker.get("active") == 0 and worker["processed"] > counted else {}

    # the count travels with the heartbeat, every two seconds
    until(lambda: idle().get("processed") == counted + len(ids), 10, "the count in Flower")
    workers = up.flower("/api/workers?refresh=1").json()
    names = {name.split("@")[0]: name for name in workers}
    assert set(names) == {"errands", "survey", "transcribe"}
    assert workers[names["transcribe"]]["stats"]["total"] == {"transcribe": counted + len(ids)}
    assert set(workers[names["survey"]]["stats"]["total"]) == {"survey"}
    assert set(workers[names["errands"]]["stats"]["total"]) <= {PROBE, *EVERY_S}

    # nothing of what was sent or said can be read in any of its answers
    pages = [
        *("/api/tasks", "/api/workers?refresh=1", "/workers?json=1", "/api/task/types"),
        *("/", "/tasks", "/workers", "/broker", "/metrics"),
        *(f"/api/task/info/{uuid}" for uuid in listed),
        *(f"/task/{uuid}" for uuid in ids.values()),
        *(f"/worker/{name}" for name in workers),
    ]
    shown = {page: up.flower(page).text for page in pages}
    spoken = [piece for text in texts for piece in text.split() if len(piece) == 8]  # hashes
    secrets = [*ids, *texts, *spoken, "peaceful-batch"]
    assert not [(page, s) for page, text in shown.items() for s in secrets if s in text]
    figures("echo_line", recordings=len(ids), ready_s=up.ready_s, line_s=line_s, pages=len(shown))


MARKER = "Zyxmarker"
"""In everything a caller can say, and in no word of ours."""


def test_nothing_a_caller_said_is_in_a_log_an_event_a_metric_or_flower(
    up: House, tmp_path: Path
) -> None:
    heard: list[Any] = []
    with redis.Redis.from_url(up.up["redis_url"]).pubsub() as ears:
        ears.psubscribe("*")
        file = sounds.write(tmp_path, f"{MARKER} file.flac", LATE.read_bytes())
        bad = sounds.write(tmp_path, f"{MARKER} bad.wav", f"{MARKER}, Dear Sir\n".encode() * 40)
        said = {
            "batch_id": f"{MARKER}-batch",
            "metadata": json.dumps({"customer": MARKER, "call_id": MARKER}),
            "vocabulary": f"{MARKER}, Smith",
        }
        url = f"http://{MARKER}:{MARKER}@192.0.2.1/{MARKER}.wav?token={MARKER}"
        with httpx.Client(base_url=up.up["api"], trust_env=False, timeout=30) as api:
            for one in (file, bad):
                answer = api.post("/v1/jobs", files={"files": one.open("rb")}, data=said)
                assert answer.status_code == 202, answer.text
            api.post("/v1/jobs", data={**said, "url": url})
            api.post("/v1/jobs", data={**said, "urls": url})
            api.get("/v1/jobs", params={"batch": MARKER, "status": MARKER, MARKER: MARKER})
            jobs = up.ended(f"{MARKER}-batch", 2, QUIET_WITHIN_S)
            for path in (f"/v1/batches/{MARKER}-batch", f"/v1/calls/{MARKER}/transcript"):
                api.get(path, params={"format": MARKER})
            for job in jobs:
                api.get(f"/v1/jobs/{job['id']}/transcript", params={"download": "1"})
        assert MARKER in json.dumps(jobs), "callers get their own words back"
        while (event := ears.get_message(timeout=0.5)) is not None:
            heard.append(event)
    assert len(heard) > 5
    secret = MARKER.encode()
    assert [event for event in heard if secret in bytes(str(event), "utf-8")] == []
    logs = {log.name: log.read_bytes() for log in (up.home / "logs").iterdir()}
    assert {"api.log", "errands.log", "survey.log", "transcribe.log", "flower.log"} <= set(logs)
    told = {
        name: line for name, text in logs.items() for line in text.splitlines() if secret in line
    }
    assert told == {}
    with httpx.Client(base_url=up.up["api"], trust_env=False) as api:
        assert MARKER not in api.get("/metrics").text
    pages = ["/api/tasks", "/tasks", *(f"/task/{job['id']}" for job in jobs), "/metrics"]
    assert not [page for page in pages if MARKER in up.flower(page).text]


class Bomb:
    """What a pickle does to whoever reads it."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return Path.touch, (self.trace,)


def test_a_pickle_in_the_broker_is_refused_unread_and_its_worker_lives(
    up: House, tmp_path: Path
) -> None:
    errands, trace = up.part("errands").pid, up.root / "exploded"
    with Connection(celery_broker_url(up.up["redis_url"])) as line:
        line.SimpleQueue(ERRANDS_QUEUE).put(
            [[Bomb(trace)], {}, {}], serializer="pickle", headers={"task": PROBE, "id": "bomb"}
        )
    log = up.home / "logs" / "errands.log"
    until(lambda: "deserialize" in log.read_text(), 20, "it is refused")
    late = sounds.write(tmp_path, "after.flac", LATE.read_bytes())
    up.upload(late, "after-bomb")
    assert up.ended("after-bomb", 1, QUIET_WITHIN_S)[0]["status"] == "completed"
    assert up.part("errands").pid == errands
    assert not trace.exists()


def test_openais_own_client_goes_the_whole_line_and_is_told_what_is_wrong(
    up: House, tmp_path: Path
) -> None:
    with up.openai() as client:
        whole = client.audio.transcriptions.create(
            model="whisper-1", file=LATE, response_format="verbose_json"
        )
        kept = up.transcript(str(whole._request_id))
        assert (whole.text, whole.duration) == (kept["text"], kept["duration_s"])
        letter = sounds.write(tmp_path, "letter.wav", b"Dear Sir or Madam,\n" * 40)
        with pytest.raises(openai.BadRequestError) as refused:
            client.audio.transcriptions.create(model="whisper-1", file=letter)
        assert refused.value.code == "not_audio"


def test_bad_files_fail_with_a_typed_sentence_and_the_good_ones_beside_them_complete(
    up: House, tmp_path: Path
) -> None:
    bad = {
        "empty": sounds.write(tmp_path, "nothing.wav", b""),
        "not_audio": sounds.write(tmp_path, "letter.wav", b"Dear Sir or Madam,\n" * 40),
        "no_samples": sounds.write(tmp_path, "header.wav", sounds.wav(sounds.silence(0))),
        "no_audio_stream": sounds.write(tmp_path, "film.mp4", sounds.video_without_sound()),
    }
    assert bad["no_samples"].stat().st_size == 44
    good = [RECORDINGS / name for name in ("hotel.flac", "greeting_mulaw_8k.wav", "trunk.ulaw")]
    silent = sounds.write(tmp_path, "nobody.wav", sounds.wav(sounds.silence(3)))
    mixed = [good[0], *list(bad.values())[:2], good[1], silent, *list(bad.values())[2:], good[2]]
    answer = up.cli("submit", *mixed, "--batch-id", "mixed", "--watch", code=1)
    jobs = {job["file_name"]: job for job in answer["jobs"]}
    assert answer["not_sent"] == []
    assert len(jobs) == len(mixed)
    for code, file in bad.items():
        job = jobs[file.name]
        assert (job["status"], job["error"]["code"]) == ("failed", code)
        sentence = job["error"]["message"]
        assert sentence[0].isupper()
        assert sentence.endswith(".")
        assert len(sentence.split()) > 3
        assert "/" not in sentence
        assert "Error" not in sentence
    assert {jobs[file.name]["status"] for file in good} == {"completed"}
    assert all(up.transcript(jobs[file.name]["id"])["text"] for file in good)
    # nobody speaks in it: that is an answer, not a failure
    nobody = jobs[silent.name]
    assert (nobody["status"], nobody["no_speech"]) == ("completed", True)
    assert up.transcript(nobody["id"])["text"] == ""
    assert not list((up.home / "storage" / "packed").iterdir())
    figures("bad_files", **{code: jobs[f.name]["error"]["message"] for code, f in bad.items()})


def test_a_job_is_cancelled_while_it_waits_and_while_it_runs(up: House) -> None:
    ids = long_jobs(up, "to-cancel", 4)
    # two are surveyed at a time, so the last of four waits
    waiting = until(lambda: some(up, "to-cancel", "probed"), 20, "one waits")
    assert up.post(f"/v1/jobs/{waiting}/cancel")["cancelled"]
    assert up.job(waiting)["status"] == "cancelled"
    running = until(lambda: some(up, "to-cancel", "running"), 60, "one runs")
    assert up.post(f"/v1/jobs/{running}/cancel")["cancelled"]
    assert up.job(running)["status"] == "cancelled"
    jobs = {job["id"]: job for job in up.ended("to-cancel", 4, QUIET_WITHIN_S)}
    statuses = {job_id: job["status"] for job_id, job in jobs.items()}
    assert statuses.pop(running) == statuses.pop(waiting) == "cancelled"
    assert set(statuses.values()) == {"completed"}
    assert up.transcripts([running, waiting]) == [0, 0]
    assert up.transcripts(list(statuses)) == [1, 1]
    # the worker notices at its next window; Flower then shows it as revoked, not as unfinished
    until(lambda: up.task(running).get("state") == "REVOKED", 10, "REVOKED in Flower")
    assert up.task(waiting) == {}
    assert not up.post(f"/v1/jobs/{running}/cancel")["cancelled"]
    assert sorted(ids.values()) == sorted(jobs)


def test_terminate_in_flower_cancels_the_running_job(up: House) -> None:
    (job_id,) = long_jobs(up, "to-revoke", 1, times=3).values()
    until(lambda: up.job(job_id)["stage"] == "running", 60, "it runs")
    until(lambda: up.task(job_id).get("state") == "STARTED", 10, "Flower knows it")
    begun_s = time.monotonic()
    answer = up.flower(f"/api/task/revoke/{job_id}?terminate=true", "POST")
    assert answer.status_code == 200, answer.text
    until(lambda: up.job(job_id)["status"] == "cancelled", 10, "the job is cancelled")
    cancelled_s = time.monotonic() - begun_s
    until(lambda: up.task(job_id).get("state") == "REVOKED", 10, "REVOKED in Flower")
    until(lambda: up.worker("transcribe")["active"] == 0, 10, "the worker is free")
    assert up.transcripts([job_id]) == [0]
    figures("flower_terminate", cancelled_s=cancelled_s)


def test_killed_redis_is_started_again_and_work_in_hand_goes_on(up: House, tmp_path: Path) -> None:
    ids = up.submit(*FILES, batch="redis-killed")
    until(lambda: some(up, "redis-killed", "running"), 60, "work in hand")
    back, deaths = up.says("^valkey +ready again"), up.says(r"^\w+ died")
    # one more, whose probe cannot end before Redis is gone: a message nobody can acknowledge then
    with suspended(up.part("errands").children()):
        ids |= up.upload(sounds.write(tmp_path, "late.flac", LATE.read_bytes()), "redis-killed")
        until(lambda: probes_in_hand(up), 20, "a probe in hand")
        in_hand = up.sql("SELECT id FROM jobs WHERE state IN ('running', 'surveying')")
        assert in_hand
        began_s = time.monotonic()
        up.kill("valkey")
        until(lambda: up.says("^valkey +ready again") > back, 20, "Redis is back")
        back_s = time.monotonic() - began_s
    jobs = up.ended("redis-killed", len(ids), STORM_WITHIN_S)
    assert {job["status"] for job in jobs} == {"completed"}
    assert up.transcripts(list(ids.values())) == [1] * len(ids)
    assert up.says(r"^\w+ died") == deaths + 1  # nobody died of the outage
    # nobody who worked lost a job to it: one survey and one hearing each, no more
    for (job_id,) in in_hand:
        granted = [len(up.seen(stage, str(job_id))) for stage in ("surveying", "running")]
        assert granted == [1, 1]
    # Flower hears of new work again; what was told while nobody could listen it never knows
    (after,) = up.submit(LATE, batch="after-redis").values()
    until(lambda: up.task(after).get("state") == "SUCCESS", QUIET_WITHIN_S, "Flower knows")
    unheard = [i for i in ids.values() if up.task(i).get("state") != "SUCCESS"]
    assert len(unheard) < len(ids)
    figures("redis_killed", in_hand=len(in_hand), back_s=back_s, not_ended_in_flower=len(unheard))


@pytest.mark.slow  # half a minute of what test_chaos does with every part
def test_each_worker_killed_under_load_loses_nothing(up: House, tmp_path: Path) -> None:
    files = copies(tmp_path, 2)
    begun_s = time.monotonic()
    submitting = subprocess.Popen(
        [CLI, "submit", *map(str, files), "--batch-id", "storm"],
        env=up.env,
        stdout=subprocess.DEVNULL,
    )
    try:
        until(lambda: probes_in_hand(up), 20, "a probe in hand")
        up.kill("errands")
        unprobed = len(up.sql("SELECT 1 FROM jobs WHERE state = 'received'"))
        orphans: dict[str, dict[str, int]] = {}
        killed_at: dict[str, float] = {}
        for name, state in (("survey", "surveying"), ("transcribe", "running")):
            killed_at[name], orphans[name] = killed_with_work(up, name, state)
        assert submitting.wait(60) == 0
    finally:
        submitting.kill()
        submitting.wait()
    for name in ("errands", "survey", "transcribe"):
        until(lambda name=name: up.says(f"^{name} +ready again"), 60, f"{name} is back")
    jobs = up.ended("storm", len(files), STORM_WITHIN_S)
    assert {job["status"] for job in jobs} == {"completed"}
    ids = [job["id"] for job in jobs]
    assert up.transcripts(ids) == [1] * len(ids)
    assert all(up.transcript(job_id)["text"] for job_id in ids)
    again_s = {}
    for name, state in (("survey", "surveying"), ("transcribe", "running")):
        assert orphans[name], f"{name} held nothing"
        grants = {
            job_id: at
            for at, job_id, attempt, _ in up.seen(state)
            if attempt > orphans[name].get(job_id, 10**9)
        }
        assert set(grants) == set(orphans[name])
        again_s[name] = min(grants.values()) - killed_at[name]
    # a window saved before the kill was not heard again: each was saved once at most, by whoever;
    # the last ones of a job go straight into its transcript
    for job_id in orphans["transcribe"]:
        assert set(up.windows(job_id).values()) <= {1}
    figures(
        "workers_killed",
        jobs=len(ids),
        unprobed_at_kill=unprobed,
        orphans={name: len(held) for name, held in orphans.items()},
        again_survey_s=again_s["survey"],
        again_transcribe_s=again_s["transcribe"],
        all_s=time.monotonic() - begun_s,
    )


def test_ctrl_c_ends_everything_with_exit_code_0(up: House) -> None:
    ids = long_jobs(up, "interrupted", 2)
    until(lambda: some(up, "interrupted", "running"), 60, "work in hand")
    pids = [process.pid for process in up.processes()]
    assert len(pids) > 7
    doors = [up.up["api"], up.up["flower"]]
    begun_s = time.monotonic()
    assert up.stop() == 0
    stop_s = time.monotonic() - begun_s
    assert [pid for pid in pids if is_alive(pid)] == []
    assert up.processes() == []
    assert up.sockets() == []
    for door in doors:
        with pytest.raises(httpx.ConnectError):
            httpx.get(door, trust_env=False)
    assert not (up.home / "run" / "up.json").exists()
    assert list(up.tmp.iterdir()) == []
    figures("ctrl_c", in_hand=len(ids), processes=len(pids), stop_s=stop_s)


# -- small things ---------------------------------------------------------------------------


def some(up: House, batch: str, *states: str) -> str | None:
    """A job of the batch in one of these states."""
    query = "SELECT id FROM jobs WHERE batch_id = %s AND state = ANY(%s) ORDER BY id DESC LIMIT 1"
    rows = up.sql(query, batch, list(states))
    return str(rows[0][0]) if rows else None


def probes_in_hand(up: House) -> int:
    """Jobs the errands worker was told of and has neither probed nor acknowledged."""
    with redis.Redis.from_url(up.up["redis_url"]) as asked:
        told = b"".join(asked.hvals("unacked")).decode()
    jobs = up.sql("SELECT id FROM jobs WHERE state = 'received'")
    return sum(str(job_id) in told for (job_id,) in jobs)


def killed_with_work(up: House, name: str, state: str) -> tuple[float, dict[str, int]]:
    """Kill -9 a worker that has jobs in hand: when, and {job id: attempt} of those jobs.

    It is stopped for the look, so that they cannot end in between.
    """
    process = up.part(name)

    def caught() -> bool:
        process.suspend()
        if up.sql("SELECT 1 FROM jobs WHERE state = %s", state):
            return True
        process.resume()
        return False

    until(caught, 60, f"a job is {state}")
    killed_at = time.time()
    up.kill(name)
    rows = up.sql("SELECT id, attempt FROM jobs WHERE state = %s", state)
    return killed_at, {str(job_id): attempt for job_id, attempt in rows}


@contextlib.contextmanager
def suspended(processes: list[psutil.Process]) -> Iterator[None]:
    """Processes that do nothing meanwhile."""
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


def long_jobs(up: House, batch: str, count: int, times: int = 1) -> dict[str, str]:
    """Submits the longest recording under several names, so often one after the other in a file.

    Seven windows each time: some seconds of work in four slots.
    """
    with contextlib.ExitStack() as stack:
        folder = up.root / batch
        folder.mkdir()
        stack.callback(shutil.rmtree, folder)
        files = [folder / f"{n}.mp3" for n in range(count)]
        for file in files:
            file.write_bytes(LONG.read_bytes() * times)
        return up.submit(*files, batch=batch)


def copies(folder: Path, times: int) -> list[Path]:
    """Every recording so often."""
    made = []
    for n in range(times):
        for file in FILES:
            made.append(folder / f"{n}-{file.name}")
            shutil.copy(file, made[-1])
    return made
