"""What each surrogate and correction takes.

Names are those of ``update.surrogate`` and ``update.correction.rule`` in a recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from hexad.update import correction, gate, square, surrogate

KEYS: Mapping[str, str] = {
    "low": "clip_low",
    "high": "clip_high",
    "dual": "dual",
    "tau": "tau",
    "tau_negative": "tau_negative",
}
"""Argument of a surrogate -> key of ``update`` in a recipe. ``through`` has none."""

UNITS = ("token", "turn", "episode")


@dataclass(frozen=True, slots=True)
class Surrogate:
    """A per-token loss as data.

    ``inputs`` are its tensors in order; ``required`` and ``optional`` its numbers by name: no bound
    has a default. ``roles`` are the ratios it may take, the first as published; none for imitation.
    ``units`` are those of the ratio. ``idle``: a zero advantage means a zero gradient. ``sides``
    tells the tokens it clips or gates below and above, from the tensors ``side_inputs``; ``closed``
    those that it drops, from its own ``inputs``.
    """

    function: Callable[..., Tensor]
    inputs: tuple[str, ...] = ("log_ratio", "advantage")
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    roles: tuple[str, ...] = ("update", "direct")
    units: tuple[str, ...] = ("token",)
    idle: bool = True
    sides: Callable[..., tuple[Tensor, Tensor]] | None = None
    side_inputs: tuple[str, ...] = ("log_ratio",)
    closed: Callable[..., Tensor] | None = None

    def loss(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, float | bool]) -> Tensor:
        """[N], of ``log_ratio``, ``current`` and ``advantage`` by name; it takes what it needs.

        Raises ``ValueError`` for a number that is missing or that it does not know.
        """
        missing = [name for name in self.required if name not in numbers]
        alien = [name for name in numbers if name not in (*self.required, *self.optional)]
        if missing or alien:
            raise ValueError(f"{self.function.__name__}: missing {missing}, unknown {alien}")
        return self.function(*(tensors[name] for name in self.inputs), **numbers)

    def gated(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, float | bool]) -> Tensor:
        """Bool [N]: the tokens that it drops; none for a surrogate without a gate."""
        if self.closed is None:
            return torch.zeros_like(tensors["log_ratio"], dtype=torch.bool)
        given = (tensors[name] for name in self.inputs)
        return self.closed(*given, low=numbers["low"], high=numbers["high"])

    def outside(
        self, tensors: Mapping[str, Tensor], numbers: Mapping[str, float | bool]
    ) -> tuple[Tensor, Tensor] | None:
        """Bool [N] below and above the bounds; ``None`` for a surrogate without any."""
        if self.sides is None:
            return None
        given = (tensors[name] for name in self.side_inputs)
        return self.sides(*given, low=numbers["low"], high=numbers["high"])


_BOUNDS = ("low", "high")
_LOGPROB = ("log_ratio", "current", "advantage")
SURROGATES: Mapping[str, Surrogate] = {
    "nll": Surrogate(surrogate.nll, ("current",), roles=(), idle=False),
    "plain": Surrogate(surrogate.plain, units=UNITS),
    "clip": Surrogate(
        surrogate.clip, required=_BOUNDS, optional=("dual",), units=UNITS, sides=surrogate.outside
    ),
    "cispo": Surrogate(gate.cispo, _LOGPROB, _BOUNDS, sides=surrogate.outside),
    "sapo": Surrogate(surrogate.sapo, required=("tau", "tau_negative")),
    "dis": Surrogate(
        gate.dis,
        _LOGPROB,
        _BOUNDS,
        ("through",),
        ("direct",),
        sides=gate.beyond,
        closed=gate.dis_closed,
    ),
    "squared": Surrogate(
        square.squared, required=("tau",), roles=("update",), units=("episode",), idle=False
    ),
    "token_clip": Surrogate(
        square.token_clip,
        required=(*_BOUNDS, "tau"),
        roles=("update",),
        idle=False,
        sides=square.apart,
    ),
    "difference": Surrogate(
        gate.difference,
        _LOGPROB,
        _BOUNDS,
        roles=("direct",),
        sides=gate.moved,
        side_inputs=("log_ratio", "current"),
        closed=gate.difference_closed,
    ),
}
"""GSPO is ``clip`` on the mean ratio of an episode; a turn's ratio is its sum or mean."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A correction as data: ``weighs`` by the ratio (else keeps or drops); ``low``: has a lower
    bound; ``whole``: the verdict is a unit's; ``advantage``: it reads its sign.
    """

    function: Callable[..., correction.Correction]
    weighs: bool
    low: bool = False
    whole: bool = False
    advantage: bool = False
    roles: tuple[str, ...] = ("engine", "proximal")


CORRECTIONS: Mapping[str, Rule] = {
    "tis": Rule(correction.tis, weighs=True),
    "icepop": Rule(correction.icepop, weighs=True, low=True),
    "mis": Rule(correction.mis, weighs=True),
    "sequence_tis": Rule(correction.sequence_tis, weighs=True, whole=True),
    "geometric": Rule(correction.geometric, weighs=False, low=True, whole=True),
    "k3": Rule(correction.k3, weighs=False, whole=True),
    "opsm": Rule(correction.opsm, weighs=False, whole=True, advantage=True),
}
