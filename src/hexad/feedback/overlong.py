"""A mapping that also charges for length: DAPO's soft punishment as a reward component."""

from __future__ import annotations

from hexad.contract.episode import Episode
from hexad.contract.reward import Reward
from hexad.contract.verdict import Verdict
from hexad.feedback.protocol import RewardMapping


class Overlong:
    """What ``inner`` gives, and a component ``length`` at the end of every scored episode.

    0 up to ``limit - cache`` sampled tokens, falling linearly to -1 at ``limit``, and -1 beyond:
    ``hexad.credit.overlong`` on tensors. Source: DAPO, arXiv 2503.14476.
    """

    def __init__(self, inner: RewardMapping, limit: int, cache: int) -> None:
        self._inner, self._limit, self._cache = inner, limit, cache
        self.version = f"{inner.version}+overlong/1:{limit}:{cache}"

    def rewards(self, verdict: Verdict, episode: Episode) -> tuple[Reward, ...]:
        """The inner components, and ``length`` where there are any."""
        found = self._inner.rewards(verdict, episode)
        if not found:
            return found
        over = episode.costs.sampled_tokens - (self._limit - self._cache)
        return (*found, Reward("length", -min(max(over / self._cache, 0.0), 1.0)))
