"""Tallies as JSON, and summaries that need no tally."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hexad.contract.tally import Tally


def tally_json(tally: Tally) -> dict[str, Any]:
    """A tally as JSON that :func:`tally_of` reads back; extrema are absent when nothing counted."""
    extrema = {"low": tally.low, "high": tally.high} if tally.count else {}
    bins = [[sign, index, count] for (sign, index), count in tally.bins]
    values = {"count": tally.count, "sum": tally.sum, "squares": tally.squares}
    return values | extrema | {"missing": tally.missing, "bins": bins}


def tally_of(value: dict[str, Any]) -> Tally:
    """The tally that :func:`tally_json` wrote."""
    bins = tuple(((sign, index), count) for sign, index, count in value["bins"])
    return Tally(**{**value, "bins": bins})


def exact(values: Sequence[float]) -> dict[str, float | int]:
    """The summary of a tally of ``values``, with quantiles that are theirs and not a bin's.

    Quantile q is the least value that a share q of them does not exceed (nearest rank, Hyndman and
    Fan's definition 1): always one that occurred.
    """
    summary = Tally.of(values).summary()
    if summary["count"]:
        found = np.quantile(values, (0.5, 0.95, 0.99), method="inverted_cdf")
        summary |= zip(("p50", "p95", "p99"), found.tolist(), strict=True)
    return summary
