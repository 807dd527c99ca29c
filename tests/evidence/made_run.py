"""A made-up run folder, written through the same code that a real run uses."""

import math
import random

from hexad.contract.events import BatchTrained, EpisodeDone, GroupJudged, TasksDrawn, Timed
from hexad.evidence import journal
from hexad.evidence.intervals import wilson
from hexad.evidence.ledger import Ledger
from hexad.recipe.dump import write
from hexad.recipe.load import load


def evaluation(folder, step, split, success, n):
    correct = round(success * n)
    low, high = wilson(correct, n)
    row = {"step": step, "split": split, "episodes": n, "scored": n, "correct": correct}
    row |= {"success": correct / n, "low": low, "high": high}
    if split == "hidden":
        journal.append(folder / journal.HIDDEN, {"step": step})
    journal.append(folder / journal.EVALUATIONS, row)


def stage(folder, build, *, batches, start, end, expert=False, size=32):
    folder.mkdir(parents=True, exist_ok=True)
    ledger, rng = Ledger(folder), random.Random(0)

    def level(batch):
        return start + (end - start) * (1 - math.exp(-3 * batch / batches)) / (1 - math.exp(-3))

    evaluation(folder, 0, "hidden", start, 400)
    evaluation(folder, 0, "selection", start, 200)
    for batch in range(batches):
        ledger(TasksDrawn(batch, size // 4, size))
        names = tuple(f"{batch}-{i}" for i in range(size))
        for name in names:
            if expert:
                done = build(name, actor="expert", status=None)
            else:
                right = rng.random() < level(batch)
                done = build(name, status="correct" if right else "wrong")
            ledger(EpisodeDone(batch, done))
        if not expert:
            ledger(GroupJudged(batch, "g", "mixed" if batch % 3 else "all_correct", True, 4, 4, 16))
        ledger(BatchTrained(batch, names, 4 * size, 4 * size, 4 * size, 9 * size, 2))
        ledger(Timed(batch, "rollout", 0.5))
        ledger(Timed(batch, "update", 0.8))
        ledger.commit(batch)
        if (batch + 1) % 10 == 0:
            noisy = min(1.0, max(0.0, level(batch + 1) + rng.gauss(0, 0.015)))
            evaluation(folder, batch + 1, "selection", noisy, 200)
    evaluation(folder, batches, "hidden", end, 400)


def staged_run(folder, build, recipe):
    write(load(recipe), folder / "recipe.yaml")
    stage(folder / "sft", build, batches=60, start=0.0, end=0.41, expert=True, size=16)
    stage(folder / "grpo", build, batches=80, start=0.41, end=0.975)
