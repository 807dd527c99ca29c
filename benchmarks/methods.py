"""Every method on the calculator at one rollout-token budget, from one SFT checkpoint.

    OMP_NUM_THREADS=1 python benchmarks/methods.py --model runs/calculator-sft [--seeds 1 2 3]

Runs ``recipes/methods-study.yaml`` once a method and seed, two processes at a time, into
``runs/study/METHOD-SEED``. A run that is whole is not repeated and one that was cut is resumed, so
the script may be stopped and started again. Hyper-parameters are the same for all methods, but for
what a method's own record says and ``OWN`` below; they were fixed before the first run. Writes the
table to ``docs/methods-study.md``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hexad.evidence.intervals import wilson
from hexad.evidence.summary import summarize

ROOT = Path(__file__).parents[1]
RECIPE = ROOT / "recipes" / "methods-study.yaml"
METHODS = (
    "reinforce", "rloo", "grpo", "dr_grpo", "dapo", "gspo", "cispo", "reinforce_pp", "ppo", "vapo",
    "gigpo",
)  # fmt: skip
_LENGTH = ("action.length=64",)
_CRITIC = ("critic.minibatches=4", "critic.optimizer.lr=2e-3")
OWN: dict[str, tuple[str, ...]] = {
    "reinforce": _LENGTH,
    "rloo": _LENGTH,
    "dr_grpo": _LENGTH,
    "dapo": ("feedback.overlong={limit: 120, cache: 60}",),
    "ppo": _CRITIC,
    "vapo": _CRITIC,
}
"""What a method must declare: a fixed length, bounds of a penalty, the critic's optimiser."""


def command(method: str, seed: int, model: str, folder: Path) -> list[str]:
    """The run as a user would start it."""
    settings = [f"method={method}", f"policy.model={model}", f"run.seed={seed}"]
    settings += [f"name=study-{method}-{seed}", *OWN.get(method, ())]
    resume = ["--resume"] if (folder / "checkpoints").is_dir() else []
    start = [sys.executable, "-m", "hexad", "train", str(RECIPE), *settings]
    return [*start, "--run", str(folder), *resume]


def whole(folder: Path) -> bool:
    """Whether the run ended: its hidden tasks were used at the start and at the end."""
    path = folder / "evaluation.jsonl"
    rows = path.read_text().splitlines() if path.exists() else []
    return sum(json.loads(row)["split"] == "hidden" for row in rows) >= 2


def run(job: tuple[str, int, str, Path]) -> str:
    """One run; returns a line to print."""
    method, seed, model, out = job
    folder = out / f"{method}-{seed}"
    if whole(folder):
        return f"{method} {seed}: there already"
    done = subprocess.run(
        command(method, seed, model, folder), capture_output=True, text=True, check=False
    )
    return f"{method} {seed}: " + ("done" if done.returncode == 0 else done.stderr.strip()[-400:])


def facts(folder: Path) -> dict[str, Any]:
    """What the table needs of one run."""
    stage = summarize(folder)["stages"][0]
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    ledger = json.loads((folder / "ledger.jsonl").read_text().splitlines()[-1])
    flags = ("clip/above", "clip/below")
    pairs = [
        (row[f"{flag}/mean"] * row[f"{flag}/count"], row[f"{flag}/count"] / len(flags))
        for row in rows
        for flag in flags
        if f"{flag}/count" in row
    ]
    tokens = sum(count for _, count in pairs)
    return {
        "correct": stage["hidden"]["end"]["correct"],
        "scored": stage["hidden"]["end"]["scored"],
        "start": stage["hidden"]["start"]["success"],
        "clip": sum(hit for hit, _ in pairs) / tokens if tokens else None,
        "steps": sum(row.get("update/optimizer_steps", 0) for row in rows),
        "episodes": ledger["consumed"]["episodes"],
        "rollout_tokens": ledger["consumed"]["rollout_tokens"],
        "train_tokens": ledger["consumed"]["train_tokens"],
        "seconds": ledger["time"]["train"],
        "ev": rows[-1].get("critic/explained_variance"),
    }


def line(method: str, runs: list[dict[str, Any]]) -> str:
    """One row: hidden success of each seed and of all, budgets as means over seeds."""
    correct, scored = (sum(r[key] for r in runs) for key in ("correct", "scored"))
    low, high = wilson(correct, scored) or (0.0, 1.0)
    each = " ".join(f"{100 * r['correct'] / r['scored']:.1f}" for r in runs)
    mean = {
        key: sum(r[key] for r in runs) / len(runs)
        for key in ("episodes", "rollout_tokens", "train_tokens", "seconds", "steps")
    }
    clips = [r["clip"] for r in runs if r["clip"] is not None]
    clip = f"{100 * sum(clips) / len(clips):.2f} %" if clips else "no bounds"
    return (
        f"| {method} | {100 * correct / scored:.1f} [{100 * low:.1f}, {100 * high:.1f}] | {each} "
        f"| {mean['episodes']:,.0f} | {mean['rollout_tokens']:,.0f} | {mean['train_tokens']:,.0f} "
        f"| {mean['seconds']:,.0f} | {mean['steps']:.0f} | {clip} |"
    )


def table(out: Path, seeds: list[int]) -> str:
    """The Markdown table, best first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for method in METHODS:
        folders = [out / f"{method}-{seed}" for seed in seeds]
        found[method] = [facts(folder) for folder in folders if whole(folder)]
    ranked = sorted(
        (m for m in METHODS if found[m]),
        key=lambda m: -sum(r["correct"] for r in found[m]) / sum(r["scored"] for r in found[m]),
    )
    head = (
        "| method | hidden success, % | each seed | episodes | rollout tokens | train tokens "
        "| seconds | steps | outside the bounds |\n|---|---|---|--:|--:|--:|--:|--:|--:|"
    )
    return "\n".join([head, *(line(method, found[method]) for method in ranked)])


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", default="runs/calculator-sft")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "study")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    jobs = [(m, s, options.model, options.out) for s in options.seeds for m in options.methods]
    with ThreadPoolExecutor(options.workers) as pool:
        for text in pool.map(run, jobs):
            print(text, flush=True)
    print(table(options.out, options.seeds))


if __name__ == "__main__":
    main()
