"""Dynamic sampling: draw tasks until enough groups have a contrast to learn from."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hexad.contract.arrow import from_ipc, to_ipc
from hexad.contract.episode import Episode
from hexad.contract.faults import UserError
from hexad.credit.dynamic import Outcome, Selection, select
from hexad.recipe.axes import Recipe
from hexad.schedule.source import Harvest

Group = tuple[Episode, ...]
Draw = Callable[[int], tuple[list[Group], bool]]
"""``draw(tasks)``: the groups of the next tasks, in order, and whether no task is left."""

_LEAST_SHARE = 0.25
"""Smallest share of usable groups that a refill counts on: it asks for at most four times what is
missing."""


class Refill:
    """Fills a batch with groups whose scores differ; what waits for the next batch is its state.

    The first round draws the batch's number of tasks, each further one as many as the share of
    usable groups so far makes likely to be enough. After ``rounds`` it trains on what it has, or
    stops, as declared. Groups enter in task order. A budget ends the run between batches: what a
    refill draws beyond it is counted.
    """

    def __init__(self, recipe: Recipe) -> None:
        assert recipe.data.dynamic is not None
        self._recipe, self._spec = recipe, recipe.data.dynamic
        self._waiting: list[Group] = []

    def fill(self, version: int, draw: Draw) -> Harvest:
        """The next batch. Raises ``UserError`` when the cap is reached without one."""
        target, groups = self._recipe.data.groups, self._waiting
        drawn: list[Group] = []
        carried, ended, found = len(groups), False, None
        wanted = target
        for number in range(self._spec.rounds):
            fresh, ended = draw(wanted)
            drawn += fresh
            groups = [*self._waiting, *drawn]
            found = self._select(groups, capped=ended or number + 1 == self._spec.rounds)
            if not found.more:
                break
            usable = target - found.more
            share = max(usable / len(groups), _LEAST_SHARE)
            wanted = math.ceil(found.more / share)
        assert found is not None
        if not found.kept and not ended:
            raise UserError(
                f"batch {version}: {self._spec.rounds} rounds of dynamic sampling drew "
                f"{len(drawn)} groups ({carried} were carried), and too few have correct and wrong "
                "members",
                where="data.dynamic",
                fix="raise data.dynamic.rounds or data.group_size, set at_cap: train, or change "
                "the mix of tasks so that the policy solves some of them sometimes",
            )
        self._waiting = [groups[i] for i in found.carried]
        dropped = [
            (episode, f"no_signal_{reason}")
            for reason, which in found.dropped.items()
            for i in which
            for episode in groups[i]
        ]
        dropped += [(episode, "surplus") for i in found.surplus for episode in groups[i]]
        return Harvest(
            tuple(episode for i in found.kept for episode in groups[i]),
            exhausted=ended,
            dropped=tuple(dropped),
            sampled=tuple(episode for group in drawn for episode in group),
        )

    def _select(self, groups: list[Group], *, capped: bool) -> Selection:
        return select(
            [self._outcome(group) for group in groups],
            self._recipe.data.groups,
            surplus=self._spec.surplus,
            capped=capped,
            at_cap="partial" if self._spec.at_cap == "train" else "skip",
        )

    def _outcome(self, group: Group) -> Outcome:
        weights = self._recipe.feedback.weights
        masked = self._recipe.credit.truncation == "mask"
        return Outcome(
            tuple(episode.score(weights) for episode in group),
            tuple(e.scored and not (masked and e.ending.truncated) for e in group),
            tuple(e.correct for e in group),
            sum(episode.costs.sampled_tokens for episode in group),
        )

    def state(self) -> dict[str, Any]:
        """The groups that wait, as bytes, and their sizes."""
        flat = [episode for group in self._waiting for episode in group]
        return {"sizes": [len(group) for group in self._waiting], "episodes": to_ipc(flat)}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where :meth:`state` was taken."""
        flat = iter(from_ipc(state["episodes"]))
        self._waiting = [tuple(next(flat) for _ in range(size)) for size in state["sizes"]]
