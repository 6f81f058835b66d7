"""Flower as we ship it: `python -m workers.flower_server`.

In: the settings. Out: Flower on FLOWER_HOST and FLOWER_PORT, with a password where one is set.
Flower shows; it cancels jobs and stops workers only where FLOWER_CONTROL says so, and answers 403
otherwise. It names workers and jobs, so beyond this machine it is not served without a password,
which goes to Flower inside this process, never by a command line. Flower keeps what it saw in
memory only: Postgres remembers the jobs.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from pipeline.errors import BadSetting
from pipeline.settings import Settings, is_loopback, read_settings

PURGE_AFTER_S = 600
"""A worker not heard of for this long is listed no more: containers come back under new names."""

OPEN_API = "FLOWER_UNAUTHENTICATED_API"
"""Flower reads this one from the environment only."""

READ_ONLY = "FLOWER_READ_ONLY"
"""Flower's own name of our switch: there is one, and it is FAIRSCRIBE_FLOWER_CONTROL."""


def flower_options(settings: Settings) -> dict[str, Any]:
    """Flower's own options for these settings.

    Raises `BadSetting` when it would listen beyond this machine without a password.
    """
    host, auth = settings.flower_host, settings.flower_auth
    if auth is None and not is_loopback(host):
        raise BadSetting(
            f"FAIRSCRIBE_FLOWER_HOST={host}: Flower names jobs and workers, and may stop them, so "
            "beyond this machine it needs a password: set FAIRSCRIBE_FLOWER_AUTH to user:password"
        )
    return {
        "address": host,
        "port": settings.flower_port,
        "basic_auth": [auth] if auth else [],
        "max_tasks": settings.flower_max_tasks,
        "purge_offline_workers": PURGE_AFTER_S,
        "persistent": False,
        "read_only": not settings.flower_control,
    }


def main() -> int:
    """Serve until told to stop. FLOWER_<OPTION> in the environment goes before our choice,
    but for who may stop workers.
    """
    try:
        chosen = flower_options(read_settings())
    except BadSetting as refused:
        print(refused.message, file=sys.stderr)
        return 2
    import flower.options  # noqa: F401  (defines what is set below)
    from tornado.options import options

    from workers.app import app

    for name, value in chosen.items():
        setattr(options, name, value)
    # Its pages are open to whoever can reach them; then so may its API be.
    os.environ[OPEN_API] = "false" if chosen["basic_auth"] else "true"
    os.environ.pop(READ_ONLY, None)
    app.start(["flower"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
