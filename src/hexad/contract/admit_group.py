"""Admission rules across the episodes of one batch."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from hexad.contract.episode import Episode
from hexad.contract.needs import Needs
from hexad.contract.provenance import AGREE_IN_BATCH, PARTS
from hexad.contract.reasons import Reason, Violation


def group_rules(episodes: Sequence[Episode], needs: Needs) -> Iterator[Violation]:
    """Identity and groups, then provenance over the batch and by environment."""
    yield from _duplicates(Reason.DUPLICATE_EPISODE, (e.episode_id for e in episodes))
    places = (f"{e.group_id}[{e.member}]" for e in episodes)
    yield from _duplicates(Reason.DUPLICATE_MEMBER, places)
    groups: dict[str, list[Episode]] = defaultdict(list)
    for episode in episodes:
        groups[episode.group_id].append(episode)
    for name, members in groups.items():
        tasks = {f"{e.environment}:{e.task_id}" for e in members}
        yield from _agree(Reason.MIXED_TASKS, f"group {name}", tasks)
        states = {e.initial_state for e in members}
        yield from _agree(Reason.UNEQUAL_INITIAL_STATE, f"group {name}", states)
    yield from _provenance(episodes)
    if needs.logprob:
        yield from _lineages(episodes)


def _provenance(episodes: Sequence[Episode]) -> Iterator[Violation]:
    digests: dict[tuple[str, str], set[str]] = defaultdict(set)
    for episode in episodes:
        parts = episode.provenance.parts()
        for part in PARTS:
            scope = "batch" if part in AGREE_IN_BATCH else f"environment {episode.environment}"
            digests[scope, part].add(parts[part])
    for (scope, part), seen in digests.items():
        yield from _agree(Reason.MIXED_PROVENANCE, f"{scope}: {part}", seen)


def _lineages(episodes: Sequence[Episode]) -> Iterator[Violation]:
    """One version is one set of weights, wherever versions are compared."""
    digests: dict[int, set[str]] = defaultdict(set)
    for episode in episodes:
        for version, text in episode.provenance.versions:
            digests[version].add(text)
    for version, seen in digests.items():
        yield from _agree(Reason.MIXED_PROVENANCE, f"batch: version {version}", seen)


def _agree(reason: Reason, where: str, seen: set[str]) -> Iterator[Violation]:
    if len(seen) > 1:
        yield Violation(reason, where, " and ".join(sorted(seen)))


def _duplicates(reason: Reason, names: Iterable[str]) -> Iterator[Violation]:
    for name, count in Counter(names).items():
        if count > 1:
            yield Violation(reason, name, f"occurs {count} times")
