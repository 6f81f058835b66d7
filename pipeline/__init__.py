"""What happens to a recording, from upload to transcript.

    accept      steps/accept.py       stored, hashed, one row in Postgres
    probe       steps/probe.py        what is it, how long is it
    survey      steps/survey.py       decoded once: speech found, windows planned, packed
    transcribe  steps/transcribe.py   windows through the speech engine, each one saved
    deliver     steps/deliver.py      windows merged into one transcript, committed under the fence

`workers/` says which processes make this happen; nothing here imports it. Imports point down:
doors (api, cli, parts) > steps > hands (intake, queue, store, ...) > rules (scheduling,
transcript) > words (recording, job, errors, clock, engine).
"""
