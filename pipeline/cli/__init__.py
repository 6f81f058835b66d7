"""The command line: everything a person does, through the HTTP door.

commands.py   every command and its options; errors to exit codes
service.py    talks to the API, wherever it is
collect.py    paths, folders and patterns to files
submit.py     files to jobs, a few at a time
watch.py      jobs until they have ended, with progress
show.py       what people read: tables, lines, the page of settings
"""

from pipeline.cli.commands import main

__all__ = ["main"]
