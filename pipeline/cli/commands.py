"""The command line put together, and the command about the queue.

Exit codes: 0 done, 1 it failed, 2 not reached or misused, 130 ended by Ctrl-C.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pipeline.cli import (
    access_commands,
    batch_commands,
    job_commands,
    keeping_commands,
    key_commands,
    local,
    policy_commands,
    queue_table,
    show,
    simulate,
    submit_command,
    webhook_commands,
)
from pipeline.cli.local import Json
from pipeline.cli.service import connect
from pipeline.errors import BadRequest, BadSetting, FairscribeError, NotAllowed, PartDown
from pipeline.settings import read_settings

EXIT = {BadSetting: 2, BadRequest: 2, PartDown: 2, NotAllowed: 2}
"""Error class -> exit code; any other is 1."""

app = typer.Typer(
    name="fairscribe",
    help="Call recordings in, transcripts out, in a fair order.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_PARTS = (local, submit_command, batch_commands, job_commands)
for part in (*_PARTS, access_commands, keeping_commands, simulate):
    app.add_typer(part.app)
app.add_typer(policy_commands.app, name="policy")
app.add_typer(key_commands.app, name="key")
app.add_typer(webhook_commands.app, name="webhook")


def main() -> None:
    """Run the command line. What goes wrong is one sentence on stderr."""
    try:
        app()
    except FairscribeError as error:
        print(show.printable(error.message, 2000), file=sys.stderr)
        sys.exit(next((code for kind, code in EXIT.items() if isinstance(error, kind)), 1))


@app.command()
def queue(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Jobs of each stage")] = 20,
    once: Annotated[bool, typer.Option("--once", help="Print it once and end")] = False,
    json: Json = False,
) -> None:
    """Show who goes first and why, who is in work, and when all is done; until Ctrl-C."""
    service = connect(read_settings())
    if json:
        show.print_json(service.get("/v1/queue", limit=limit))
    elif once or not show.to_stdout().is_terminal:
        console = show.to_stdout()
        console.print(queue_table.drawn(service.get("/v1/queue", limit=limit), width=console.width))
    else:
        queue_table.live(service, limit, show.to_stdout())
