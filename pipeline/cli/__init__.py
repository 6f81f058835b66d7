"""The command line: everything a person does, through the HTTP door.

commands.py         puts it together; queue; errors to exit codes
policy_commands.py  policy, policy trial
local.py            commands that ask nobody: up, doctor, settings, model, version
submit_command.py   submit: what was typed to recordings (collect.py, manifest.py, asked.py)
  submit.py         recordings to jobs, several at once (side_by_side.py), patiently
  sending.py        one submission under way; journal.py remembers it, so that it can be resumed
batch_commands.py   watch, batch, export
  watch.py          jobs until they have ended, with progress; news.py rings when something happened
  export.py         transcripts to files (file_names.py) or to one table (tables.py)
job_commands.py     get, list, cancel, retry, delete
keeping_commands.py retention, erase, backup, restore
simulate.py         what another order of work would do
doctor.py           what is wrong here and its cure: checks/
service.py          talks to the API, wherever it is (pages.py, patience.py)
show.py             what people read: tables, lines, the page of settings
"""

from pipeline.cli.commands import main

__all__ = ["main"]
