"""Tallies as JSON."""

from __future__ import annotations

from typing import Any

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
