"""What the policy visits in an evaluation that the data it learns from does not hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hexad.contract.episode import Episode
from hexad.contract.task import Split, Task
from hexad.evidence.folder import Row


@dataclass
class Visits:
    """A ``Beside`` of evaluations: the entry ``states`` of their rows.

    ``stored`` reads the digests of the states in the data, once. Of the different states that the
    episodes ``visited``, ``outside`` are in no datum. ``known`` is the same for the ``episodes``
    that begin in a state of the data: where states name their task, the others are outside by
    construction. No entry where either side names no states, as the rows of a data set do.
    """

    stored: Callable[[], frozenset[str]]

    def __call__(
        self, split: Split, tasks: Sequence[Task], episodes: Sequence[Episode]
    ) -> dict[str, Any]:
        """The entry, or none where nothing can be compared."""
        played = [each for each in episodes if each.states and not each.faulted]
        if not played or not self._inside:
            return {}
        known = [each for each in played if each.states[0] in self._inside]
        return {"states": {**self._counts(played), "known": self._counts(known)}}

    @cached_property
    def _inside(self) -> frozenset[str]:
        return self.stored()

    def _counts(self, episodes: Sequence[Episode]) -> dict[str, int]:
        visited = {state for episode in episodes for state in episode.states}
        outside = len(visited - self._inside)
        return {"episodes": len(episodes), "visited": len(visited), "outside": outside}


def lines(rows: Sequence[Row]) -> dict[str, str]:
    """For a summary: the newest entry among ``rows`` of evaluations, oldest first."""
    seen = [row["states"] for row in rows if "states" in row]
    if not seen:
        return {}
    every, known = seen[-1], seen[-1]["known"]
    text = f"{every['outside']} of {every['visited']} visited"
    begun = f"{known['episodes']} of {every['episodes']} episodes begin in it"
    if known["episodes"]:
        begun += f": {known['outside']} of {known['visited']}"
    return {"states outside the data": f"{text} ({begun})"}
