"""Becomes one part: `python -m workers.run api`. What a container or a unit file starts.

In: a name of `workers.command_lines.PARTS`; the settings. A setting that cannot be used ends it
with one sentence and exit code 2; else this process is replaced by the part, its pid and signals
included.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from pipeline.errors import BadSetting
from pipeline.settings import read_settings
from workers.command_lines import PARTS, command_line


def main(argv: Sequence[str] | None = None) -> int:
    """Replace this process; returns only when that was refused."""
    parser = argparse.ArgumentParser(prog="workers.run", description="Become one part.")
    parser.add_argument("part", choices=PARTS)
    part = parser.parse_args(argv).part
    try:
        words = command_line(part, read_settings())
    except BadSetting as refused:
        print(refused.message, file=sys.stderr)
        return 2
    os.umask(0o077)  # recordings are nobody else's business
    os.execv(words[0], words)


if __name__ == "__main__":
    sys.exit(main())
