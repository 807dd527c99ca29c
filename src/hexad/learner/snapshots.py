"""Weights that the learner no longer holds: those that sampled, and their moving average."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hexad.learner.root import Root
from hexad.policy.adapter import copied, trained
from hexad.update.anchor import ewma

Named = Mapping[str, Tensor]


class Shadow:
    """A second model of the policy's shape, without gradients, that takes any trained weights."""

    def __init__(self, model: nn.Module) -> None:
        self.root = Root(copied(model)).eval().requires_grad_(False)
        own = dict(self.root.model.named_parameters())
        self._own: dict[str, nn.Parameter] = {n: own[n] for n, _ in trained(model)}

    @torch.no_grad()
    def holding(self, weights: Named) -> Root:
        """The model with ``weights`` by parameter name, rounded to its own type."""
        for name, parameter in self._own.items():
            parameter.copy_(weights[name])
        return self.root


class Snapshots:
    """The weights of the last ``limit`` versions before the learner's, by version, on the CPU.

    Memory: at most ``limit`` times the policy's parameters, in their type; versions of equal
    weights share one copy. All of it is state, so a checkpoint grows by as much.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.digests: dict[int, str] = {}
        self.weights: dict[str, dict[str, Tensor]] = {}

    def keep(self, version: int, digest: str, named: Iterable[tuple[str, Tensor]]) -> None:
        """Keep the weights of ``version`` and let go of those that the next version outdates."""
        if digest not in self.weights:
            self.weights[digest] = {name: tensor.detach().cpu().clone() for name, tensor in named}
        self.digests[version] = digest
        self._prune(version - self.limit)

    def _prune(self, last: int) -> None:
        self.digests = {v: d for v, d in self.digests.items() if v > last}
        alive = set(self.digests.values())
        self.weights = {digest: kept for digest, kept in self.weights.items() if digest in alive}

    def state(self) -> dict[str, Any]:
        """A copy, flat: which version had which weights, and the weights by digest and name."""
        state: dict[str, Any] = {f"version/{v}": digest for v, digest in self.digests.items()}
        for digest, named in self.weights.items():
            state |= {f"weights/{digest}/{name}": t.clone() for name, t in named.items()}
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where :meth:`state` was taken."""
        self.digests, self.weights = {}, {}
        for key, value in state.items():
            kind, rest = key.split("/", 1)
            if kind == "version":
                self.digests[int(rest)] = value
            else:
                digest, name = rest.split("/", 1)
                self.weights.setdefault(digest, {})[name] = value.clone()


class Average:
    """The bias-corrected moving average of the weights over optimiser steps (PPO-EWMA).

    Memory: one copy of the optimiser's weights, where they are.
    """

    def __init__(self, decay: float, named: Named) -> None:
        self.decay, self.total = decay, 1.0
        self.weights = {name: tensor.detach().clone() for name, tensor in named.items()}

    def add(self, named: Named) -> None:
        """Take in the weights after one more optimiser step."""
        total = self.total
        for name, tensor in named.items():
            mean, total = ewma(self.weights[name], self.total, tensor, decay=self.decay)
            self.weights[name] = mean
        self.total = total

    def state(self) -> dict[str, Any]:
        """A copy, flat: the total, and the averages by name."""
        return {"total": self.total} | {f"mean/{n}": t.clone() for n, t in self.weights.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where :meth:`state` was taken."""
        self.total = float(state["total"])
        for name, tensor in self.weights.items():
            self.weights[name] = state[f"mean/{name}"].to(tensor.device).clone()
