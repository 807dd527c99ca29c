"""What imitation has learned, beside success: the loss on held-out tokens, and what errors do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hexad.contract.episode import Episode
from hexad.contract.faults import UserError
from hexad.contract.task import Split, Task
from hexad.environments.advice import Advising, wrong_turns
from hexad.evidence.exam import Rate
from hexad.policy.chat import Chat
from hexad.rollout.demonstrate import record
from hexad.rollout.plan import plan_tasks
from hexad.rollout.world import World

Loss = Callable[[Sequence[Episode]], tuple[float, int]]
"""``episodes -> (mean loss, tokens)``, at the policy's present weights."""
_MANY = 1 << 30
_UNLIMITED = {"turns": _MANY, "turn_tokens": _MANY, "context_tokens": _MANY, "seconds": None}


@dataclass
class Imitation:
    """A ``Beside`` of evaluations in ``world``: the entry ``imitation`` of their rows.

    ``token_loss`` is on ``held_out`` episodes or, without any, on the expert's demonstrations of
    the very tasks that were evaluated, where the family has an expert. What the policy may not do
    (``world.limits``) does not cut the expert; what has more than ``positions`` tokens is left out.
    ``dropped`` counts held-out rows that are not among them, by flaw.
    ``first_error`` and ``recovery`` are there where the family gives advice.
    """

    world: World
    loss: Loss
    positions: int
    held_out: Sequence[Episode] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    _shown: dict[tuple[Split, int], Sequence[Episode]] = field(default_factory=dict)

    def __call__(
        self, split: Split, tasks: Sequence[Task], episodes: Sequence[Episode]
    ) -> dict[str, Any]:
        """The entry, or none where nothing can be said."""
        found: dict[str, Any] = {}
        if shown := self.held_out or self._demonstrated(split, tasks):
            loss, tokens = self.loss(shown)
            of = "held_out" if self.held_out else "expert"
            found["token_loss"] = {"mean": loss, "tokens": tokens, "of": of}
            if self.dropped:
                found["token_loss"]["dropped"] = dict(self.dropped)
        if isinstance(self.world.family, Advising):
            found |= errors(self.world.family, self.world.chat, tasks, episodes)
        return {"imitation": found} if found else {}

    def _demonstrated(self, split: Split, tasks: Sequence[Task]) -> Sequence[Episode]:
        """The expert's episodes of ``tasks``, recorded once; none where there is no expert."""
        key = split, len(tasks)
        if key not in self._shown:
            try:
                self.world.family.demonstration(tasks[0])
            except UserError:
                return ()
            name = self.world.family.name
            plans = plan_tasks(tasks, 1, prefix=f"shown-{split}-", seed=0, environment=name)
            limits = self.world.limits.model_copy(update=_UNLIMITED)
            episodes = record(plans, replace(self.world, feedback=None, limits=limits))
            self._shown[key] = [each for each in episodes if self._fits(each)]
        return self._shown[key]

    def _fits(self, episode: Episode) -> bool:
        longest = max(len(segment) for segment in episode.segments) if episode.segments else 0
        return not episode.faulted and longest <= self.positions


def errors(
    family: Advising, chat: Chat, tasks: Sequence[Task], episodes: Sequence[Episode]
) -> dict[str, Any]:
    """Where ``episodes`` first left what is right, and how often they succeeded all the same.

    ``first_error`` has a row for every turn number: of the ``at_risk`` episodes that took that turn
    and were right before it, ``errors`` were wrong at it; ``hazard`` is their share. ``recovery``
    is the success of the scored episodes that were wrong at some turn, with its 95 % Wilson
    interval; ``ended`` of the wrong ones ended with their first wrong turn. Faulted episodes are
    left out.
    """
    by_id = {task.task_id: task for task in tasks}
    risk, wrong = Counter[int](), Counter[int]()
    erred, ended = list[Episode](), 0
    for episode in episodes:
        if episode.faulted:
            continue
        turns = wrong_turns(family, by_id[episode.task_id], chat.decode(episode.segments))
        first = next((number for number, (_, bad) in enumerate(turns) if bad), None)
        risk.update(range(len(turns) if first is None else first + 1))
        if first is not None:
            wrong[first] += 1
            erred.append(episode)
            ended += first == len(turns) - 1
    scored = [episode for episode in erred if episode.scored]
    recovered = sum(e.verdict is not None and e.verdict.success for e in scored)
    return {
        "first_error": [
            {"turn": turn, "at_risk": risk[turn], "errors": wrong[turn], "hazard": share}
            for turn in sorted(risk)
            for share in [wrong[turn] / risk[turn]]
        ],
        "recovery": {"erred": len(erred), "ended": ended, **Rate.of(recovered, len(scored)).row()},
    }
