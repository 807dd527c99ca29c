"""A made-up run with everything a viewer shows, hostile texts included."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers

from builders import episode, provenance, segment
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.events import (
    BatchTrained,
    Consumed,
    EpisodeDone,
    GroupJudged,
    TasksDrawn,
    Timed,
)
from hexad.contract.reward import Owner, OwnerKind, Reward
from hexad.contract.store import Store
from hexad.contract.verdict import Verdict, VerdictStatus
from hexad.evidence import journal
from hexad.evidence.intervals import wilson
from hexad.evidence.ledger import Ledger
from hexad.recipe.dump import write
from hexad.recipe.load import load

SCRIPT = "<script>document.title='owned'</script>"
HOSTILE = (SCRIPT, "\x1b[31mred\x1b[0m", "<img src=x onerror=alert(1)>", "\u202eevil", "</pre>")
"""What tokens 10 to 14 of every episode say; the rest are words."""
RECIPE = """
name: shown
method: grpo
task: {limits: {turns: 2, turn_tokens: 8, context_tokens: 160}}
data: {groups: 2, group_size: 2}
budget: {episodes: 12}
update: {minibatches: 1}
run: {evaluation: {every: null, final: none}, checkpoints: {every: 1}}
"""
SIZE = 4


def tokenizer(folder: Path) -> None:
    """A tokenizer whose tokens 10 to 23 are those of ``builders.segment``."""
    words = [f"w{i}" for i in range(10)] + [*HOSTILE] + [f"word{i} " for i in range(15, 64)]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="w0"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    folder.mkdir(parents=True)
    made.save(str(folder / "tokenizer.json"))


def made(number, step):
    """Right, wrong, cut and hostile by turns; versions lag by up to one."""
    version = max(step - number % 2, 0)
    changes = {
        "episode_id": f"v{step}-{number}",
        "group_id": f"v{step}-{number // 2}",
        "task_id": f"task<{number}>",
        "segments": (segment(version=version),),
        "provenance": provenance(versions=((version, f"weights-{version}"),)),
    }
    if number == 1:
        changes["verdict"] = Verdict(VerdictStatus.WRONG, 0.0, json.dumps({"answer": SCRIPT}))
        changes["rewards"] = (
            Reward("task", 0.0),
            Reward("style<b>", 0.25, Owner(OwnerKind.TURN, 0)),
            Reward("call", -0.5, Owner(OwnerKind.SPAN, 3, 0)),
        )
    if number == 2:
        changes["ending"] = Ending.of(EndingKind.TRUNCATED_TOKENS, SCRIPT)
    return replace(episode(number % 2), **changes)


def evaluation(folder, step, split, correct, n):
    low, high = wilson(correct, n)
    row = {"step": step, "split": split, "episodes": n, "scored": n, "correct": correct}
    journal.append(
        folder / journal.EVALUATIONS, row | {"success": correct / n, "low": low, "high": high}
    )
    if split == "hidden":
        journal.append(folder / journal.HIDDEN, {"step": step})


def batch(ledger, store, step):
    """Train one batch of ``SIZE`` episodes, as the loop would book it."""
    ledger(TasksDrawn(step, 2, SIZE))
    episodes = [made(number, step) for number in range(SIZE)]
    for each in episodes:
        ledger(EpisodeDone(step, each))
        ledger(Consumed(step, each.episode_id, 5, 1, 0.5))
    ledger(GroupJudged(step, f"v{step}-0", "mixed", True, 2, 2, 10))
    ledger(GroupJudged(step, f"v{step}-1", "all_correct", False, 2, 2, 10))
    names = tuple(each.episode_id for each in episodes)
    ledger(BatchTrained(step, names, 5 * SIZE, 5 * SIZE, 10, 14 * SIZE, 1))
    ledger(Timed(step, "rollout", 0.5))
    ledger(Timed(step, "update", 0.75))
    store.append(step, episodes)
    ledger.commit(step)


def run(folder: Path, batches: int = 3) -> Path:
    """The whole run folder."""
    recipe = folder.parent / f"{folder.name}.yaml"
    folder.mkdir(parents=True)
    recipe.write_text(RECIPE)
    write(load(recipe), folder / "recipe.yaml")
    tokenizer(folder / "checkpoints" / "step_3" / "policy")
    evaluation(folder, 0, "hidden", 100, 400)
    evaluation(folder, 0, "selection", 50, 200)
    ledger, store = Ledger(folder), Store(folder / "episodes")
    for step in range(batches):
        batch(ledger, store, step)
    evaluation(folder, batches, "selection", 150, 200)
    evaluation(folder, batches, "hidden", 300, 400)
    return folder


def copied(source: Path, to: Path) -> Path:
    """A run that a test may change."""
    shutil.copytree(source, to)
    return to
