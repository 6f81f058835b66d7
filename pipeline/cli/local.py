"""Commands that ask nobody: they start the service or read this machine."""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import asdict
from importlib.metadata import version as installed
from typing import Annotated

import typer

from pipeline.cli import show
from pipeline.errors import BadRequest
from pipeline.settings import read_settings
from pipeline.weights import import_packaged

app = typer.Typer()
models = typer.Typer(help="Models on this machine.", no_args_is_help=True)
app.add_typer(models, name="model")
benches = typer.Typer(help="Measurements, each on parts of its own.", no_args_is_help=True)
app.add_typer(benches, name="bench")

Json = Annotated[bool, typer.Option("--json", help="JSON on stdout, and nothing else there")]

BENCHES = {
    "pipeline": "The whole line against vLLM's bare engine on the same windows.",
    "policies": "Orders of work against each other, simulated or on real parts.",
    "predict": "How well vLLM's work is foretold, alone and in a full batch.",
    "probe": "Lengths found against true ones: which files are right, refused, and how fast.",
    "queue": "What the queue costs the Redis server, in time and memory.",
    "text": "Words heard against true ones, and against the same weights by hand.",
}
"""By module of `bench/`: what it measures."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


@app.command()
def up(json: Json = False) -> None:
    """Start every part on this machine, and stop them all with Ctrl-C."""
    read_settings()  # refused here, before anything is started
    words = ["-m", "workers.supervisor", *(["--json"] if json else [])]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *words])


@app.command()
def doctor(json: Json = False) -> None:
    """Name what is wrong with this installation, and its cure."""
    # here: Celery, SQLAlchemy and Alembic would make every other command start a second later
    from pipeline.cli.doctor import examine, print_verdicts

    verdicts = examine(os.environ)
    if json:
        show.print_json([asdict(verdict) for verdict in verdicts])
    else:
        print_verdicts(verdicts)
    raise typer.Exit(0 if all(verdict.ok for verdict in verdicts) else 1)


@app.command()
def settings(
    json: Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="The page docs/settings.md")] = False,
) -> None:
    """List every setting with its value, default, unit and meaning."""
    read = read_settings()
    rows = show.shown_settings(read)
    if json:
        show.print_json([asdict(row) for row in rows])
    elif markdown:
        sys.stdout.write(show.settings_page(read))
    else:
        show.print_table(
            "Settings", list(asdict(rows[0])), [list(asdict(row).values()) for row in rows]
        )


@models.command("import")
def import_model(
    name: Annotated[str, typer.Argument(help="A model that comes as a package")] = "tiny.en",
    json: Json = False,
) -> None:
    """Write a packaged model as a folder the engine loads."""
    folder = import_packaged(name, read_settings().home / "models")
    if json:
        show.print_json({"model": name, "folder": str(folder)})
    else:
        print(folder)


def _add_bench(name: str, purpose: str) -> None:
    """`fairscribe bench NAME` is `python -m bench.NAME`, whose options and --help are its own."""

    def bench(context: typer.Context) -> None:
        if importlib.util.find_spec("bench") is None:
            raise BadRequest("The measurements are in the source tree: run this from a checkout.")
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-m", f"bench.{name}", *context.args])

    passed_on = {"allow_extra_args": True, "ignore_unknown_options": True}
    add = benches.command(name, help=purpose, context_settings=passed_on, add_help_option=False)
    add(bench)


for _name, _purpose in BENCHES.items():
    _add_bench(_name, _purpose)


@app.command()
def version() -> None:
    """Print the version."""
    print(installed("fairscribe"))
