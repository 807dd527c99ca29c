"""Synchronous against asynchronous training at equal accepted tokens, and the forecast of both.

    OMP_NUM_THREADS=1 python benchmarks/asynchrony.py --model runs/calculator-sft [--repeats 5]

Short runs: for each latency of ``CELLS``, `hexad check` measures the recipe and forecasts every
schedule of this machine; then the same recipe trains synchronously and asynchronously, turn about,
once a repeat. The first ``WARM`` batches of a run are left out (start-up, empty queue). Seconds are
wall-clock of all phases but evaluation, by accepted action tokens. ``ideal`` is what no schedule
beats with the work that this run did: processor seconds of workers and learner over the cores, the
learner's own seconds, or all waiting over the episodes in flight. Run it on an idle machine.

``--full SEED...`` instead trains the cells of ``FULL`` to the end, both ways, and reports hidden
success. Runs lie in ``--out`` and are not repeated; the tables are printed as Markdown.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexad.evidence.intervals import wilson
from hexad.preflight import cores

ROOT = Path(__file__).parents[1]
RECIPE = ROOT / "recipes" / "calculator-areal.yaml"
CELLS = {
    "none": "null",
    "constant .2": "{kind: constant, mean: 0.2}",
    "lognormal .1": "{kind: lognormal, mean: 0.1, sigma: 1.0}",
    "pareto .1": "{kind: pareto, mean: 0.1, alpha: 1.5, cap: 10.0}",
}
"""Name -> ``task.latency``: seconds a step of the environment."""
FULL = ("constant .2", "pareto .1")
LAGS = (1, 4)
WARM, BATCHES, GROUPS, SIZE = 4, 8, 16, 8
EPISODES = 35_840
"""Budget of a whole run: half of the recipe's."""


@dataclass(frozen=True)
class Timing:
    """A schedule: its name, what a run is told, and its workers and lag."""

    name: str
    settings: tuple[str, ...]
    workers: int = 0
    lag: int = 0


SYNCHRONOUS = Timing("synchronous", ("timing.mode=synchronous", "timing.max_lag=null"))


def timings(counts: list[int]) -> list[Timing]:
    """Synchronous, and asynchronous with every number of workers and every lag limit."""
    found = [SYNCHRONOUS]
    for workers in counts:
        for lag in LAGS:
            settings = (f"timing.max_lag={lag}", f"timing.workers={{count: {workers}}}")
            found.append(Timing(f"max_lag {lag}, {workers} w", settings, workers, lag))
    return found


def hexad(command: str, *words: str) -> str:
    """Run a command of ``hexad`` and return what it printed; its error ends the benchmark."""
    done = subprocess.run(
        [sys.executable, "-m", "hexad", command, str(RECIPE), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"hexad {command} {' '.join(words)}\n{done.stderr[-2000:]}")
    return done.stdout


def rows(folder: Path) -> list[dict[str, Any]]:
    """The metrics of a run after its warm-up."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines][WARM:]


PHASES = ("rollout", "score", "critic", "update", "store", "publish")


def measured(folder: Path) -> dict[str, float]:
    """Seconds, accepted tokens and staleness of one short run, a batch."""
    found = rows(folder)
    seconds = [sum(row.get(f"time/{phase}", 0.0) for phase in PHASES) for row in found]
    waits = [row.get("time/rollout", 0.0) for row in found]
    tokens = [row["tokens/action"] for row in found]
    batch = sum(seconds) / len(found)
    busy = statistics.fmean(row.get("time/worker_busy/mean", 0.0) for row in found)
    count = max(row.get("time/worker_busy/count", 0) for row in found)
    return {
        "seconds": batch,
        "per_token": sum(seconds) / sum(tokens),
        "learner": batch - sum(waits) / len(found),
        "workers": busy * count * batch,
        "lag": statistics.fmean(row.get("schedule/lag/mean", 0.0) for row in found),
        "lag_max": max(row.get("schedule/lag/max", 0.0) for row in found),
    }


def short(options: argparse.Namespace) -> None:
    """Every cell: forecast, then runs turn about; one table."""
    print(
        "| latency | schedule | s a batch | forecast | error | speed-up | forecast | ideal "
        "| share of ideal | learner busy | workers busy | lag mean, max |\n"
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    )
    for cell in options.cells:
        common = (
            f"policy.model={options.model}",
            f"task.latency={CELLS[cell]}",
            f"data.groups={GROUPS}",
            f"data.group_size={SIZE}",
        )
        place = options.out / cell.replace(" ", "-")
        said = {count: forecast(place, common, count) for count in options.workers}
        found: dict[Timing, list[dict[str, float]]] = {}
        for repeat in range(options.repeats):
            for timing in timings(options.workers):
                name = timing.name.replace(",", "").replace(" ", "-")
                folder = place / f"{name}-{repeat}"
                if not (folder / "curve.png").exists():
                    budget = f"budget.episodes={GROUPS * SIZE * (WARM + BATCHES)}"
                    quiet = ("run.evaluation.every=null", "run.evaluation.final=none")
                    rest = (*quiet, "run.checkpoints.every=null", f"run.seed={repeat}")
                    hexad("train", *common, *timing.settings, budget, *rest, "--run", str(folder))
                found.setdefault(timing, []).append(measured(folder))
        report(cell, found, said)


def forecast(place: Path, common: tuple[str, ...], workers: int) -> dict[str, Any]:
    """What `hexad check` says of this machine with ``workers`` workers, and of one episode."""
    folder = place / f"check-{workers}"
    if not (folder / "check.json").exists():
        hexad("check", *common, "--workers", str(workers), "--out", str(folder))
    document = json.loads((folder / "check.json").read_text())
    paths = [path for group in document["measured"]["profile"]["groups"] for path in group]
    waits = [path["reset"] + sum(turn["wait"] for turn in path["turns"]) for path in paths]
    return {"schedules": document["here"]["schedules"], "waits": statistics.fmean(waits)}


def report(
    cell: str, found: dict[Timing, list[dict[str, float]]], said: dict[int, dict[str, Any]]
) -> None:
    """One row a schedule: medians over the repeats, speed-ups by repeat."""
    whole = found[SYNCHRONOUS]
    for timing, runs in found.items():
        middle = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        gain = statistics.median(
            a["per_token"] / b["per_token"] for a, b in zip(whole, runs, strict=True)
        )
        profile = said[timing.workers or min(said)]
        name = f"max_lag {timing.lag}" if timing.workers else timing.name
        told = profile["schedules"][name]
        seconds, learner, workers = middle["seconds"], middle["learner"], middle["workers"]
        waiting = profile["waits"] / (timing.lag + 1)
        ideal = max((workers + learner) / cores(), learner, waiting)
        shown = f"{ideal:.2f} | {100 * ideal / seconds:.0f} %" if timing.workers else "|"
        busy = f"{100 * workers / seconds / timing.workers:.0f} %" if timing.workers else ""
        print(
            f"| {cell} | {timing.name} | {seconds:.2f} | {told['batch_seconds']:.2f} "
            f"| {100 * (told['batch_seconds'] / seconds - 1):+.0f} % | {gain:.2f} "
            f"| {told['speedup']:.2f} | {shown} | {100 * learner / seconds:.0f} % | {busy} "
            f"| {middle['lag']:.1f}, {middle['lag_max']:.0f} |",
            flush=True,
        )


def full(options: argparse.Namespace) -> None:
    """Whole runs of two cells, both ways: hidden success and training seconds."""
    print("| latency | schedule | hidden success, % | seconds |\n|---|---|---|--:|")
    for cell in FULL:
        for timing in (SYNCHRONOUS, timings(options.workers[:1])[-1]):
            correct = scored = 0
            seconds = []
            for seed in options.full:
                name = f"{cell}-{timing.name}-{seed}".replace(",", "").replace(" ", "-")
                folder = options.out / "full" / name
                if not (folder / "curve.png").exists():
                    words = (f"policy.model={options.model}", f"task.latency={CELLS[cell]}")
                    resume = ("--resume",) if (folder / "checkpoints").is_dir() else ()
                    seeded = (f"run.seed={seed}", f"budget.episodes={EPISODES}", *timing.settings)
                    hexad("train", *words, *seeded, "--run", str(folder), *resume)
                lines = (folder / "evaluation.jsonl").read_text().splitlines()
                last = [e for e in map(json.loads, lines) if e["split"] == "hidden"][-1]
                ledger = (folder / "ledger.jsonl").read_text().splitlines()[-1]
                correct, scored = correct + last["correct"], scored + last["scored"]
                seconds.append(json.loads(ledger)["time"]["train"])
            low, high = wilson(correct, scored) or (0.0, 1.0)
            print(
                f"| {cell} | {timing.name} | {100 * correct / scored:.1f} "
                f"[{100 * low:.1f}, {100 * high:.1f}] | {statistics.fmean(seconds):,.0f} |",
                flush=True,
            )


def main() -> None:
    """Short runs, or the whole ones."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", default="runs/calculator-sft")
    parser.add_argument("--workers", type=int, nargs="+", default=[1])
    parser.add_argument("--cells", nargs="+", default=list(CELLS), choices=CELLS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--full", type=int, nargs="+", default=[])
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "asynchrony")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.full:
        full(options)
    else:
        short(options)


if __name__ == "__main__":
    main()
