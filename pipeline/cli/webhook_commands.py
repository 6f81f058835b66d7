"""Commands about webhooks: `webhook add`, list, show, log, test, resend, resume, secret, delete."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import quote

import typer

from pipeline.cli import show
from pipeline.cli.local import Json
from pipeline.cli.service import Service, connect
from pipeline.errors import BadRequest
from pipeline.fetch.urls import checked_url, shown_url
from pipeline.settings import read_settings

app = typer.Typer(
    no_args_is_help=True, help="Be told of jobs that ended, and see whether it works."
)

LOOK_EACH_S = 0.2
KEEP_IT = "Keep the secret now: it is shown this once."

Named = Annotated[str, typer.Argument(metavar="WEBHOOK", help="Its id or its URL")]


class Event(StrEnum):
    """What a webhook may be told of."""

    COMPLETED = "job.completed"
    FAILED = "job.failed"
    CANCELLED = "job.cancelled"


class Status(StrEnum):
    """How a delivery stands."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    GIVEN_UP = "given_up"


@app.command()
def add(
    url: Annotated[str, typer.Argument(help="Where to tell: http or https")],
    event: Annotated[
        list[Event] | None, typer.Option(help="Only of these; all unless said")
    ] = None,
    json: Json = False,
) -> None:
    """Tell URL of each job that ends from now on. Prints the id and, this once, the secret."""
    asked: dict[str, Any] = {"url": url}
    if event:
        asked["events"] = [one.value for one in event]
    made = connect(read_settings()).post("/v1/webhooks", asked)
    if json:
        show.print_json(made)
    else:
        print(f"{made['id']}  {made['secret']}")
        typer.echo(KEEP_IT, err=True)


@app.command("list")
def list_webhooks(json: Json = False) -> None:
    """List webhooks, and whether what they are told comes through."""
    found = connect(read_settings()).get("/v1/webhooks")
    if json:
        show.print_json(found)
        return
    rows = [(one["id"], _state(one), one["waiting"], one["url"]) for one in found["webhooks"]]
    show.print_table("Webhooks", ("id", "state", "waiting", "url"), rows)


@app.command("show")
def show_webhook(webhook: Named, json: Json = False) -> None:
    """Show a webhook."""
    service = connect(read_settings())
    found = service.get(_path(service, webhook))
    if json:
        show.print_json(found)
        return
    told = {**found, "events": ", ".join(found["events"])}
    show.print_table("Webhook", ("name", "value"), list(told.items()))


@app.command()
def log(
    webhook: Named,
    status: Annotated[Status | None, typer.Option(help="Only those that stand so")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Deliveries shown")] = 20,
    json: Json = False,
) -> None:
    """Show what a webhook was told and is to be told, the newest first."""
    service = connect(read_settings())
    asked = {"status": status.value if status else None, "limit": limit}
    found = service.get(f"{_path(service, webhook)}/deliveries", **asked)
    if json:
        show.print_json(found)
        return
    rows = [
        (one["id"], one["event"], one["status"], one["attempts"], _outcome(one))
        for one in found["deliveries"]
    ]
    show.print_table("Deliveries", ("id", "event", "status", "attempts", "meaning"), rows)


@app.command("test")
def ping(
    webhook: Named,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for what comes of it")] = 70.0,
    json: Json = False,
) -> None:
    """Send a ping and say how that went; exit code 1 when it did not come through."""
    service = connect(read_settings())
    path = _path(service, webhook)
    sent = service.post(f"{path}/test")
    end_s = time.monotonic() + wait
    while sent["status"] == "waiting" and time.monotonic() < end_s:
        time.sleep(LOOK_EACH_S)
        sent = service.get(f"{path}/deliveries/{sent['id']}")
    if json:
        show.print_json(sent)
    else:
        print(f"{sent['status']}: {show.printable(_outcome(sent), 500)}")
    raise typer.Exit(0 if sent["status"] == "delivered" else 1)


@app.command()
def resend(
    webhook: Named,
    delivery_id: Annotated[str, typer.Argument(help="As `log` shows it")],
    json: Json = False,
) -> None:
    """Send a delivery again, under its id, whatever became of it."""
    service = connect(read_settings())
    one = quote(delivery_id, safe="", errors="replace")
    again = service.post(f"{_path(service, webhook)}/deliveries/{one}/resend")
    if json:
        show.print_json(again)
    else:
        print(f"{again['id']}  {again['status']}")


@app.command()
def resume(webhook: Named, json: Json = False) -> None:
    """Send to a paused webhook again, at once what did not come through in the last 7 days."""
    service = connect(read_settings())
    found = service.post(f"{_path(service, webhook)}/resume")
    if json:
        show.print_json(found)
    else:
        print(f"{found['id']}  {_state(found)}, {found['due']:,} sent again")


@app.command()
def secret(webhook: Named, json: Json = False) -> None:
    """Change the secret; for a day the old one signs too. Prints the new one, this once."""
    service = connect(read_settings())
    found = service.post(f"{_path(service, webhook)}/secret")
    if json:
        show.print_json(found)
    else:
        print(f"{found['id']}  {found['secret']}")
        typer.echo(KEEP_IT, err=True)


@app.command()
def delete(
    webhook: Named,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask")] = False,
    json: Json = False,
) -> None:
    """Tell a webhook nothing any more, and erase its log."""
    service = connect(read_settings())
    found = service.get(_path(service, webhook))
    if not yes:
        if not sys.stdin.isatty():
            raise BadRequest("This erases a webhook and its log: say --yes.")
        typer.confirm(f"Erase the webhook to {show.printable(found['url'])}?", abort=True, err=True)
    service.delete(f"/v1/webhooks/{found['id']}")
    if json:
        show.print_json({"id": found["id"], "deleted": True})
    else:
        print(f"{found['id']}  deleted")


def _path(service: Service, webhook: str) -> str:
    """Where the API has it; raises `BadRequest` when its URL names none, or several."""
    if "://" not in webhook:
        return f"/v1/webhooks/{quote(webhook, safe='', errors='replace')}"
    url = shown_url(checked_url(webhook))
    ids = [one["id"] for one in service.get("/v1/webhooks")["webhooks"] if one["url"] == url]
    if len(ids) != 1:
        count = "No webhook has" if not ids else f"{len(ids)} webhooks have"
        raise BadRequest(f"{count} this URL: `fairscribe webhook list` shows their ids.")
    return f"/v1/webhooks/{ids[0]}"


def _state(one: dict[str, Any]) -> str:
    if one["paused_at"]:
        return f"paused: {one['paused_reason'] or 'by hand'}"
    return (
        f"failing since {show.moment(one['failing_since'])}" if one["failing_since"] else "active"
    )


def _outcome(one: dict[str, Any]) -> str:
    """How the last attempt went, in words."""
    if one["last_error"]:
        return str(one["last_error"])
    if one["last_status"]:
        return f"The receiver answered {one['last_status']}."
    return "It is being sent." if one["attempted_at"] else "It was not sent yet."
