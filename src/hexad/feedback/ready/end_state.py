"""``end_state``: the environment is left in the state that the task asks for."""

from __future__ import annotations

import sys
from typing import Any

from hexad.contract.digest import code_digest
from hexad.contract.episode import Episode
from hexad.contract.faults import UserError, VerifierFault
from hexad.contract.messages import Message
from hexad.contract.task import Task
from hexad.contract.verdict import Verdict
from hexad.environments import replay as replay_module
from hexad.environments.guard import uncontained
from hexad.environments.protocol import Environment, TaskFamily
from hexad.environments.replay import replay, turns_of
from hexad.feedback.cards import Card
from hexad.feedback.ready import common


class EndStateVerifier:
    """Plays the episode's turns again in a fresh environment and looks at where they lead.

    The family's ``reached(task, environment) -> bool`` decides where it has one, else whether
    ``state_digest()`` equals ``task.data["end_state"]``. A recorded state that does not come again
    is the environment's failure, not the policy's: the verifier fails.
    """

    version = "1"
    timeout, memory = 60.0, common.MEMORY
    card = Card(
        "end_state",
        checks="the actions, executed again from the same initial state, lead to the state that "
        "the task asks for",
        blind="the way there (forbidden actions, costs), and whatever the state digest or the "
        "predicate leaves out",
        task="end_state: digest, unless the environment has `reached`",
    )

    def __init__(self, family: TaskFamily) -> None:
        self._family = family
        self._reached = getattr(family, "reached", None)
        if tools := uncontained(family):
            raise UserError(
                f"end_state executes actions again, and a reset does not undo {', '.join(tools)}",
                where="feedback.verifier",
                fix="name a verifier that judges by what was recorded",
            )

    @property
    def digest(self) -> str:
        """Digest of version, the environment's digest and source."""
        config = {"environment": self._family.digest}
        sources = (sys.modules[__name__], replay_module, common)
        return code_digest("end_state", self.version, config, *sources)

    def verify(self, task: Task, episode: Episode, transcript: tuple[Message, ...]) -> Verdict:
        """The verdict. Raises ``VerifierFault`` where the episode does not come again."""
        turns = turns_of(episode, transcript)
        again, reached = replay(
            self._family,
            task,
            episode.seed,
            turns,
            lambda end: self._look(task, end),
            episode.refusals,
        )
        for turn, (now, before) in enumerate(zip(again.states, episode.states, strict=False)):
            if now != before:
                raise VerifierFault(f"turn {turn + 1} begins in another state than was recorded")
        return common.right(reached, state=again.states[-1])

    def _look(self, task: Task, environment: Environment) -> bool:
        if self._reached is not None:
            said: Any = self._reached(task, environment)
            if not isinstance(said, bool):
                raise VerifierFault(f"reached() of {self._family.name} returned {said!r}")
            return said
        return environment.state_digest() == common.stored(task, "end_state", str)
