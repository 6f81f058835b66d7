"""Commands about the order of work: `policy [NEW]`, and `policy trial`, which tries one first."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pipeline.cli import show
from pipeline.cli.local import Json
from pipeline.cli.service import Service, connect
from pipeline.errors import BadRequest, TooFewJobs
from pipeline.settings import read_settings


class _OrPolicy(TyperGroup):
    """A first word that is no command here is the policy, so that `policy sjf` needs no other."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["set", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_OrPolicy, help="Show the order of work, change it (policy NEW), or try another."
)


@app.command("set")
def policy(
    new: Annotated[
        str | None, typer.Argument(help="fcfs, sjf, hrrn(g), hrrn(g,K), aged(beta) or auto")
    ] = None,
    reason: Annotated[str, typer.Option(help="Kept with the change")] = "by hand",
    json: Json = False,
) -> None:
    """Show the order of work, or change it; waiting jobs follow at once. `set` may be left out."""
    service = connect(read_settings())
    if new is None:
        answer = service.get("/v1/policy")
    else:
        answer = service.put("/v1/policy", {"policy": new, "reason": reason})
    if json:
        show.print_json(answer)
    else:
        print(_in_words(answer))


def _in_words(answer: dict[str, Any]) -> str:
    """The policy on one line; who decides it, where that is no person."""
    now = str(answer["in_force"])
    return {"auto": f"auto, now {now}", "trial": f"{now}, on trial"}.get(answer["mode"], now)


@app.command()
def trial(
    new: Annotated[
        str | None, typer.Argument(help="fcfs, sjf, hrrn(g), hrrn(g,K) or aged(beta)")
    ] = None,
    block_min: Annotated[float, typer.Option(help="Minutes of one policy in a row")] = 10.0,
    blocks: Annotated[int, typer.Option(help="Even: half of them of each policy")] = 12,
    keep_better: Annotated[
        bool, typer.Option("--keep-better", help="Keep it if it is better for certain")
    ] = False,
    hours: Annotated[float, typer.Option(help="Arrivals so far back are replayed first")] = 6.0,
    replay_only: Annotated[
        bool, typer.Option("--replay-only", help="Foretell it, and leave live work alone")
    ] = False,
    status: Annotated[bool, typer.Option("--status", help="How the last trial stands")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="End it and go back")] = False,
    json: Json = False,
) -> None:
    """Try a policy: first by recorded arrivals, then in turn with the one in force.

    Live work goes back to the old one by itself as soon as the new one is worse for certain.
    """
    service = connect(read_settings())
    if status or stop:
        _tell(_ended(service) if stop else _newest(service), json=json)
        return
    if new is None:
        raise BadRequest("Name the policy to try, such as hrrn(3), or --status, or --stop.")
    replayed = _replayed(service, new, hours, needed=replay_only)
    begun = None
    if not replay_only:
        asked = {"policy": new, "block_s": 60 * block_min, "blocks": blocks}
        begun = service.post("/v1/policy/trials", {**asked, "keep_better": keep_better})
    if json:
        show.print_json({"replay": replayed, "trial": begun})
        return
    if replayed:
        _print_replay(replayed)
    if begun:
        _tell(begun, json=False)


def _replayed(service: Service, policy: str, hours: float, *, needed: bool) -> Any:
    """What the simulator says; None where it cannot, unless that is all that was asked."""
    try:
        return service.get("/v1/policy/replay", policy=policy, hours=hours)
    except TooFewJobs as few:
        if needed:
            raise
        print(f"Not foretold: {few.message}", file=sys.stderr)
        return None


def _newest(service: Service) -> dict[str, Any]:
    found = service.get("/v1/policy/trials", limit=1)["trials"]
    if not found:
        raise BadRequest("No policy was tried yet.")
    newest: dict[str, Any] = found[0]
    return newest


def _ended(service: Service) -> dict[str, Any]:
    last = _newest(service)
    if last["state"] != "running":
        raise BadRequest(f"No trial runs; the last one, {last['id']}, was {last['state']}.")
    ended: dict[str, Any] = service.post(f"/v1/policy/trials/{last['id']}/stop")
    return ended


def _print_replay(replayed: dict[str, Any]) -> None:
    rows = [
        (one["policy"], *(show.clock(one[name]) for name in ("p50_s", "p95_s", "p99_s", "max_s")))
        for one in (replayed["a"], replayed["b"])
    ]
    title = f"Foretold by {replayed['jobs']} recordings of {replayed['hours']:.1f} hours, simulated"
    show.print_table(title, ("policy", "P50", "P95", "P99", "longest"), rows)


def _tell(trial: dict[str, Any], *, json: bool) -> None:
    if json:
        show.print_json(trial)
        return
    where = f"block {trial['block']} of {trial['blocks']}" if trial["block"] else "ended"
    print(
        f"trial {trial['id']}: {trial['policy_b']} against {trial['policy_a']}, {trial['state']}, "
        f"{where}, {show.clock(trial['block_s'])} each"
    )
    seen = trial["comparison"]
    rows = [
        (
            *(name.upper(), show.clock(one["a_s"]), show.clock(one["b_s"])),
            *(f"{one['ratio']:.2f}", f"{one['low']:.2f} to {one['high']:.2f}"),
        )
        for name, one in seen["quantiles"].items()
    ]
    if rows:
        title = f"{seen['pairs']} pairs of blocks, {seen['jobs_a']} and {seen['jobs_b']} jobs"
        columns = ("time to result", trial["policy_a"], trial["policy_b"], "ratio", "interval")
        show.print_table(title, columns, rows)
    if trial["reason"]:
        print(show.printable(trial["reason"], 500))
