"""The picture of a run: success against training episodes, stages side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hexad.contract.durable import disk_errors
from hexad.evidence import metrics
from hexad.evidence.folder import Part, parts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SELECTION, TRAIN, HIDDEN, GATE = "#1f5fa8", "#9aa5b1", "#b3261e", "#3a7d44"
SMOOTH = 9
"""Batches in the running mean of training success."""


def draw(run_dir: Path) -> Path:
    """Draw ``curve.png`` in ``run_dir`` and return its path. Raises ``UserError`` for no run."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    stages = parts(run_dir)
    widths = [1.0 if len(stages) < 2 else 0.6 + 0.4 * _share(part, stages) for part in stages]
    figure, panels = pyplot.subplots(
        1,
        max(len(stages), 1),
        figsize=(5.2 + 3.2 * len(stages), 4.6),
        sharey=True,
        squeeze=False,
        width_ratios=widths or None,
        layout="constrained",
    )
    for axes, part in zip(panels[0], stages, strict=False):
        _panel(axes, part)
    panels[0][0].set_ylabel("success (%)")
    handles = {
        label: handle
        for axes in panels[0]
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if handles:
        figure.legend(
            list(handles.values()),
            list(handles),
            loc="outside lower center",
            ncols=len(handles),
            frameon=False,
        )
    path = run_dir / "curve.png"
    with disk_errors("draw the curve", path):
        figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path


def _share(part: Part, stages: list[Part]) -> float:
    return part.episodes_at(1 << 60) / max(max(s.episodes_at(1 << 60) for s in stages), 1)


def _panel(axes: Axes, part: Part) -> None:
    demonstrated = part.recipe.feedback.source == "demonstrations"
    _trained(axes, part)
    _selection(axes, part)
    _hidden(axes, part)
    if part.gate is not None:
        gate = 100 * part.gate.success
        axes.axhline(gate, color=GATE, lw=1, ls=(0, (4, 3)), label=f"gate ({gate:g} %)")
    method = part.recipe.method
    title = part.name if part.name == method else f"{part.name} ({method})"
    axes.set_title(title, fontsize=11, loc="left")
    axes.set_xlabel("demonstrations" if demonstrated else "training episodes")
    axes.set_ylim(-2, 104)
    axes.set_yticks(range(0, 101, 20))
    axes.grid(axis="y", color="#e4e7eb", lw=0.8)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.locator_params(axis="x", nbins=5)
    axes.spines[["top", "right"]].set_visible(False)


def _trained(axes: Axes, part: Part) -> None:
    rows = [row for row in part.metrics if metrics.SUCCESS in row]
    if not rows:
        return
    x = np.array([row["budget/episodes"] for row in rows])
    y = 100 * np.array([row[metrics.SUCCESS] for row in rows])
    axes.plot(x, y, ".", ms=3, color=TRAIN, alpha=0.6)
    window = min(SMOOTH, len(y))
    kernel = np.ones(window)
    # Dividing by the number of points that exist keeps the ends unbiased.
    mean = np.convolve(y, kernel, "same") / np.convolve(np.ones_like(y), kernel, "same")
    axes.plot(x, mean, color=TRAIN, lw=1.5, label=f"training batches (mean of {window})")


def _selection(axes: Axes, part: Part) -> None:
    rows = part.on("selection")
    if not rows:
        return
    x = [part.episodes_at(row["step"]) for row in rows]
    success, low, high = ([100 * row[key] for row in rows] for key in ("success", "low", "high"))
    axes.fill_between(x, low, high, color=SELECTION, alpha=0.15, lw=0)
    axes.plot(x, success, "o-", ms=3.5, color=SELECTION, lw=2, label="selection (95 % Wilson)")


def _hidden(axes: Axes, part: Part) -> None:
    rows = part.on("hidden")
    if not rows:
        return
    x = [part.episodes_at(row["step"]) for row in rows]
    y = np.array([100 * row["success"] for row in rows])
    below = y - np.array([100 * row["low"] for row in rows])
    above = np.array([100 * row["high"] for row in rows]) - y
    axes.errorbar(
        x,
        y,
        yerr=[below, above],
        fmt="D",
        ms=6,
        color=HIDDEN,
        capsize=3,
        lw=1.2,
        zorder=5,
        label="hidden (95 % Wilson)",
    )
    for left, value in dict(zip(x, y, strict=True)).items():
        first = left == min(x)
        axes.annotate(
            f"{value:.1f} %",
            (left, value),
            xytext=(10 if first else -10, -20 if value > 12 else 5),
            textcoords="offset points",
            ha="left" if first else "right",
            color=HIDDEN,
            fontsize=9,
            fontweight="bold",
            bbox={"facecolor": "white", "alpha": 0.8, "lw": 0, "pad": 1},
        )
