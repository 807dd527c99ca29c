"""Made run folders of arms, written through the same code that real runs use."""

from types import SimpleNamespace

from plain_episode import build

from hexad.contract.events import BatchTrained, EpisodeDone, GroupJudged, TasksDrawn, Timed
from hexad.evidence import journal
from hexad.evidence.ledger import Ledger
from hexad.learner import checkpoint
from hexad.learner.registry import Registry
from hexad.recipe.dump import write
from hexad.recipe.load import load

BATCHES = 4


def recipe_file(folder, *, name="made", method="grpo"):
    path = folder / f"{name}.yaml"
    path.write_text(
        f"name: {name}\nmethod: {method}\npolicy: {{model: 'builtin:tiny'}}\n"
        "data: {groups: 2, group_size: 2}\nbudget: {episodes: 16}\n"
        "update: {optimizer: {schedule: constant}}\n"
        "run: {evaluation: {every: null, points: 2, final: none}}\n"
    )
    return path


def outcomes(*correct, attempts=1):
    """Tasks t0, t1, ... with so many of ``attempts`` correct."""
    return {f"t{i:03}": [c, attempts] for i, c in enumerate(correct)}


def evaluated(folder, split, step, found, **more):
    correct, scored = (sum(pair[i] for pair in found.values()) for i in (0, 1))
    row = {"step": step, "split": split, "episodes": scored, "scored": scored, "correct": correct}
    row |= {"success": correct / scored, "low": 0.0, "high": 1.0, "outcomes": found, **more}
    if split == "hidden":
        journal.append(folder / journal.HIDDEN, {"step": step})
    journal.append(folder / journal.EVALUATIONS, row)


def made(folder, recipe, hidden, **more):
    """A run of four batches with ``hidden`` outcomes at its end."""
    folder.mkdir(parents=True)
    write(recipe, folder / "recipe.yaml")
    ledger = Ledger(folder)
    evaluated(folder, "selection", 0, outcomes(0, 1))
    for batch in range(BATCHES):
        ledger(TasksDrawn(batch, 2, 4))
        names = tuple(f"{batch}-{i}" for i in range(4))
        for name in names:
            ledger(EpisodeDone(batch, build(name)))
        ledger(GroupJudged(batch, "a", "mixed", True, 2, 2, 8))
        ledger(GroupJudged(batch, "b", "all_correct", False, 2, 2, 8))
        ledger(BatchTrained(batch, names, 16, 16, 16, 36, 2))
        ledger(Timed(batch, "rollout", 0.5))
        ledger.commit(batch)
        if batch % 2:
            evaluated(folder, "selection", batch + 1, outcomes(1, *[0] * (3 - batch)))
    if hidden is not None:
        evaluated(folder, "hidden", BATCHES, hidden, temperature=1.0, verifier="v", **more)
    return folder


def arm(folder, hidden, *settings, method="grpo", **more):
    """Run folders with seeds 1, 2, ... of an arm, one of each entry of ``hidden``."""
    folder.mkdir(exist_ok=True)
    name = folder.name
    file = recipe_file(folder, name=name, method=method)
    return [
        made(folder / str(seed), load(file, [f"run.seed={seed}", *settings]), each, **more)
        for seed, each in enumerate(hidden, start=1)
    ]


def ended(folder, why="budget"):
    """A whole checkpoint of a run that ended so; empty for one that was stopped."""

    def save(path):
        path.mkdir(exist_ok=True)
        (path / "config.json").write_text("{}")

    registry = Registry()
    registry.register("loop", SimpleNamespace(state=lambda: {"ended": why}, restore=None))
    checkpoint.write(folder, BATCHES, save, registry, checkpoint.Journal())
