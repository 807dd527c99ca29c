"""Who plays ``old`` and ``sampled``: the learner, the versions that sampled, or a stand-in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hexad.contract.faults import ContractViolation
from hexad.learner.batch import Batch, RoleScore, Scores
from hexad.learner.root import Root
from hexad.learner.snapshots import Average, Shadow, Snapshots
from hexad.recipe.axes import Recipe
from hexad.update.anchor import interpolated

Evaluate = Callable[[Batch, Root, Tensor], tuple[Tensor, Tensor]]
"""``(batch, root, selected) -> log-prob and entropy [T]`` of the selected tokens, NaN elsewhere."""


class Live(NamedTuple):
    """The learner as it is before the batch's first step."""

    root: Root
    version: int
    lineage: str


class Roles:
    """Scores ``old`` and ``sampled`` as ``update.old`` and ``update.sampled`` say.

    ``masters`` are the policy's weights by parameter name, as the optimiser steps them. For
    ``snapshot`` and ``ewma`` a second model stands beside the policy, and what
    :class:`~hexad.learner.snapshots.Snapshots` or ``Average`` state.
    """

    def __init__(self, model: nn.Module, recipe: Recipe, masters: Mapping[str, Tensor]) -> None:
        update = recipe.update
        self.old, self.sampled, self.masters = update.old, update.sampled, masters
        self.snapshots: Snapshots | None = None
        self.average: Average | None = None
        if "snapshot" in (update.old, update.sampled):
            self.snapshots = Snapshots(recipe.timing.max_lag or 0)
        if update.old == "ewma" and update.decay is not None:
            self.average = Average(update.decay, masters)
        self.shadow = Shadow(model) if self.extra and self.old != "interpolated" else None

    @property
    def extra(self) -> bool:
        """Whether a role is more than the learner's own log-probs before the first step."""
        return self.old != "recomputed" or self.sampled == "snapshot"

    def score(
        self, batch: Batch, live: Live, evaluate: Evaluate
    ) -> tuple[RoleScore, RoleScore | None]:
        """``old``, and ``sampled`` where some token has one."""
        own = None
        if self.old in ("recomputed", "interpolated"):
            logprob, entropy = evaluate(batch, live.root, batch.action)
            own = RoleScore(logprob, live.version, live.lineage, entropy, forward=len(batch.ids))
        sampled = self._sampled(batch, live, own, evaluate)
        return self._old(batch, live, (own, sampled), evaluate), sampled

    def _old(
        self,
        batch: Batch,
        live: Live,
        spoken: tuple[RoleScore | None, RoleScore | None],
        evaluate: Evaluate,
    ) -> RoleScore:
        own, sampled = spoken
        if self.average is not None and self.shadow is not None:
            root = self.shadow.holding(self.average.weights)
            logprob, _ = evaluate(batch, root, batch.action)
            name = f"ewma {self.average.decay:g} of {live.lineage}"
            return RoleScore(logprob, live.version, name, forward=len(batch.ids), own=False)
        if own is None:
            assert sampled is not None
            return sampled
        if self.old == "recomputed":
            return own
        known = batch.action & batch.behaviour.isfinite()
        between = interpolated(
            current=own.logprob,
            behaviour=batch.behaviour,
            version=batch.version,
            anchor=live.version,
            mask=known,
        )
        logprob = torch.where(known, between, torch.nan).to(own.logprob)
        name = f"interpolated {live.lineage}"
        return RoleScore(logprob, live.version, name, own.entropy, own.forward, own=False)

    def _sampled(
        self, batch: Batch, live: Live, own: RoleScore | None, evaluate: Evaluate
    ) -> RoleScore | None:
        """By the weights of the version that sampled each token; NaN where they are not held."""
        found: Tensor | None = None
        forward, played = 0, list[tuple[int, str]]()
        for digest, versions in self._held(batch, live).items():
            wanted = batch.action & torch.isin(batch.version, torch.tensor(versions))
            if digest == live.lineage and own is not None:
                said = own.logprob
            else:
                said = evaluate(batch, self._root(digest, live), wanted)[0]
                rows = torch.isin(batch.token_row, torch.unique(batch.token_row[wanted]))
                forward += int(rows.sum())
            found = torch.where(wanted, said, torch.nan if found is None else found)
            played += [(version, digest) for version in versions]
        if found is None:
            return None
        played.sort()
        others = ",".join(f"{v}:{d}" for v, d in played[:-1])
        return RoleScore(found, *played[-1], forward=forward, own=False, others=others)

    def _held(self, batch: Batch, live: Live) -> dict[str, list[int]]:
        """The versions in ``batch`` whose weights are at hand, by the weights' digest."""
        if self.sampled == "none":
            return {}
        found: dict[str, list[int]] = {}
        known = {} if self.snapshots is None else self.snapshots.digests
        for version in torch.unique(batch.version[batch.action]).tolist():
            digest = live.lineage if version == live.version else known.get(version)
            if digest is not None:
                found.setdefault(digest, []).append(version)
        return found

    def _root(self, digest: str, live: Live) -> Root:
        if digest == live.lineage:
            return live.root
        assert self.shadow is not None and self.snapshots is not None
        return self.shadow.holding(self.snapshots.weights[digest])

    # -- what outlives a step ------------------------------------------------------------------

    def begin(self, live: Live, named: Iterable[tuple[str, Tensor]]) -> None:
        """The batch's steps are about to move the weights ``named``: keep them, if any are kept."""
        if self.snapshots is not None:
            self.snapshots.keep(live.version, live.lineage, named)

    def stepped(self) -> None:
        """The optimiser has made a step."""
        if self.average is not None:
            self.average.add(self.masters)

    def state(self) -> dict[str, Any]:
        """A copy of what is kept, flat."""
        state: dict[str, Any] = {}
        for name, part in (("snapshots", self.snapshots), ("average", self.average)):
            state |= {} if part is None else {f"{name}/{k}": v for k, v in part.state().items()}
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where :meth:`state` was taken."""
        for name, part in (("snapshots", self.snapshots), ("average", self.average)):
            if part is not None:
                start = f"{name}/"
                part.restore({k[len(start) :]: v for k, v in state.items() if k.startswith(start)})


def demand(scores: Scores, valid: Tensor, *, old: bool, reference: bool) -> None:
    """Raise ``ContractViolation`` where a role that is needed has not been scored on ``valid``."""
    for needed, role, name in (
        (old, scores.old, "old"),
        (reference, scores.reference, "reference"),
    ):
        if not needed:
            continue
        if role is None:
            raise ContractViolation(f"`{name}` is missing: score the batch before its first step")
        if missing := int((valid & ~role.logprob.isfinite()).sum()):
            raise ContractViolation(
                f"`{name}` is missing for {missing} tokens that count, and what is missing is not 1"
            )


def played(scores: Scores, batch: Batch, live: Live | None) -> dict[str, str]:
    """Who played each role, as ``version:digest``; ``live`` is ``old`` where nobody scored it."""
    pairs = sorted({pair for e in batch.episodes for pair in e.provenance.versions})
    found = {"behaviour": ",".join(f"{v}:{d}" for v, d in pairs)} if pairs else {}
    if live is not None:
        found["old"] = f"{live.version}:{live.lineage}"
    for name in ("old", "sampled", "reference"):
        role: RoleScore | None = getattr(scores, name)
        if role is not None:
            found[name] = role.played
    return found


def masters(stepped: Mapping[str, Tensor], *, shared: bool) -> dict[str, Tensor]:
    """The policy's own of the ``stepped`` weights, by its parameter names.

    With a ``shared`` critic they stand under ``policy.``, beside the head's.
    """
    start = "policy." if shared else ""
    return {n.removeprefix(start): t for n, t in stepped.items() if n.startswith(start)}
