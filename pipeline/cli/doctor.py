"""`fairscribe doctor`: names what is wrong and what cures it, also when everything is down."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from rich.text import Text

from pipeline.cli import show
from pipeline.cli.checks import CHECKS
from pipeline.cli.checks.verdict import Here, Verdict, fine, look_around, problem
from pipeline.errors import BadSetting
from pipeline.settings import BY_FILE, SECRETS, Settings, read_settings

WITHIN_S = 9.0
"""A check that takes longer is a verdict of its own."""

Check = Callable[[Here], Verdict]


def examine(environ: Mapping[str, str], checks: Iterable[Check] = CHECKS) -> list[Verdict]:
    """All verdicts, the settings' first; no password is in them."""
    settings, about_settings = check_settings(environ)
    here = look_around(settings, environ)
    verdicts = [about_settings, *_all_at_once(list(checks), here)]
    read = {name: getattr(settings, name) for name in BY_FILE}
    secrets = [environ.get("FAIRSCRIBE_FLOWER_AUTH"), *(read[name] for name in SECRETS)]
    urls = [settings.database_url or "", settings.redis_url or ""]
    hide = _hider([*environ.values(), *here.up.values(), *urls], filter(None, secrets))
    return [replace(v, said=hide(v.said), cure=v.cure and hide(v.cure)) for v in verdicts]


def check_settings(environ: Mapping[str, str]) -> tuple[Settings, Verdict]:
    """The settings without those that cannot be used, and which these are."""
    left = dict(environ)
    refused: list[str] = []
    while True:
        try:
            settings = read_settings(left)
        except BadSetting as bad:
            refused.append(bad.message.rstrip("."))
            named = [name for name in left if name in bad.message]
            # those named that can be taken away; what remains is then read with its defaults
            for name in named or [name for name in left if name.startswith("FAIRSCRIBE_")]:
                del left[name]
        else:
            break
    if refused:
        cure = "Correct or unset them; `fairscribe settings` lists all, docs/settings.md explains."
        return settings, problem("settings", f"{'; '.join(refused)}.", cure)
    return settings, fine("settings", "All FAIRSCRIBE_ variables are known and can be used.")


def _all_at_once(checks: list[Check], here: Here) -> list[Verdict]:
    """The verdicts in the order of the checks, within WITHIN_S seconds."""
    found: dict[str, Verdict] = {}

    def run(check: Check) -> None:
        try:
            found[check.__name__] = check(here)
        except Exception as error:  # a check must not hide what the others say
            said = f"This could not be checked ({type(error).__name__}: {error})."
            found[check.__name__] = problem(check.__name__, said, "Please report it as a bug.")

    threads = [threading.Thread(target=run, args=(check,), daemon=True) for check in checks]
    for thread in threads:
        thread.start()
    deadline = threading.Event()
    timer = threading.Timer(WITHIN_S, deadline.set)
    timer.daemon = True
    timer.start()
    for thread in threads:
        while thread.is_alive() and not deadline.is_set():
            thread.join(0.1)
    timer.cancel()
    late = f"No answer within {WITHIN_S:g} s."
    cure = "Look whether what this asks is overloaded or behind a firewall that drops."
    return [found.get(c.__name__) or problem(c.__name__, late, cure) for c in checks]


def _hider(texts: Iterable[str], given: Iterable[str]) -> Callable[[str], str]:
    """A function that puts *** for each secret `given`, and every password in a URL of `texts`."""
    secrets = set()
    for one in given:
        secrets |= {one, one.partition(":")[2]}
    for text in texts:
        secrets |= set(re.findall(r"://[^/@:]*:([^/]+)@", text))
        secrets |= set(re.findall(r"[?&]password=([^&]+)", text))
    hidden = sorted((secret for secret in secrets if secret), key=len, reverse=True)

    def hide(said: str) -> str:
        for secret in hidden:
            said = said.replace(secret, "***")
        return said

    return hide


def print_verdicts(verdicts: list[Verdict]) -> None:
    """What was found and what to do, a line each."""
    console = show.to_stdout()
    for verdict in verdicts:
        mark = Text("ok      ", "green") if verdict.ok else Text("problem ", "bold red")
        words = f"{verdict.check}: {show.printable(verdict.said, 500)}"
        console.print(mark + Text(words), soft_wrap=True)
        if verdict.cure:
            console.print(Text(f"        {show.printable(verdict.cure, 500)}"), soft_wrap=True)
