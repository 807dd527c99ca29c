"""The pictures and tables of one stage, made of its rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from hexad.evidence import metrics
from hexad.evidence.critic import order
from hexad.evidence.folder import Row
from hexad.view.charts import Chart, Line
from hexad.view.facts import Facts

X = "budget/episodes"
_BINS = 40
"""Points of the groups' lines; each pools the counts of its batches."""
CURVES: tuple[tuple[str, str, str], ...] = (
    ("Reward", metrics.SCORE, ""),
    ("KL of old from current (k3)", "policy/kl", "nats"),
    ("Entropy", "policy/entropy", "nats"),
    ("|log ratio| of the engine", "mismatch/engine", "nats"),
    ("log ratio, current / old", "log_ratio/update", "nats"),
    ("log ratio, current / behaviour", "log_ratio/direct", "nats"),
    ("Gradient norm", "policy/grad_norm", ""),
    ("Sampled tokens of an episode", metrics.TOKENS, "tokens"),
    ("Turns of an episode", metrics.TURNS, "turns"),
    ("Lag of trained episodes", metrics.LAG, "versions"),
    ("Age in the queue", metrics.AGE, "seconds"),
    ("Explained variance of the critic", "critic/explained_variance", ""),
    ("Bias of the critic", "critic/bias", ""),
    ("Critic's loss", "critic/loss", ""),
    ("Loss", "policy/loss", ""),
)
"""Title, column of ``metrics.jsonl`` (or the tally behind ``/mean``), unit."""
LAG = {
    "tokens": "accepted tokens",
    "episodes": "episodes",
    "log_ratio_direct/p99": "current / behaviour, p99",
    "log_ratio_direct/max": "largest",
    "kl": "KL",
    "outside": "outside",
    "ess": "ESS",
    "reward": "reward",
    "advantage": "advantage",
}
"""Columns of the table of buckets."""


def success(facts: Facts) -> Chart | None:
    """Success on selection and hidden tasks with 95 % Wilson intervals, and of training."""
    rows = [row for row in facts.part.metrics if metrics.SUCCESS in row]
    lines = [Line("training batches", "train", _x(rows), _y(rows, metrics.SUCCESS), dots=True)]
    for split in ("selection", "hidden"):
        seen = facts.part.on(split)
        x = [float(facts.part.episodes_at(row["step"])) for row in seen]
        y, low, high = ([100 * row[key] for row in seen] for key in ("success", "low", "high"))
        # Hidden tasks are asked at the ends only: a line between would claim what nobody saw.
        lines.append(Line(split, split, x, y, low, high, dots=split == "hidden"))
    lines[0] = Line(lines[0].label, "train", lines[0].x, [100 * v for v in lines[0].y], dots=True)
    kept = tuple(line for line in lines if len(line.x))
    note = "bands and whiskers: 95 % Wilson intervals; small dots: training batches"
    return Chart("Success", kept, note, "%", (0.0, 100.0)) if kept else None


def curves(facts: Facts) -> list[Chart]:
    """One chart a column that the run has written."""
    made = []
    for title, key, unit in CURVES:
        column = f"{key}/mean"
        rows = [row for row in facts.part.metrics if column in row]
        if rows:
            low, high = ([r[f"{key}/{q}"] for r in rows] for q in ("p50", "p95"))
            line = Line(title, "main", _x(rows), [r[column] for r in rows], low, high)
            made.append(Chart(title, (line,), "", unit))
        elif rows := [row for row in facts.part.metrics if key in row]:
            made.append(Chart(title, (Line(title, "main", _x(rows), _y(rows, key)),), "", unit))
    return made


def groups(facts: Facts) -> Chart | None:
    """Share of judged groups by kind, over the run, each point pooled over its batches."""
    kinds = ("mixed", "all_correct", "all_wrong")
    ledger = facts.ledger
    step = max(1, math.ceil(len(ledger) / _BINS))
    marks = [{}, *ledger[step - 1 :: step]]
    found: list[tuple[float, list[float]]] = []
    for before, after in pairwise(marks):
        grown = [_kind(after, kind) - _kind(before, kind) for kind in kinds]
        if sum(grown):
            shares = [100 * count / sum(grown) for count in grown]
            found.append((after["consumed"]["episodes"], shares))
    if not found:
        return None
    x = [at for at, _ in found]
    lines = tuple(
        Line(kind.replace("_", " "), kind, x, [shares[i] for _, shares in found])
        for i, kind in enumerate(kinds)
    )
    note = f"share of judged groups, pooled over {step} batches"
    return Chart("Groups", lines, note, "%", (0.0, 100.0))


def group_rows(facts: Facts) -> list[tuple[str, int, int]]:
    """Kind, groups, tokens over the whole run."""
    found: Mapping[str, Any] = facts.last.get("groups", {})
    return [(k.replace("_", " "), row["groups"], row["tokens"]) for k, row in found.items()]


def lag_rows(facts: Facts) -> list[tuple[str, list[float | None]]]:
    """Buckets of lag, age and length, with the numbers of :data:`LAG`; ratios are not logs."""
    buckets = facts.last.get("staleness", {}).get("buckets", {})
    names = sorted(buckets, key=lambda n: (n.split("_")[0], int(n.split("_")[1])))
    return [(name, [_cell(key, buckets[name].get(key)) for key in LAG]) for name in names]


def drop_rows(facts: Facts) -> list[tuple[str, int, int, str]]:
    """What was trained on or dropped: reason, episodes, tokens, lags."""
    return [
        (
            reason,
            row["episodes"],
            row["tokens"],
            ", ".join(f"{k}: {v:,}" for k, v in sorted(row["lag"].items(), key=_start)),
        )
        for reason, row in facts.last.get("drops", {}).items()
    ]


def calibration(facts: Facts) -> Chart | None:
    """Mean realised return over mean value, by bucket of value, on the critic's last batch."""
    slices = facts.last.get("critic", {}).get("slices", {})
    rows = [slices[name] for name in sorted(slices, key=order) if name.startswith("value ")]
    if not rows:
        return None
    x, y = [r["value_mean"] for r in rows], [r["return_mean"] for r in rows]
    error = [1.96 * r["return_std"] / math.sqrt(r["n"]) for r in rows]
    low, high = ([a + sign * e for a, e in zip(y, error, strict=True)] for sign in (-1, 1))
    ends = [min(x), max(x)]
    note = "line: mean return of a bucket of values; band: 1.96 standard errors, steps taken as "
    note += "independent; grey: perfect"
    lines = (Line("perfect", "train", ends, ends), Line("return", "main", x, y, low, high))
    return Chart("Realised return over value", lines, note)


def critic_rows(facts: Facts) -> list[tuple[str, Row]]:
    """The slices of the critic's last report, in order."""
    slices = facts.last.get("critic", {}).get("slices", {})
    return [(name, slices[name]) for name in sorted(slices, key=order)]


def _kind(row: Mapping[str, Any], kind: str) -> float:
    return float(row.get("groups", {}).get(kind, {}).get("groups", 0))


def _x(rows: Sequence[Row]) -> list[float]:
    return [row[X] for row in rows]


def _y(rows: Sequence[Row], key: str) -> list[float]:
    return [row[key] for row in rows]


def _cell(key: str, value: float | None) -> float | None:
    return math.exp(value) if value is not None and key.startswith("log_ratio") else value


def _start(item: tuple[str, int]) -> int:
    return int(item[0].split("-")[0])
