"""Finished episodes wait here for the rest of their group, and whole groups for a batch."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from hexad.contract.arrow import from_ipc, to_ipc
from hexad.contract.episode import Episode
from hexad.contract.faults import ContractViolation


@dataclass(slots=True)
class Group:
    """``size`` attempts at train task number ``index``; ``since`` holds arrival times by id.

    ``tries`` counts earlier groups of this task that came too late, ``lost`` the members that will
    never be finished.
    """

    name: str
    index: int
    size: int
    tries: int = 0
    lost: int = 0
    episodes: dict[int, Episode] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether every member is finished, or lost."""
        return len(self.episodes) + self.lost == self.size

    @property
    def members(self) -> tuple[Episode, ...]:
        """The episodes that are there, by member."""
        return tuple(self.episodes[member] for member in sorted(self.episodes))


class Groups:
    """Open groups by name, and whole ones in the order in which they became whole."""

    def __init__(self) -> None:
        self._open: dict[str, Group] = {}
        self._ready: deque[Group] = deque()

    def __len__(self) -> int:
        """Number of whole groups."""
        return len(self._ready)

    @property
    def all(self) -> tuple[Group, ...]:
        """Every group that waits."""
        return (*self._ready, *self._open.values())

    @property
    def open(self) -> tuple[Group, ...]:
        """Groups that wait for members."""
        return tuple(self._open.values())

    @property
    def waiting(self) -> int:
        """Finished episodes that no batch has taken."""
        return sum(len(group.episodes) for group in self.all)

    def add(self, group: Group) -> None:
        """Expect the members of ``group``."""
        self._open[group.name] = group

    def put(self, episode: Episode, now: float) -> None:
        """Take a finished member. Raises ``ContractViolation`` for one that nobody expects."""
        group = self._open.get(episode.group_id)
        if group is None or episode.member in group.episodes:
            raise ContractViolation(f"episode {episode.episode_id} was not expected, or came twice")
        group.episodes[episode.member] = episode
        group.since[episode.episode_id] = now
        self._close(group)

    def lose(self, name: str) -> None:
        """Go on without a member of group ``name``; a group that lost all members is gone."""
        group = self._open[name]
        group.lost += 1
        self._close(group)

    def _close(self, group: Group) -> None:
        if group.whole:
            del self._open[group.name]
            if group.episodes:
                self._ready.append(group)

    def pop(self) -> Group | None:
        """The group that has been whole for the longest time."""
        return self._ready.popleft() if self._ready else None

    def back(self, groups: list[Group]) -> None:
        """Put groups back that :meth:`pop` gave, in the same order."""
        self._ready.extendleft(reversed(groups))

    def state(self) -> dict[str, Any]:
        """All groups and episodes; ages start again at a resume."""
        groups = self.all
        heads = [[g.name, g.index, g.size, g.tries, g.lost, sorted(g.episodes)] for g in groups]
        return {"groups": heads, "episodes": to_ipc([e for g in groups for e in g.members])}

    def restore(self, state: dict[str, Any], now: float) -> None:
        """Continue exactly where :meth:`state` was taken."""
        self._open, self._ready = {}, deque()
        flat = iter(from_ipc(state["episodes"]))
        for name, index, size, tries, lost, members in state["groups"]:
            found = {member: next(flat) for member in members}
            group = Group(name, index, size, tries, lost, found)
            group.since = {episode.episode_id: now for episode in group.episodes.values()}
            if group.whole:
                self._ready.append(group)
            else:
                self._open[name] = group
