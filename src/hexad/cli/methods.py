"""``hexad methods``: the table of methods, or one card."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from hexad.recipe.legal import ESTIMATORS, SURROGATES, UNITS
from hexad.recipe.methods import METHODS, Method, method
from hexad.recipe.methods.card import card


def methods(name: str | None, console: Console) -> dict[str, Any]:
    """Print the table, or the card of ``name``; returns the records as JSON values.

    Raises ``UserError`` for an unknown name, with the nearest right one.
    """
    if name is not None:
        record = method(name)
        console.print(card(record), highlight=False, markup=False, soft_wrap=True)
        return _json(record)
    console.print(_table())
    console.print(_surrogates())
    console.print(_estimators())
    return {"methods": [_json(record) for record in METHODS.values()]}


def _json(record: Method) -> dict[str, Any]:
    return {
        **asdict(record),
        "axes": record.values(),
        "functions": dict(record.functions),
        "needs": dict(record.needs),
        "runs": not record.missing,
    }


def _table() -> Table:
    shown = Table(title="methods", title_justify="left")
    for column in ("name", "credit", "surrogate", "ratio", "denominator", "critic", "K", "runs"):
        shown.add_column(column, no_wrap=column == "name", overflow="fold")
    for record in METHODS.values():
        axes, assume = record.values(), record.assumptions
        shown.add_row(
            record.name,
            axes["credit.estimator"],
            axes["update.surrogate"],
            axes.get("action.ratio", "token"),
            axes["action.denominator"],
            "yes" if assume.critic else "",
            f">= {assume.min_group_size}" if assume.min_group_size > 1 else "",
            "not yet" if record.missing else "yes",
        )
    return shown


def _surrogates() -> Table:
    shown = Table(title="surrogates: what they divide, and what they must be told")
    for column in ("update.surrogate", "ratio", *UNITS, "required", "denominators"):
        shown.add_column(column, no_wrap=column == "name", overflow="fold")
    for name, rule in SURROGATES.items():
        units = ["x" if unit in rule.units else "" for unit in UNITS]
        spread = "any" if len(rule.denominators) > 1 else rule.denominators[0]
        shown.add_row(name, rule.ratio, *units, ", ".join(rule.required), spread)
    return shown


def _estimators() -> Table:
    shown = Table(title="estimators: the clocks they run on, and what they must be told")
    for column in ("credit.estimator", "clocks", "required", "optional", "critic", "K"):
        shown.add_column(column, no_wrap=column == "name", overflow="fold")
    for name, rule in ESTIMATORS.items():
        shown.add_row(
            name,
            ", ".join(rule.clocks),
            ", ".join(rule.required),
            ", ".join(rule.optional),
            "yes" if rule.critic else "",
            f">= {rule.group}" if rule.group > 1 else "",
        )
    return shown
