"""The open requests whose sampling cuts the vocabulary, and the sets that they drew from."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from hexad.contract.arrays import Bools, Ints
from hexad.contract.sampling import Sampling
from hexad.contract.support import Support
from hexad.policy.backend import Index
from hexad.policy.engine import Request
from hexad.policy.grammar import Grammars, Matcher
from hexad.policy.transforms import distribution


@dataclass(slots=True, eq=False)
class Cut:
    """One lane: its transform, where it is in its grammar, and the set of each token so far."""

    sampling: Sampling
    matcher: Matcher | None
    allowed: Bools | None = None
    sets: list[Ints] = field(default_factory=list)


class Cuts:
    """Cuts by lane. A lane keeps its entry until it is opened again."""

    def __init__(self, grammars: Grammars) -> None:
        self._grammars = grammars
        self._lanes: dict[int, Cut] = {}

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def open(self, lane: int, request: Request) -> None:
        """Note how ``lane`` samples from now on."""
        self._lanes.pop(lane, None)
        sampling = request.sampling
        if sampling.full_support:
            return
        grammar = sampling.grammar
        matcher = self._grammars.matcher(grammar, request.stop_ids) if grammar else None
        if matcher is not None:
            for token in request.ids[len(request.ids) - request.begun :].tolist():
                matcher.accept(token)
        self._lanes[lane] = Cut(sampling, matcher)

    def advance(self, lanes: Index, last: Index) -> dict[int, str]:
        """Ask the grammars what may come next; ``last`` holds the token that each lane drew last.

        Returns lane -> reason for those whose grammar allows nothing.
        """
        stuck: dict[int, str] = {}
        for lane, token in zip(lanes.tolist(), last.tolist(), strict=True):
            cut = self._lanes.get(lane)
            if cut is None or cut.matcher is None:
                continue
            if cut.sets:
                cut.matcher.accept(token)
            cut.allowed = cut.matcher.allowed()
            if not cut.allowed.any():
                stuck[lane] = f"the grammar allows no token: {cut.matcher.error or 'dead end'}"
        return stuck

    def apply(self, lanes: Index, logits: torch.Tensor, logprobs: torch.Tensor) -> None:
        """Put the log-probs after the cut into the rows of ``logprobs`` whose lanes cut.

        Both are ``[len(lanes), V]``. The kept sets are recorded.
        """
        groups: dict[Sampling, list[tuple[int, Cut]]] = {}
        for row, lane in enumerate(lanes.tolist()):
            if (cut := self._lanes.get(lane)) is not None:
                groups.setdefault(cut.sampling, []).append((row, cut))
        for sampling, members in groups.items():
            rows = torch.tensor([row for row, _ in members], device=logits.device)
            masks = [cut.allowed for _, cut in members if cut.allowed is not None]
            allowed = torch.from_numpy(np.stack(masks)).to(logits.device) if masks else None
            after, kept = distribution(logits[rows], sampling, allowed)
            logprobs[rows] = after
            owners, ids = (each.cpu().numpy() for each in kept.nonzero(as_tuple=True))
            edges = np.searchsorted(owners, np.arange(1, len(members)))
            for (_, cut), ids_ in zip(members, np.split(ids.astype(np.int32), edges), strict=True):
                cut.sets.append(ids_)

    def support(self, lane: int) -> Support | None:
        """The sets that ``lane`` drew from so far; ``None`` for one that cuts nothing."""
        cut = self._lanes.get(lane)
        return None if cut is None else Support.of(cut.sets)
