"""Commands about API keys and tenants: `key add`, `list`, `revoke`, `share`, `adopt`.

They ask Postgres itself, the one the settings name or the one `up` brought: the first key is made
before anybody may call the API. So whoever can reach Postgres from here may make keys.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.caller import ANYONE, Scope
from pipeline.cli import show
from pipeline.cli.local import Json
from pipeline.errors import BadRequest, PartDown
from pipeline.settings import read_settings, sqlalchemy_url

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from pipeline.store.keys import ApiKey

app = typer.Typer(help="API keys, and the tenants they belong to.", no_args_is_help=True)

UNITS_S = {"m": 60.0, "h": 3600.0, "d": 86_400.0}
LONGEST_S = 100 * 365 * 86_400.0
NAME_LIMIT = 200
PAGE = 1000
"""Jobs given to a tenant in one transaction."""

Tenant = Annotated[str, typer.Option(help="Whose jobs it makes and sees")]


@app.command("add")
def add_key(
    name: Annotated[str, typer.Argument(help="What people call it")],
    tenant: Tenant = "main",
    scope: Annotated[
        list[Scope] | None,
        typer.Option(help="May be repeated; else submit and read"),
    ] = None,
    share: Annotated[
        float | None, typer.Option(min=0.0, help="The tenant's share, as `key share` sets it")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.0, help="Requests a second, 0 without limit")
    ] = None,
    burst: Annotated[int | None, typer.Option(min=1, help="Requests at once")] = None,
    expires: Annotated[str | None, typer.Option(help="After 90d, 12h, 30m; else never")] = None,
    json: Json = False,
) -> None:
    """Make a key and print it: it is shown this once."""
    _check_tenant(tenant)
    if not 1 <= len(name) <= NAME_LIMIT or not name.isprintable():
        raise BadRequest(f"A key's name has 1 to {NAME_LIMIT} letters, on one line.")
    lasts_s = None if expires is None else _seconds(expires)
    scopes = scope or [Scope.SUBMIT, Scope.READ]
    with _postgres() as c:
        from pipeline.store import accesses, keys

        key, text = keys.add(
            c, tenant, name, set(scopes), rate_per_s=rate, rate_burst=burst, lasts_s=lasts_s
        )
        if share is not None:
            keys.give_share(c, tenant, share)
        accesses.record(c, ANYONE, accesses.Action.KEY_ADDED, detail=key.id)
    # after the commit: what is printed opens
    if json:
        show.print_json({**_as_json(key), "key": text})
    else:
        print(text)
        typer.echo(f"Keep it now: it is shown this once. Its id is {key.id}.", err=True)


@app.command("list")
def list_keys(
    tenant: Annotated[str | None, typer.Option(help="Only of this tenant")] = None,
    json: Json = False,
) -> None:
    """List all keys, without their secrets."""
    with _postgres() as c:
        from pipeline.store import keys

        found = keys.listed(c, tenant)
    if json:
        show.print_json({"keys": [_as_json(key) for key in found]})
        return
    columns = ("id", "tenant", "name", "scopes", "state", "used", "expires")
    rows = [
        (
            *(key.id, key.tenant, show.printable(key.name), " ".join(key.scopes), key.state),
            *(show.moment(key.last_used_at), show.moment(key.expires_at)),
        )
        for key in found
    ]
    show.print_table("API keys", columns, rows)


@app.command("revoke")
def revoke_key(
    key_id: Annotated[str, typer.Argument(help="Its id, as `key list` shows it")],
    json: Json = False,
) -> None:
    """End a key: within 5 s it opens nothing any more."""
    with _postgres() as c:
        from pipeline.store import accesses, keys

        key = keys.revoke(c, key_id.replace("\0", ""))
        accesses.record(c, ANYONE, accesses.Action.KEY_REVOKED, detail=key.id)
    if json:
        show.print_json(_as_json(key))
    else:
        print(f"{key.id}  revoked")


@app.command("share")
def share_of(
    tenant: Annotated[str, typer.Argument(help="As keys name it")],
    share: Annotated[
        float, typer.Argument(min=0.0, help="Slot seconds of work a second; 0: no limit")
    ],
    json: Json = False,
) -> None:
    """Say how much of the engines a tenant may ask for before its own jobs wait for each other."""
    _check_tenant(tenant)
    with _postgres() as c:
        from pipeline.store import keys

        keys.give_share(c, tenant, share or None)
    if json:
        show.print_json({"tenant": tenant, "share": share or None})
    else:
        print(f"{tenant}  {share:g}" if share else f"{tenant}  no limit")


@app.command()
def adopt(
    tenant: Annotated[str, typer.Argument(help="As keys name it")],
    json: Json = False,
) -> None:
    """Give a tenant all jobs and webhooks that came while keys were off, and belong to nobody."""
    _check_tenant(tenant)
    adopted, webhooks, after = 0, 0, None
    while True:
        with _postgres() as c:
            from pipeline.store import keys

            found, after = keys.adopt_page(c, tenant, after, PAGE)
            heard = keys.adopt_webhooks(c, tenant)
        adopted, webhooks = adopted + found, webhooks + heard
        if after is None:
            break
    if json:
        show.print_json({"tenant": tenant, "adopted": adopted, "webhooks": webhooks})
    else:
        print(f"{tenant}  {adopted:,} jobs, {webhooks:,} webhooks")


@contextmanager
def _postgres() -> Iterator[Connection]:
    """A transaction in the Postgres of this installation. Raises `PartDown` when there is none."""
    # here: SQLAlchemy, and Celery among the checks, would make every other command start later
    from sqlalchemy.exc import ProgrammingError

    from pipeline.cli.checks.verdict import look_around
    from pipeline.store.session import open_store, transaction

    url = look_around(read_settings(), os.environ).database_url
    if url is None:
        raise PartDown(
            "No Postgres is known: nothing is up here and FAIRSCRIBE_DATABASE_URL is not set."
        )
    store = open_store(sqlalchemy_url(url))
    try:
        with transaction(store) as c:
            yield c
    except ProgrammingError:
        raise PartDown(
            "Postgres does not have the tables of this version: `fairscribe up` and "
            "`python -m workers.migrate` make them."
        ) from None
    finally:
        store.dispose()


def _check_tenant(tenant: str) -> None:
    from pipeline.store.keys import TENANT

    if not TENANT.fullmatch(tenant):
        raise BadRequest(
            "A tenant's name has 1 to 64 letters, digits, dots, dashes and underscores, and begins "
            "with a letter or digit."
        )


def _seconds(text: str) -> float:
    """How long "90d" is. Raises `BadRequest`.

    >>> _seconds("90d"), _seconds("1.5h")
    (7776000.0, 5400.0)
    """
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]+)?)([mhd])", text)
    lasts_s = float(found[1]) * UNITS_S[found[2]] if found else 0.0
    if not 0 < lasts_s <= LONGEST_S:
        raise BadRequest(f"{text[:40]!r} is no length of time such as 90d, 12h or 30m.")
    return lasts_s


def _as_json(key: ApiKey) -> dict[str, Any]:
    told = asdict(key)
    for name, value in told.items():
        if isinstance(value, datetime):
            told[name] = value.astimezone(UTC).isoformat()
    return told
