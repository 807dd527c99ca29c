"""A run's stored episodes with what a verifier is shown: their tasks and their transcripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from hexad.contract.episode import Episode
from hexad.contract.faults import UserError
from hexad.contract.messages import Message
from hexad.contract.store import Store
from hexad.contract.task import Split, Task
from hexad.environments.protocol import Finite, TaskFamily
from hexad.evidence.folder import Part
from hexad.feedback.judge import Feedback
from hexad.learner import checkpoint
from hexad.policy.chat import Chat
from hexad.policy.policy import Policy
from hexad.recipe.axes import Recipe
from hexad.rollout.build import family_of, judges, policy_of

_CHUNK = 1024


@dataclass
class Archive:
    """The episodes of one part of a run, its family, and the policy of its newest checkpoint."""

    part: Part
    recipe: Recipe
    store: Store
    family: TaskFamily
    policy: Policy
    version: int
    feedback: Feedback
    examiner: Feedback
    """The evaluation's: an object of its own, though not always another verifier."""
    _chat: Chat
    _tasks: dict[tuple[Split, str], Task] = field(default_factory=dict)
    _read: dict[Split, int] = field(default_factory=dict)

    @property
    def independent(self) -> bool:
        """Whether evaluations are judged by another verifier than training, by their digests."""
        return self.feedback.verifier.digest != self.examiner.verifier.digest

    @property
    def steps(self) -> list[int]:
        """Steps that the store holds, by part: some may be empty."""
        return [s for part in self.store.parts() for s in range(part.first, part.last + 1)]

    def episodes(self, steps: list[int] | None = None) -> Iterator[Episode]:
        """The stored episodes, one step in memory at a time."""
        for step in self.steps if steps is None else steps:
            yield from self.store.read([step])

    def transcript(self, episode: Episode) -> tuple[Message, ...]:
        """The conversation, decoded from its ids."""
        return self._chat.decode(episode.segments)

    def task(self, episode: Episode) -> Task:
        """The task that ``episode`` tried.

        Raises ``UserError`` where the environment, as the recipe makes it now, has it no more.
        """
        key = episode.split, episode.task_id
        while key not in self._tasks and self._more(episode.split):
            pass
        if key not in self._tasks:
            raise UserError(
                f"the environment has no task {episode.task_id} any more",
                where=str(self.part.folder / "recipe.yaml"),
                fix="use the version of the environment that made the episodes",
            )
        return self._tasks[key]

    def _more(self, split: Split) -> bool:
        """Read the next tasks of ``split``; false at its end, or far beyond what a run can use."""
        begun = self._read.get(split, 0)
        known = self.family.task_count(split) if isinstance(self.family, Finite) else None
        most = self._used + _CHUNK if known is None else known
        count = min(_CHUNK, most - begun)
        if count <= 0:
            return False
        for task in self.family.tasks(split, count, offset=begun):
            self._tasks[task.split, task.task_id] = task
        self._read[split] = begun + count
        return True

    @property
    def _used(self) -> int:
        """At most so many tasks were drawn."""
        books = self.part.ledger or {}
        return max(int(books.get("funnel", {}).get("tasks", 0)), self.store.count())


@contextmanager
def opened(
    part: Part, verifier: str | None = None, options: Mapping[str, Any] | None = None
) -> Iterator[Archive]:
    """The archive of ``part``; judged by ``verifier`` or by the recipe's own for training.

    ``options`` are the verifier's; they are laid over the recipe's where the verifier is its own.

    Raises ``UserError`` for a part without stored episodes, without a whole checkpoint, or whose
    feedback is no verifier's.
    """
    recipe = part.recipe
    if not (part.folder / "episodes").is_dir():
        what = f"stage {part.name} sampled no episodes"
        raise UserError(what, where=str(part.folder), fix="give a run that samples")
    found = checkpoint.newest(part.folder)
    if found is None:
        what, fix = "this run has no whole checkpoint", "train until the first one"
        raise UserError(what, where=str(part.folder), fix=fix)
    if verifier is not None or options:
        known = recipe.feedback.options if verifier is None else {}
        own = {
            "verifier": verifier or recipe.feedback.verifier,
            "options": {**known, **(options or {})},
        }
        feedback = recipe.feedback.model_copy(update=own)
        recipe = recipe.model_copy(update={"feedback": feedback})
    model = recipe.policy.model_copy(update={"model": str(found.policy)})
    recipe = recipe.model_copy(update={"policy": model})
    with ExitStack() as held:
        family = family_of(recipe, held)
        made = judges(recipe, held)
        policy = policy_of(recipe)
        yield Archive(
            part=part,
            recipe=recipe,
            store=Store(part.folder / "episodes"),
            family=family,
            policy=policy,
            version=found.step,
            feedback=made["training"],
            examiner=made["evaluation"],
            _chat=policy.chat(family.tools),
        )
