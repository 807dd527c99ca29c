"""Staleness of a run on the screen: what each bucket did, and whether the episodes have shifted."""

from __future__ import annotations

import math
from typing import Any

from rich.console import JustifyMethod
from rich.table import Table

_COLUMNS = {
    "tokens": "tokens",
    "p99": "log_ratio_direct/p99",
    "max": "log_ratio_direct/max",
    "kl": "kl",
    "outside": "outside",
    "ess": "ess",
    "reward": "reward",
}
"""What fits a terminal of 80 columns; ``ledger.jsonl`` has the rest."""


def staleness_report(stage: dict[str, Any]) -> list[Table]:
    """What stale data did, by bucket over the run, and whether what is trained on has shifted."""
    if "staleness" not in stage:
        return []
    buckets = Table(
        title=f"Staleness of {stage['name']}, over the run",
        title_justify="left",
        caption="accepted tokens by version lag, queue age in seconds and action tokens of the "
        "episode, from the lower end given; p99, max: of current / behaviour; outside: clipped "
        "or gated; ess: effective sample size, as a share; ledger.jsonl has more",
        caption_justify="left",
    )
    for column in ("bucket", *_COLUMNS):
        side: JustifyMethod = "left" if column == "bucket" else "right"
        buckets.add_column(column, justify=side, no_wrap=True)
    rows = stage["staleness"]["buckets"]
    for name in sorted(rows, key=lambda n: (n.split("_")[0], int(n.split("_")[1]))):
        buckets.add_row(name, *(_cell(key, rows[name].get(key)) for key in _COLUMNS.values()))
    mix = Table(title=f"Episodes of {stage['name']}", title_justify="left")
    for column in ("share", *(kinds := ("generated", "accepted", "fresh"))):
        mix.add_column(column, justify="left" if column == "share" else "right")
    for label, shares in sorted(stage["staleness"]["mix"].items()):
        mix.add_row(label, *(f"{shares.get(kind, 0.0):.1%}" for kind in kinds))
    return [buckets, mix]


def _cell(key: str, value: float | None) -> str:
    if value is None:
        return ""
    if key == "tokens":
        return f"{value / 1000:,.0f}k" if value >= 10_000 else f"{value:,}"
    return f"{math.exp(value):.3g}" if key.startswith("log_ratio") else f"{value:.2g}"
