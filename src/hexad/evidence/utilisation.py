"""Wall-clock, utilisation and staleness of an asynchronous run: no speed is claimed without all."""

from __future__ import annotations

from typing import Any

from hexad.evidence import metrics
from hexad.evidence.folder import Row

_WAITS = "time/rollout"
_APART = ("time/evaluation", _WAITS)


def utilisation(rows: list[Row]) -> dict[str, Any] | None:
    """What the batches ``rows`` say together; ``None`` for a synchronous run, or without rows.

    ``tokens_per_second``: accepted action tokens by seconds of training. ``learner``: share of
    these seconds in which the learner did not wait for episodes. ``workers``: processor seconds a
    second, mean over workers and batches. ``lag_mean`` and ``lag_max`` are over trained episodes.
    """
    seen = [row for row in rows if f"{metrics.LAG}/mean" in row]
    if not seen:
        return None
    phases = [
        value
        for row in rows
        for key, value in row.items()
        if key.startswith("time/") and "/" not in key[5:] and key not in _APART
    ]
    waited = sum(row.get(_WAITS, 0.0) for row in rows)
    seconds = sum(phases) + waited
    episodes = sum(row[f"{metrics.LAG}/count"] for row in seen)
    busy = [row[f"{metrics.BUSY}/mean"] for row in rows if f"{metrics.BUSY}/mean" in row]
    return {
        "tokens_per_second": sum(row.get("tokens/action", 0) for row in rows) / seconds,
        "learner": 1.0 - waited / seconds,
        "workers": sum(busy) / len(busy) if busy else None,
        "lag_mean": sum(row[f"{metrics.LAG}/mean"] * row[f"{metrics.LAG}/count"] for row in seen)
        / episodes,
        "lag_max": max(row[f"{metrics.LAG}/max"] for row in seen),
    }


def lines(found: dict[str, Any] | None) -> dict[str, str]:
    """The same as labelled text; nothing for a synchronous run."""
    if found is None:
        return {}
    workers = found["workers"]
    return {
        "accepted tokens a second": f"{found['tokens_per_second']:,.0f}",
        "learner busy": f"{found['learner']:.0%}",
        **({"workers busy": f"{workers:.0%}"} if workers is not None else {}),
        "lag mean, max": f"{found['lag_mean']:.2f}, {found['lag_max']:.0f}",
    }
