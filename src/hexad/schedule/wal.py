"""The logs of episodes under way, one file each, written by whoever plays them."""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path

from hexad.rollout.log import EpisodeLog

SUFFIX = ".arrows"


def path(folder: Path, episode_id: str) -> Path:
    """The file of an episode's log."""
    return folder / f"{episode_id}{SUFFIX}"


class Wal:
    """The files in ``folder`` as the source sees them: it reads and removes, workers write."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, episode_id: str) -> bytes:
        """What is on disk of a log, its last entry perhaps torn; empty where there is no file."""
        try:
            return path(self._folder, episode_id).read_bytes()
        except FileNotFoundError:
            return b""

    def tokens(self) -> dict[str, int]:
        """Sampled tokens by episode, of every log here."""
        files = sorted(self._folder.glob(f"*{SUFFIX}")) if self._folder.is_dir() else []
        return {
            p.name[: -len(SUFFIX)]: EpisodeLog.read(p.read_bytes()).sampled_tokens for p in files
        }

    def beyond(self, kept: Mapping[str, int], stored: Container[str]) -> tuple[int, int]:
        """Whole episodes and sampled tokens on disk that a resume would throw away.

        ``kept`` has the tokens by episode that a checkpoint holds, ``stored`` the episodes that are
        counted in the store. What was sampled of a kept episode afterwards is lost, the episode is
        not.
        """
        found = {name: n for name, n in self.tokens().items() if name not in stored}
        tokens = sum(max(0, count - kept.get(name, 0)) for name, count in found.items())
        return len(found.keys() - kept.keys()), tokens

    def remove(self, episode_id: str) -> None:
        """Forget the log of an episode that was decided."""
        path(self._folder, episode_id).unlink(missing_ok=True)

    def keep(self, names: set[str]) -> None:
        """Forget all logs but those of ``names``."""
        if self._folder.is_dir():
            for file in self._folder.glob(f"*{SUFFIX}"):
                if file.name[: -len(SUFFIX)] not in names:
                    file.unlink(missing_ok=True)
