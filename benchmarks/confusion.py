"""How often ``hexad diagnose`` names what was injected, over real training runs.

    OMP_NUM_THREADS=1 python benchmarks/confusion.py --set tune|score [--only NAME ...] [--limit N]

One process composes and trains every run of ``benchmarks/confusion.yaml`` with the cases of
``benchmarks/injections.py``, diagnoses it, and writes a row to ``rows.jsonl`` in the folder of its
set. Rules and thresholds may be changed on ``tune``; ``score`` has another environment and other
seeds, and is run once they are frozen. A run that ended is not trained again, but it is diagnosed
again where the code of the diagnosis has changed. Prints the matrix as Markdown.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from injections import HEALTHY, INJECTIONS, Case

from hexad.contract.digest import code_digest
from hexad.evidence import metrics
from hexad.evidence.diagnosis import curves, diagnose, findings, series, stored
from hexad.evidence.folder import claim, parts
from hexad.evidence.intervals import wilson
from hexad.recipe.axes import Recipe
from hexad.recipe.load import load
from hexad.run import train

HERE = Path(__file__).parent
RECIPE = HERE / "confusion.yaml"
NOTHING = "nothing"
Row = dict[str, Any]


@dataclass(frozen=True)
class Bed:
    """Where a set is run: overrides of the environment, and the seeds."""

    overrides: tuple[str, ...]
    seeds: tuple[int, ...]


BEDS = {
    "tune": Bed(
        (
            "task.environment=calculator-hard",
            "task.options={operations: {1: 0.5, 2: 0.5}, high: 9, operators: '+-*'}",
        ),
        (101,),
    ),
    "score": Bed((), (201, 202)),
}
"""The set that rules are fixed on, and the one that they are scored on."""


@dataclass(frozen=True)
class Job:
    """One run: a case with a seed."""

    case: Case
    seed: int

    @property
    def name(self) -> str:
        """Of the run and its folder."""
        return f"{self.case.name}-{self.seed}"


def jobs(bed: Bed) -> Iterator[Job]:
    """Every run of ``bed``, seed by seed."""
    for seed in bed.seeds:
        yield from (Job(case, seed) for case in (*INJECTIONS, *HEALTHY))


def recipe_of(job: Job, bed: Bed, more: Sequence[str] = ()) -> Recipe:
    """The recipe of ``job``; ``more`` overrides come last."""
    own = (f"name={job.name}", f"run.seed={job.seed}", f"task.train.options.seed={job.seed}")
    made = load(RECIPE, [*own, *bed.overrides, *job.case.overrides, *more])
    assert isinstance(made, Recipe)
    return made


def start(job: Job, bed: Bed, out: Path, model: str) -> str:
    """The policy that ``job`` starts from: ``model``, or what its case trains of it first."""
    if not job.case.before:
        return model
    first = Job(replace(job.case, overrides=job.case.before, before=()), job.seed)
    folder = out / f"before-{job.case.symptom}-{job.seed}"
    if not ended(folder):
        run(first, bed, folder, [f"policy.model={model}", "run.checkpoints.keep=1"])
    return str(folder)


def ended(folder: Path) -> bool:
    """Whether the run in ``folder`` is whole."""
    return (folder / "seconds.json").exists()


def run(job: Job, bed: Bed, folder: Path, more: Sequence[str] = ()) -> None:
    """Train ``job`` in ``folder``; what is left of a broken run is removed first."""
    shutil.rmtree(folder, ignore_errors=True)
    made, begun = recipe_of(job, bed, more), (time.perf_counter(), time.process_time())
    claim(folder, made, resume=False)
    with job.case.patch():
        train(made, folder)
    wall, used = time.perf_counter() - begun[0], time.process_time() - begun[1]
    told = {"wall": round(wall, 2), "processor": round(used, 2)}
    (folder / "seconds.json").write_text(json.dumps(told))


def rules_digest() -> str:
    """Digest of everything that decides what is named."""
    modules = (curves, diagnose, findings, series, stored, metrics)
    return code_digest("diagnosis", "1", {}, *modules)


def named(folder: Path, job: Job) -> Row:
    """The row of a run that ended: what was injected, and what ``hexad diagnose`` names."""
    (part,) = parts(folder)
    found = diagnose.diagnose(part)
    listed = [[f["key"], f["confidence"], f["since"]] for f in found["findings"]]
    return {
        "run": job.name,
        "injected": job.case.symptom,
        "strength": job.case.strength,
        "seed": job.seed,
        "named": [key for key, *_ in listed],
        "findings": listed,
        "batches": found["facts"]["batches"],
        "rules": rules_digest(),
        **json.loads((folder / "seconds.json").read_text()),
    }


def known(path: Path) -> dict[str, Row]:
    """The last row of every run."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {row["run"]: row for row in map(json.loads, lines)}


# -- the matrix -----------------------------------------------------------------------------------


def _share(hits: int, count: int) -> str:
    low, high = wilson(hits, count) or (0.0, 1.0)
    return f"{hits}/{count} [{100 * low:.0f}, {100 * high:.0f}]"


def _first(row: Row) -> str:
    return str(row["named"][0]) if row["named"] else NOTHING


def matrix(rows: Sequence[Row]) -> str:
    """Injected by named first: counts, and the share that is right with its 95 % interval."""
    injected = list(dict.fromkeys(case.symptom for case in INJECTIONS))
    columns = [*injected, NOTHING]
    head = ["injected \\ named first", *columns, "right first", "named at all"]
    lines = [head, ["---", *["--:"] * len(columns), "---", "---"]]
    for key in [*injected, None]:
        mine = [row for row in rows if row["injected"] == key]
        if not mine:
            continue
        counts = Counter(_first(row) for row in mine)
        right = key or NOTHING
        at_all = sum(right in row["named"] or _first(row) == right for row in mine)
        cells = [str(counts[column] or "") for column in columns]
        shares = [_share(counts[right], len(mine)), _share(at_all, len(mine))]
        lines.append([key or "healthy", *cells, *shares])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def by_strength(rows: Sequence[Row]) -> str:
    """One line an injection: how often it was named first, and what else was."""
    lines = ["| injected | how | right first | otherwise first |", "|---|---|--:|---|"]
    for case in INJECTIONS:
        mine = [r for r in rows if (r["injected"], r["strength"]) == (case.symptom, case.strength)]
        if not mine:
            continue
        other = Counter(_first(row) for row in mine if _first(row) != case.symptom)
        told = ", ".join(f"{name} {count}" for name, count in other.most_common())
        hits = len(mine) - sum(other.values())
        lines.append(f"| {case.symptom} | {case.strength} | {hits}/{len(mine)} | {told} |")
    return "\n".join(lines)


def summary(rows: Sequence[Row]) -> str:
    """The two figures that are aimed at."""
    sick = [row for row in rows if row["injected"] is not None]
    well = [row for row in rows if row["injected"] is None]
    right = sum(_first(row) == row["injected"] for row in sick)
    alarms = [row for row in well if row["named"]]
    told = [
        f"named first: {_share(right, len(sick))} %",
        f"false alarms: {_share(len(alarms), len(well))} %",
    ]
    told += [f"  {row['run']}: {', '.join(row['named'])}" for row in alarms]
    return "\n".join(told)


def main() -> None:
    """Run what is missing, then print the matrix."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--set", choices=BEDS, required=True, dest="name")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[""],
        help="a symptom, healthy, or the beginning of a run's name",
    )
    parser.add_argument("--limit", type=int, help="most runs that are trained now")
    parser.add_argument("--seconds", type=float, help="begin no run after so many")
    parser.add_argument("--model", default="runs/calculator-sft")
    parser.add_argument("--out", type=Path, default=HERE.parent / "runs" / "confusion")
    options = parser.parse_args()
    bed, out = BEDS[options.name], options.out / options.name
    out.mkdir(parents=True, exist_ok=True)
    log, begun, trained = out / "rows.jsonl", time.monotonic(), 0
    done, rules = known(log), rules_digest()
    for job in jobs(bed):
        if not job.name.startswith(tuple(options.only)):
            continue
        folder = out / job.name
        if not ended(folder):
            late = options.seconds is not None and time.monotonic() - begun > options.seconds
            if late or (options.limit is not None and trained >= options.limit):
                continue
            policy = start(job, bed, out, options.model)
            run(job, bed, folder, [f"policy.model={policy}"])
            trained += 1
            done.pop(job.name, None)  # it may have been trained before
        if done.get(job.name, {}).get("rules") == rules:
            continue
        row = done[job.name] = named(folder, job)
        with log.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{job.name}: {row['findings']} {row['wall']} s", flush=True)
    rows = [row for row in done.values() if row["rules"] == rules]
    print(matrix(rows), by_strength(rows), summary(rows), sep="\n\n")


if __name__ == "__main__":
    main()
