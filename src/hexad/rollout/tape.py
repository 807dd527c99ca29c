"""One sitting at an episode: what its log holds is taken first, then what happens is recorded."""

from __future__ import annotations

import time
from collections import deque
from typing import TypeVar

from hexad.contract.faults import ContractViolation, EnvironmentFault, FaultRecord
from hexad.rollout.entries import Begun, Entry, Left, Sampled, Seated, Spent, Stepped
from hexad.rollout.log import EpisodeLog, last_attempt

E = TypeVar("E", Begun, Sampled, Stepped)


class Tape:
    """Plays back the last attempt in ``log`` and records what follows; without a log, neither.

    ``left`` counts down the tokens that may still be sampled in this sitting (``None``: any
    number). ``spent`` is what earlier attempts consumed, ``number`` the attempt to play.
    """

    def __init__(self, log: EpisodeLog | None, episode: str, pause_after: int | None) -> None:
        if pause_after is not None and (log is None or pause_after < 1):
            raise ValueError(
                f"a sitting of {pause_after} tokens needs a log and at least one token"
            )
        self._log, self.left = log, pause_after
        self.spent, self.number = Spent(), 0
        self.at = self.age = self.played = 0.0
        self.faults: tuple[FaultRecord, ...] = ()
        self.started = time.time()
        self._past: deque[Entry] = deque()
        if log is not None:
            self._take_up(log, episode)

    @property
    def recording(self) -> bool:
        """Whether there is a log."""
        return self._log is not None

    def take(self, kind: type[E]) -> E | None:
        """The next recorded entry, which must be a ``kind``; ``None`` when all are taken."""
        if not self._past:
            return None
        entry = self._past.popleft()
        if not isinstance(entry, kind):
            raise ContractViolation(f"the log holds {type(entry).__name__}, not {kind.__name__}")
        self.at = entry.at
        return entry

    def turn(self) -> list[Sampled]:
        """The recorded pieces of one turn; the last one is partial where a pause cut it."""
        pieces: list[Sampled] = []
        while self._past and isinstance(self._past[0], Sampled):
            piece = self.take(Sampled)
            assert piece is not None
            pieces.append(piece)
            if not piece.partial:
                break
        return pieces

    def allow(self, tokens: int) -> int:
        """How many of ``tokens`` may be sampled before the sitting ends."""
        return tokens if self.left is None else min(tokens, self.left)

    def record(self, entry: E) -> E:
        """Append ``entry`` to the log, before anybody acts on it.

        Raises ``EnvironmentFault`` for an answer that has no stored form.
        """
        if self._log is not None:
            try:
                self._log.append(entry)
            except (TypeError, ValueError) as error:
                if not isinstance(entry, Stepped):  # nobody else hands in what is no JSON
                    raise
                raise EnvironmentFault(f"the answer cannot be recorded: {error}") from error
            if self.left is not None and isinstance(entry, Sampled):
                self.left = max(0, self.left - len(entry.completion.ids))
        self.at = entry.at
        return entry

    def restart(self, spent: Spent) -> None:
        """A new attempt begins; what is left of the old one was played or is thrown away."""
        self._past.clear()
        self.faults, self.spent = (), spent
        self.number += 1
        self.at = self.age = 0.0

    def leave(self, faults: tuple[FaultRecord, ...]) -> None:
        """Record that the sitting ends in a pause; ``faults`` are the attempt's so far."""
        if self._log is not None:
            self._log.append(Left(faults, self.at))

    def _take_up(self, log: EpisodeLog, episode: str) -> None:
        entries = last_attempt(log.entries())
        if entries:
            begun = entries[0]
            assert isinstance(begun, Begun)
            if begun.episode != episode:
                raise ContractViolation(f"the log of {begun.episode} is played as {episode}")
            self.spent, self.number = begun.spent, begun.attempt
            self.age = entries[-1].at
            self.played = begun.spent.seconds + self.age
        left = [each for each in entries if isinstance(each, Left)]
        self.faults = left[-1].faults if left else ()
        self._past.extend(each for each in entries if not isinstance(each, Seated | Left))
        log.append(Seated(self.started))
        self.started = log.started or self.started
