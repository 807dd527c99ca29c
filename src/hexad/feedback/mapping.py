"""From verdict to raw reward components, and from components to one number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from hexad.contract.digest import code_digest
from hexad.contract.episode import Episode
from hexad.contract.faults import UserError
from hexad.contract.lookup import find
from hexad.contract.reward import Reward
from hexad.contract.verdict import Verdict
from hexad.feedback.protocol import RewardMapping

MAPPINGS = {"binary": "hexad.feedback.mapping:BinaryMapping"}
"""Built-in names."""


class BinaryMapping:
    """One component ``task`` at the end: 1 for correct, 0 for any other scored verdict."""

    version = "binary/1"

    @property
    def digest(self) -> str:
        """Digest of version and source."""
        return code_digest("binary", self.version, {}, type(self))

    def rewards(self, verdict: Verdict, episode: Episode) -> tuple[Reward, ...]:
        """The component, or nothing at all where nothing was scored."""
        if episode.faulted or not verdict.scored:
            return ()
        return (Reward("task", 1.0 if verdict.success else 0.0),)


def mapping(name: str) -> RewardMapping:
    """The mapping ``name``: a built-in, or ``package.module:object``. Raises ``UserError``."""
    where = "feedback.mapping"
    factory = find(name, MAPPINGS, what="reward mapping", where=where)
    made = factory() if callable(factory) else factory
    if not isinstance(made, RewardMapping):
        fix = "see hexad.feedback.protocol.RewardMapping"
        raise UserError(f"{name} makes a {type(made).__name__}", where=where, fix=fix)
    return made


def score(rewards: Iterable[Reward], weights: Mapping[str, float]) -> float:
    """Weighted sum of raw components: sum_i w_i R_i; a component without a weight weighs 1.

    Raises ``ValueError`` when there is no component, since missing is not 0, or when one is not
    finite.
    """
    values = [reward.value * weights.get(reward.component, 1.0) for reward in rewards]
    if not values:
        raise ValueError("an episode without rewards has no score")
    total = math.fsum(values)
    if not math.isfinite(total):
        raise ValueError(f"rewards are not finite: {values}")
    return total
