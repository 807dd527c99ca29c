"""DAgger: rounds whose items are the expert's turns in the states that the policy visited."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hexad.contract.episode import Episode
from hexad.contract.events import EpisodeDone, Sink, ignore
from hexad.contract.faults import UserError
from hexad.contract.store import Store
from hexad.environments.advice import Advising
from hexad.recipe.axes import Recipe
from hexad.rollout.relabel import relabelled
from hexad.rollout.world import World
from hexad.schedule.cursor import train_tasks
from hexad.schedule.made import Made, states_of
from hexad.schedule.pairs import RoundSource


class VisitedSource(RoundSource):
    """A round adds its labels to those of all rounds before; each pass is over all of them.

    What was played is booked as dropped, what the expert said as supplied. Raises ``UserError``
    for an environment whose expert gives no advice.
    """

    def __init__(self, world: World, recipe: Recipe, folder: Path, sink: Sink = ignore) -> None:
        super().__init__(world, recipe, folder, sink)
        if not isinstance(world.family, Advising):
            raise UserError(
                f"the expert of {world.family.name} gives no advice in states of others",
                where="data.rounds.keep",
                fix="give the family hexad.environments.advice.Advising, or use method: sft",
            )
        self._family: Advising = world.family
        self._versions: list[int] = []
        """The versions that sampled the rounds so far, this one included."""

    def state(self) -> dict[str, Any]:
        """That of rounds, and who sampled the earlier ones."""
        return {**super().state(), "versions": list(self._versions)}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with the next batch; what all rounds have sampled is read from the store."""
        self._items, self._versions = (), []
        store = Store(self._folder / "episodes")
        for number, version in enumerate(state["versions"]):
            self._round = number
            self._enter(int(version), store.read([int(version)]))
        self._round, self._position = int(state["round"]), int(state["position"])
        self._begun = None if state["begun"] is None else int(state["begun"])

    def _enter(self, version: int, episodes: Sequence[Episode]) -> Made:
        found = self._labelled(episodes)
        self._trained = len(self._items)
        self._items = (*self._items, *found.items)
        self._begun = version
        self._versions.append(version)
        return found

    def _tell(self, version: int, found: Made) -> None:
        for (episode,) in found.items:
            self._sink(EpisodeDone(version, episode))
        super()._tell(version, found)

    def _labelled(self, episodes: Sequence[Episode]) -> Made:
        """The labels of one round. Raises ``UserError`` when there is none."""
        world, size = self._world, self._spec.tasks
        drawn = train_tasks(world.family, self._limit, self._round * size, size)
        tasks = {task.task_id: task for task in drawn}
        whole = [episode for episode in episodes if not episode.faulted]
        labels = [relabelled(e, tasks[e.task_id], self._family, world) for e in whole]
        items = tuple((each.episode,) for each in labels if each.episode is not None)
        turns, agreed, lost = (
            sum(getattr(each, name) for each in labels)
            for name in ("states", "agreed", "unlabelled")
        )
        if not items:
            raise UserError(
                f"the expert has no turn in any of {turns} visited states",
                where="data.rounds.keep",
                fix="raise task.limits, or begin with a policy that was trained on demonstrations",
            )
        counts = {"episodes": len(items), "turns": turns, "agreed": agreed, "unlabelled": lost}
        row = {**counts, "states": states_of(items, episodes)}
        text = f"{len(items)} episodes with {turns} visited states; the expert's own turn in "
        text += f"{agreed}" + (f", no label in {lost}" if lost else "")
        return Made(items, tuple(episodes), row, text)
