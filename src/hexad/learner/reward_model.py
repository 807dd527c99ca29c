"""A Bradley-Terry reward model: a policy's trunk with a scalar head; one number an episode.

The number is read at the episode's last action, in the context of its last segment. Only
differences between episodes of one task are trained, so its zero says nothing (contract.md 2.3).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from hexad.contract.episode import Episode
from hexad.contract.faults import UserError
from hexad.learner.assemble import assemble
from hexad.learner.batch import Batch
from hexad.learner.critic import ValueNet
from hexad.learner.pack import Cut, dealt
from hexad.learner.ranks import Single
from hexad.policy.adapter import copied
from hexad.policy.load import inside, load_policy

if TYPE_CHECKING:
    from hexad.policy.policy import Policy

FOLDER = "reward"
"""Where a checkpoint keeps the reward model, beside the policy that sampled."""
FACTS = "reward_model.json"
_HEAD = "reward_head.safetensors"
_AT_END = Cut(ahead=0)


class RewardModel:
    """``policy`` is whose trunk ``net`` reads: a copy of its own. ``measured`` is the newest row of
    :func:`hexad.evidence.ranking.rank`, or ``None``.
    """

    def __init__(
        self, policy: Policy, net: ValueNet, measured: Mapping[str, Any] | None = None
    ) -> None:
        self.policy, self.net, self.measured = policy, net, measured

    @classmethod
    def beside(cls, policy: Policy) -> RewardModel:
        """A fresh one on a copy of ``policy``: every reward is 0."""
        own = replace(policy, model=copied(policy.model))
        return cls(own, _net(own))

    @classmethod
    def open(cls, folder: Path, dtype: torch.dtype = torch.float32) -> RewardModel:
        """The one in ``folder`` (see :func:`folder_of`). Raises ``UserError`` for a broken one."""
        policy = load_policy(str(folder), seed=0, dtype=dtype)
        net = _net(policy)
        try:
            net.head.load_state_dict(load_file(folder / _HEAD))
            facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise UserError(
                f"the reward model cannot be read: {error}",
                where=str(folder),
                fix="restore the folder from a copy, or use another checkpoint",
            ) from error
        return cls(policy, net, facts["measured"])

    def save(self, folder: Path) -> None:
        """Write the trunk in Hugging Face layout, the head, and what was measured."""
        self.policy.save(folder)
        named = self.net.head.named_parameters()
        save_file({name: value.detach().contiguous() for name, value in named}, folder / _HEAD)
        text = json.dumps({"format": 1, "measured": self.measured}, allow_nan=False, indent=1)
        (folder / FACTS).write_text(text + "\n", encoding="utf-8")

    @torch.no_grad()
    def rewards(self, episodes: Sequence[Episode], limit: int) -> list[float]:
        """The reward of each episode, NaN where it has no action.

        ``limit`` is the number of padded tokens of a forward pass.
        """
        batch = assemble(episodes)
        wanted = ends(batch, torch.ones(len(episodes), dtype=torch.bool))
        found = torch.full((len(episodes),), torch.nan, dtype=torch.float64)
        place = self.net.head.weight.device
        for micro in dealt(batch, wanted, Single(), limit, _AT_END):
            moved = micro.to(place)
            value = self.net(moved.ids, moved.select).squeeze(-1)
            found[batch.token_episode[micro.tokens]] = value.double().cpu()
        rewards: list[float] = found.tolist()
        return rewards


def ends(batch: Batch, counted: Tensor) -> Tensor:
    """bool [T]: the last action of every episode of ``counted`` (bool [E]) that has one."""
    tokens = (batch.action & counted[batch.token_episode]).nonzero().squeeze(1)
    last = torch.full((len(batch.episodes),), -1, dtype=torch.int64)
    last = last.scatter_reduce(0, batch.token_episode[tokens], tokens, "amax")
    found = torch.zeros(len(batch.ids), dtype=torch.bool)
    found[last[last >= 0]] = True
    return found


def folder_of(path: Path) -> Path:
    """The reward model's folder that ``path`` (a run, a checkpoint, or it) stands for.

    Raises ``UserError`` where there is none.
    """
    folder = path.expanduser()
    if folder.is_dir() and not (folder / FACTS).is_file():
        folder = inside(folder).parent / FOLDER
    if (folder / FACTS).is_file():
        return folder
    raise UserError(
        f"there is no reward model in {path}",
        where="feedback.options.path",
        fix="name the run folder of a recipe with method: reward_model",
    )


def _net(policy: Policy) -> ValueNet:
    model: Any = policy.model
    width = int(model.config.get_text_config().hidden_size)
    return ValueNet(model.base_model, width, 1).eval()
