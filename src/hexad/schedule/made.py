"""What is made of attempts: pairs, labels, or the samples that imitation keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hexad.contract.episode import Episode
from hexad.contract.faults import UserError
from hexad.feedback import pairs
from hexad.feedback.pair_audit import audit
from hexad.recipe.axes import Recipe


@dataclass(frozen=True, slots=True)
class Made:
    """``items`` are what a batch is drawn from: both sides of a pair, or one episode.

    ``unused`` are episodes in no item. ``row`` is the audit as JSON, ``text`` the same in a line.
    """

    items: tuple[tuple[Episode, ...], ...]
    unused: tuple[Episode, ...]
    row: Mapping[str, Any]
    text: str

    @property
    def outside(self) -> float | None:
        """Share of the states visited by all the episodes that no item holds.

        ``None`` where none is named, as in the rows of a data set.
        """
        states = self.row["states"]
        return states["outside"] / states["visited"] if states and states["visited"] else None


def made(episodes: Sequence[Episode], recipe: Recipe, name: str) -> Made:
    """Items of ``episodes`` by ``data.pairs`` or ``data.rounds.keep``; ``name`` begins pair names.

    Raises ``UserError`` when there is none.
    """
    refused, spec = pairs.Refused(), recipe.data.pairs
    tasks = len({episode.task_id for episode in episodes})
    items: list[tuple[Episode, ...]]
    if spec is not None and spec.rule != "labels":
        found, refused = pairs.make(episodes, pair_rule(recipe))
        items = [pair.sides(f"{name}-{number}") for number, pair in enumerate(found)]
        told = audit(found, tasks, refused)
        row, text = told.row(), told.text()
    else:
        singles = _singles(episodes, recipe, refused)
        items = [(episode,) for episode in singles]
        row, text = _counted(singles, tasks, refused)
    if not items:
        raise UserError(
            f"{len(episodes)} episodes of {tasks} tasks make nothing to learn from: {text}",
            where="data.pairs" if spec is not None else "data.rounds.keep",
            fix="sample more tasks or attempts, lower data.pairs.gap, or begin with a policy that "
            "is sometimes right and sometimes wrong",
        )
    forks = [episode for episode in episodes if episode.prefix is not None]
    if forks:
        good = sum(e.correct for e in forks)
        row = {**row, "forks": {"played": len(forks), "correct": good}}
        text += f"; {len(forks)} forks, {good} correct"
    used = {episode.episode_id for item in items for episode in item}
    unused = tuple(episode for episode in episodes if episode.episode_id not in used)
    states = states_of(items, episodes)
    if states["visited"]:
        text += f"; {states['outside']} of {states['visited']} visited states are in none"
    return Made(tuple(items), unused, {**row, "states": states}, text)


def states_of(items: Sequence[tuple[Episode, ...]], episodes: Sequence[Episode]) -> dict[str, int]:
    """How many states ``episodes`` have ``visited``, and how many no item holds (``outside``)."""
    inside = {state for item in items for episode in item for state in episode.states}
    visited = {state for episode in episodes for state in episode.states}
    return {"visited": len(visited), "outside": len(visited - inside)}


def pair_rule(recipe: Recipe) -> pairs.Rule:
    """The rule that ``data.pairs`` declares."""
    spec = recipe.data.pairs
    assert spec is not None
    return pairs.Rule(spec.rule, spec.gap or 0.0, spec.most, recipe.feedback.weights)


def _singles(episodes: Sequence[Episode], recipe: Recipe, refused: pairs.Refused) -> list[Episode]:
    keep = recipe.data.rounds.keep if recipe.data.rounds is not None else None
    if keep == "best":
        return pairs.best(episodes, refused, recipe.feedback.weights)
    if keep == "correct":
        return pairs.correct(episodes, refused)
    return pairs.labelled(episodes, refused)


def _counted(
    singles: Sequence[Episode], tasks: int, refused: pairs.Refused
) -> tuple[dict[str, Any], str]:
    good = sum(e.correct for e in singles)
    covered = len({e.task_id for e in singles})
    reasons = {key: count for key, count in sorted(refused.reasons.items()) if count}
    counts = {"correct": good, "other": len(singles) - good, "tasks": tasks, "covered": covered}
    text = f"{good} correct and {len(singles) - good} other episodes of {covered} of {tasks} tasks"
    left = "".join(f"; {count} {key.replace('_', ' ')}" for key, count in reasons.items())
    return {**counts, "refused": reasons}, text + left
