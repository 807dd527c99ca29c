"""``reward_model``: a trained reward model as a verifier."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np

from hexad.contract.arrays import Ints
from hexad.contract.digest import code_digest
from hexad.contract.episode import Episode
from hexad.contract.faults import UserError, VerifierFault
from hexad.contract.messages import AssistantTurn, Message, Role
from hexad.contract.segment import NO_VERSION, Segment
from hexad.contract.task import Task
from hexad.contract.verdict import Verdict, VerdictStatus
from hexad.environments.protocol import TaskFamily
from hexad.feedback.cards import Card
from hexad.feedback.ready import common
from hexad.learner import manifest, reward_model
from hexad.learner.reward_model import FACTS, RewardModel, folder_of
from hexad.policy.chat import Chat

TOKENS = 16384
"""Padded tokens of one forward pass."""


class RewardVerifier:
    """Correct where the reward is above ``threshold``; scores are ``sigmoid(reward - threshold)``.

    ``path`` is the run of a recipe with ``method: reward_model``. Without a ``threshold`` it is the
    cut that parted right from wrong best when the run was last evaluated. An episode is read by the
    ids that were sampled; a transcript that they do not tell is rendered in canonical form first.
    """

    version = "1"

    def __init__(self, family: TaskFamily, path: str, threshold: float | None = None) -> None:
        self._tools, self._folder = family.tools, folder_of(Path(path))
        facts = json.loads((self._folder / FACTS).read_text(encoding="utf-8"))
        measured = facts["measured"] or {}
        cut = measured.get("cut") if threshold is None else threshold
        if cut is None:
            raise UserError(
                f"nobody has measured from which reward on {path} means correct",
                where="feedback.options.threshold",
                fix="run `hexad evaluate` on it before its last checkpoint, or give a threshold",
            )
        self._cut = common.option("threshold", cut, -math.inf)
        told = "its accuracy on held-out pairs was not measured"
        if "success" in measured:
            told = (
                f"it ranked {measured['success']:.1%} of {measured['scored']} held-out pairs right"
            )
        self.card = Card(
            "reward_model",
            checks=f"the reward model in {path} gives more than {self._cut:g}; {told}",
            blind="whatever it has learned to like instead: a policy that is trained on it finds "
            "that; measure its agreement with `hexad check`, again after training",
        )

    @property
    def digest(self) -> str:
        """Digest of version, threshold, the model's files but for measurements, and source."""
        files = {name: sha for name, (_, sha) in manifest.survey(self._folder).items()}
        config = {"threshold": self._cut, "files": {n: s for n, s in files.items() if n != FACTS}}
        return code_digest(
            "reward_model", self.version, config, sys.modules[__name__], reward_model
        )

    @cached_property
    def _model(self) -> RewardModel:
        return RewardModel.open(self._folder)

    @cached_property
    def _chat(self) -> Chat:
        return self._model.policy.chat(self._tools)

    def verify(self, task: Task, episode: Episode, transcript: tuple[Message, ...]) -> Verdict:
        """The verdict. Raises ``VerifierFault`` for an episode of another tokenizer or template."""
        text = common.final_text(episode, transcript)
        if text is None:
            return common.no_answer()
        policy, made = self._model.policy, episode.provenance
        if (made.tokenizer, made.template) != (policy.tokenizer_digest, policy.template_digest):
            raise VerifierFault("the reward model reads another tokenizer or chat template")
        if self._chat.decode(episode.segments) != transcript:
            try:
                episode = _with(episode, rendered(self._chat, transcript))
            except (UserError, ValueError, TypeError) as error:
                return common.invalid(f"no conversation: {common.shown(error)}", text)
        if len(episode.segments[-1]) > policy.max_context:
            return common.invalid("longer than the reward model reads", text)
        (reward,) = self._model.rewards([episode], TOKENS)
        if not math.isfinite(reward):
            raise VerifierFault(f"the reward is {reward}")
        status = VerdictStatus.CORRECT if reward > self._cut else VerdictStatus.WRONG
        score = 0.5 * (1.0 + math.tanh(0.5 * (reward - self._cut)))
        return common.verdict(status, score=score, reward=reward)


def rendered(chat: Chat, transcript: tuple[Message, ...]) -> Ints:
    """int32: the canonical ids of ``transcript`` up to the end of its last assistant turn.

    Raises ``UserError``, ``ValueError`` or ``TypeError`` for one that cannot be written down.
    """
    turns = [i for i, message in enumerate(transcript) if message.role is Role.ASSISTANT]
    pieces = [chat.prompt(transcript[: turns[0]]).ids]
    for place, following in zip(turns, [*turns[1:], None], strict=True):
        message = transcript[place]
        pieces.append(chat.encode(AssistantTurn(message.content, message.tool_calls)))
        if following is not None:
            heard = transcript[place + 1 : following]
            pieces.append(chat.follow(pieces[-1], heard).ids)
    return np.concatenate(pieces, dtype=np.int32)


def _with(episode: Episode, ids: Ints) -> Episode:
    size = len(ids)
    action = np.zeros(size, np.bool_)
    action[-1] = True
    made = Segment(
        ids=ids,
        action=action,
        weight=action.astype(np.float32),
        logprob=np.full(size, np.nan, np.float32),
        version=np.full(size, NO_VERSION, np.int32),
        turn=np.zeros(size, np.int32),
    )
    return replace(episode, segments=(made,))
