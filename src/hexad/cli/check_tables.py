"""The tables of ``hexad check``."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

Row = dict[str, Any]


def batch(document: Row) -> RenderableType:
    """What was measured on the small batch."""
    count, faulted = document["episodes"], document["faulted"]
    shown = Table(
        title=f"Measured: {count} episodes in {document['groups']} groups, {faulted} faulted",
        title_justify="left",
    )
    for column in ("seconds of", "mean", "p50", "p95", "p99", "max"):
        shown.add_column(column, justify="left" if column == "seconds of" else "right")
    calls = document["environment_seconds"]
    rows = {
        "an episode by itself": document["episode_seconds"],
        "a reset": calls["reset"],
        "a step of the environment": calls["step"],
        "a group, until it is ready": document["barrier"]["ready"],
        "idle work of a group": document["barrier"]["idle_seconds"],
    }
    for name, numbers in rows.items():
        keys = ("mean", "p50", "p95", "p99", "max")
        shown.add_row(name, *(seconds(numbers[k]) if k in numbers else "" for k in keys))
    return Group(shown, _facts(document))


def _facts(document: Row) -> Table:
    rollout, phases = document["phases"]["rollout"], document["phases"]
    facts = Table.grid(padding=(0, 2))
    facts.add_row("idle share of a group", f"{document['barrier']['idle_share']:.0%}")
    facts.add_row(
        "rollout of the batch",
        f"{seconds(rollout['wall'])}, of these {seconds(rollout['cpu'])} on a processor",
    )
    learning = ", ".join(
        f"{name} {seconds(spent['wall'])}"
        for name, spent in phases.items()
        if name not in ("rollout", "store")
    )
    facts.add_row("learner", f"{seconds(document['learner_seconds'])}; wall-clock {learning}")
    facts.add_row(
        "synchronous use",
        f"learner {document['learner_use']:.0%}, rollout {document['rollout_use']:.0%} of the time",
    )
    a, b = seconds(document["step_seconds"]), seconds(document["row_seconds"])
    facts.add_row(
        "a decode step of n rows", f"{a} + n x {b}; n was {document['company']:.1f} on average"
    )
    if (costs := document["streaming"]) is not None:
        a, b = seconds(costs["step_seconds"]), seconds(costs["row_seconds"])
        read = seconds(costs["arrival_seconds"])
        facts.add_row(
            "the same in a worker", f"{a} + n x {b}; the learner reads an episode in {read}"
        )
    if document["signal"] is not None:
        facts.add_row("groups with a contrast", f"{document['signal']:.0%}")
    return facts


def here(document: Row) -> RenderableType:
    """The forecast for this machine."""
    machine, check = document["machine"], document["self_check"]
    title = f"Forecast for this machine: {_cores(machine)}, {_workers(machine)} and the learner"
    legend = (
        "batch: seconds; floor: no schedule is faster; speed-up: in accepted episodes a second; "
        "learner, decode: share of the time; lag: 5 % to 95 % of the trained episodes."
    )
    simulated, measured = check["simulated_rollout"], check["measured_rollout"]
    note = (
        f"The rollout of the measured batch took {seconds(measured)}; simulated, "
        f"{seconds(simulated)}."
    )
    return Group(_schedules(document, title), legend, note)


def cluster(document: Row) -> RenderableType:
    """The forecast for the cluster."""
    machine = document["machine"]
    title = f"Forecast for a cluster: {_workers(machine)} with a core each"
    note = (
        "A batch is an episode a worker, and the learner is taken to grow with it: it keeps the "
        "seconds a batch that it takes here."
    )
    return Group(_schedules(document, title), note)


def _schedules(document: Row, title: str) -> Table:
    size = document["batch"]
    shown = Table(
        title=f"{title}; batches of {size['groups']} x {size['group_size']}", title_justify="left"
    )
    shown.add_column("timing", no_wrap=True)
    for column in ("batch", "floor", "speed-up", "learner", "decode", "stale", "lag"):
        shown.add_column(column, justify="right", no_wrap=True)
    for name, row in document["schedules"].items():
        shown.add_row(
            name,
            seconds(row["batch_seconds"], unit=False),
            seconds(row["floor_seconds"], unit=False),
            f"{row['speedup']:.2f}",
            f"{row['learner_use']:.0%}",
            f"{row['rollout_use']:.0%}",
            f"{row['stale_share']:.1%}",
            " - ".join(str(_lag(row["lags"], q)) for q in (0.05, 0.95)),
        )
    return shown


def _lag(lags: dict[str, int], q: float) -> int:
    """The smallest lag that a share ``q`` of the trained episodes does not exceed."""
    total, seen = sum(lags.values()), 0
    for lag, count in lags.items():
        seen += count
        if seen >= q * total:
            return int(lag)
    return 0


def _workers(machine: Row) -> str:
    count = machine["workers"]
    return f"{count:,} worker{'' if count == 1 else 's'}"


def _cores(machine: Row) -> str:
    count = machine["cores"]
    return f"{count} core{'' if count == 1 else 's'}"


def seconds(value: float, *, unit: bool = True) -> str:
    """``value`` with three digits, in s, ms or us; always in seconds without a unit."""
    if not unit:
        return f"{value:.3g}" if value < 100 else f"{value:.0f}"
    for scale, name in ((1.0, "s"), (1e3, "ms")):
        if value * scale >= 1:
            return f"{value * scale:.3g} {name}"
    return f"{value * 1e6:.3g} us"
