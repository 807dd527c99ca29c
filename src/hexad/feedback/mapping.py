"""From verdict to raw reward components."""

from __future__ import annotations

from hexad.contract.digest import code_digest
from hexad.contract.episode import Episode
from hexad.contract.faults import UserError
from hexad.contract.lookup import find
from hexad.contract.reward import Reward
from hexad.contract.verdict import Verdict
from hexad.feedback.protocol import RewardMapping

MAPPINGS = {
    "binary": "hexad.feedback.mapping:BinaryMapping",
    "score": "hexad.feedback.mapping:ScoreMapping",
}
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


class ScoreMapping:
    """One component ``task`` at the end: the verdict's score in [0, 1], as a judge grades."""

    version = "score/1"

    @property
    def digest(self) -> str:
        """Digest of version and source."""
        return code_digest("score", self.version, {}, type(self))

    def rewards(self, verdict: Verdict, episode: Episode) -> tuple[Reward, ...]:
        """The component, or nothing at all where nothing was scored."""
        if episode.faulted or verdict.score is None or not verdict.scored:
            return ()
        return (Reward("task", float(verdict.score)),)


def mapping(name: str) -> RewardMapping:
    """The mapping ``name``: a built-in, or ``package.module:object``. Raises ``UserError``."""
    where = "feedback.mapping"
    factory = find(name, MAPPINGS, what="reward mapping", where=where)
    made = factory() if callable(factory) else factory
    if not isinstance(made, RewardMapping):
        fix = "see hexad.feedback.protocol.RewardMapping"
        raise UserError(f"{name} makes a {type(made).__name__}", where=where, fix=fix)
    return made
