"""A verifier that fails by a draw."""

from __future__ import annotations

from hexad.contract.digest import code_digest
from hexad.contract.episode import Episode
from hexad.contract.messages import Message
from hexad.contract.task import Split, Task
from hexad.contract.verdict import Verdict
from hexad.environments.chaos import ChaosError
from hexad.environments.wrap import uniform
from hexad.feedback.cards import Card, card_of
from hexad.feedback.isolated import IsolatedVerifier
from hexad.feedback.protocol import Verifier


class FlakyVerifier:
    """``inner``, failing on a share of the episodes of ``splits`` drawn by the episode's seed."""

    def __init__(self, inner: Verifier, share: float, splits: tuple[Split, ...]) -> None:
        self._inner, self._share, self._splits = inner, share, splits

    @property
    def digest(self) -> str:
        """Digest of the verifier, of the share and of the splits."""
        config = {"inner": self._inner.digest, "share": self._share, "splits": list(self._splits)}
        return code_digest("flaky_verifier", "1", config, type(self))

    @property
    def card(self) -> Card | None:
        """The card of ``inner``."""
        return card_of(self._inner)

    def verify(self, task: Task, episode: Episode, transcript: tuple[Message, ...]) -> Verdict:
        """The verdict of ``inner``. Raises ``ChaosError`` where the draw says so."""
        if task.split in self._splits and uniform("verifier", episode.seed, 0) < self._share:
            raise ChaosError("chaos: the verifier failed")
        return self._inner.verify(task, episode, transcript)

    def close(self) -> None:
        """End the processes of ``inner`` if it has any."""
        if isinstance(self._inner, IsolatedVerifier):
            self._inner.close()
