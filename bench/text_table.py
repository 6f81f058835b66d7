"""The report of text.py for a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def told(found: dict[str, Any]) -> list[str]:
    """Lines; what was not compared is left out."""
    lines = [
        f"{found['files']} recordings ({found['texts']} texts), {found['words']} words, "
        f"{found['audio_s']:.0f} s; {found['model']} in {found['dtype']}",
        f"{'':<10}{'WER':>8}  {'95 %':<20}{'lost':>6}{'added':>7}{'other':>7}"
        f"{'windows':>9}{'rtf':>8}",
        _line("ours", found, "ours", "wer", "windows"),
    ]
    if found["by_hand"]:
        between = found["interval"]
        lines += [
            _line("by hand", found, "by_hand", "wer_by_hand", "windows_by_hand"),
            f"difference{found['difference']:>+8.2%}  {_range(between['difference'])}; "
            f"by text {_range(between['by_text'])}",
            f"by hand: {found['by_hand']}",
        ]
    lines.append(f"windows of 30 s without packing: {found['windows_fixed']}")
    if "fixed" in found:
        fixed = found["fixed"]
        lines.append(f"  heard so: WER {fixed['per_100']:.2f} % in {fixed['windows']} windows")
    if "cuts" in found:
        lines += _cuts(found["cuts"])
    lines += [f"refused: {name}: {why}" for name, why in found["refused"].items()]
    return lines + _languages(found["languages"])


def _line(who: str, found: dict[str, Any], key: str, rate: str, windows: str) -> str:
    one, between = found["counts"][key], found["interval"][rate]
    return (
        f"{who:<10}{found[rate]:>8.2%}  {_range(between):<20}{one['lost']:>6}{one['added']:>7}"
        f"{one['other']:>7}{found[windows]:>9}{found['rtf'][key] or 0.0:>8.3f}"
    )


def _range(pair: Sequence[float]) -> str:
    return f"{pair[0]:+.2%} to {pair[1]:+.2%}"


def _cuts(cuts: dict[str, Any]) -> list[str]:
    lines = [f"{cuts['number']} cuts; wrong words of a hundred (lost, added, of these doubled):"]
    for kind in ("ours", "by_hand_there", "by_hand"):
        for place, one in (cuts[kind] or {}).items():
            lines.append(
                f"  {kind:<14}{place:<10}{one['per_100']:>6.2f}  of {one['words']} words "
                f"({one['lost']}, {one['added']}, {one['doubled']})"
            )
    return lines


def _languages(languages: Sequence[dict[str, Any]]) -> list[str]:
    """Of recordings in other languages than English: what was heard out."""
    lines = []
    for row in languages:
        if row["language"] == "en":
            continue
        heard = [
            f"{who} {row[who]['language']} ({row[who]['probability']:.2f})"
            for who in ("ours", "by_hand")
            if row[who]
        ]
        lines.append(f"  {row['name']}: {row['language']}, heard {', '.join(heard) or 'nothing'}")
    return lines
