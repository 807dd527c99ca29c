"""What is decided about an episode before it starts: its identity and its random streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hexad.contract.digest import digest
from hexad.contract.task import Split, Task
from hexad.policy.engine import DrawKey


@dataclass(frozen=True, slots=True)
class EpisodePlan:
    """One attempt-to-be. ``group_id`` and ``member`` are carried into the episode.

    ``seed`` is the run's seed. ``group_id`` names the occasion on which the task was drawn and keys
    the random streams, so a task that is drawn twice in training is not sampled with the same
    numbers, while an evaluation that keeps its group ids repeats its numbers.
    """

    task: Task
    group_id: str
    member: int
    seed: int
    environment: str
    episode_id: str

    @property
    def split(self) -> Split:
        """The task's split."""
        return self.task.split

    def key(self, attempt: int = 0) -> DrawKey:
        """The stream of token draws of attempt number ``attempt``."""
        return DrawKey(self.seed, self.group_id, self.member, attempt)

    def environment_seed(self, attempt: int = 0) -> int:
        """Seed of the environment, a 63-bit integer: by run, group, member and attempt.

        Members differ, as the initial state is the task's own and not the seed's; attempts differ,
        so that a failure that the seed draws is not drawn again.
        """
        fields = ["environment", self.seed, self.group_id, self.member, attempt]
        return int(digest(fields)[:16], 16) >> 1


def plan_group(
    task: Task, size: int, *, name: str, seed: int, environment: str
) -> list[EpisodePlan]:
    """Plans of ``size`` members that try ``task``; ``name`` is the group id, unique in a run.

    The episode ids are ``name-0``, ``name-1``, ...
    """
    first = EpisodePlan(task, name, 0, seed, environment, f"{name}-0")
    return [replace(first, member=m, episode_id=f"{name}-{m}") for m in range(size)]


def plan_tasks(
    tasks: Sequence[Task], size: int, *, prefix: str, seed: int, environment: str
) -> list[EpisodePlan]:
    """Plans of ``size`` members for each of ``tasks``, grouped as ``prefix0``, ``prefix1``, ..."""
    return [
        plan
        for index, task in enumerate(tasks)
        for plan in plan_group(
            task, size, name=f"{prefix}{index}", seed=seed, environment=environment
        )
    ]
