"""Health of one part, for a container's health check: exit code 0 or a sentence and 1.

    python -m workers.alive          a worker: was it seen at work within the last minute?
    python -m workers.alive URL      a server: does it answer 200?

The puller's own loop makes the ready file once its engine has heard a known second of speech right
(`workers/known_second.py`), and renews it each second while that engine makes progress: not while
it is dead or started again. The errands worker renews it while it has errands in hand and with each
one done, and one is due every ten seconds. So a worker that lives but hangs is told from one that
serves, without asking the broker, and without importing Celery, which would take a second of
processor time each time.
"""

from __future__ import annotations

import http.client
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence

from workers.ready import VARIABLE

FRESH_S = 60.0
"""A worker not seen at work for longer is not well."""

ANSWER_WITHIN_S = 5.0


def trouble_of_worker(path: str | None) -> str | None:
    """Why the worker that renews the file at `path` is not well; None when it is."""
    if not path:
        return f"{VARIABLE} names no file: nothing can be said"
    try:
        age_s = time.time() - os.stat(path).st_mtime
    except OSError:
        return "not ready yet"
    return None if age_s <= FRESH_S else f"not seen at work for {age_s:.0f} s"


def trouble_of_server(url: str) -> str | None:
    """Why the server at `url` is not well; None when it answers 200."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=ANSWER_WITHIN_S) as answer:
            return None if answer.status == 200 else f"answers {answer.status}"
    except urllib.error.HTTPError as refused:
        return f"answers {refused.code}: {refused.read(500).decode(errors='replace')}"
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"does not answer: {error}"


def main(argv: Sequence[str]) -> int:
    """Print the trouble, if any; returns the exit code."""
    trouble = trouble_of_server(argv[0]) if argv else trouble_of_worker(os.environ.get(VARIABLE))
    print(trouble or "well")
    return 1 if trouble else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
