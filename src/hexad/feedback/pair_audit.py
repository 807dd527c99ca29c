"""What a set of pairs teaches beside the preference: source, length, coverage, ties, duplicates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hexad.contract.episode import Episode
from hexad.contract.tally import Tally
from hexad.feedback.pairs import Pair, Refused, signature


@dataclass(frozen=True, slots=True)
class PairAudit:
    """Of ``pairs`` pairs: ``longer`` have the longer chosen side, ``shorter`` the shorter one.

    ``sources`` counts pairs by who says so. ``tasks`` were offered, ``covered`` have a pair.
    ``duplicates`` say what an earlier pair says. ``chosen`` and ``rejected`` tally action tokens
    that have a weight in the loss, ``margins`` differences of scores. ``ties`` are groups in which
    no rule saw a difference. ``branches`` counts pairs by the turn that they branch at, from 0.
    """

    pairs: int
    sources: dict[str, int]
    tasks: int
    covered: int
    duplicates: int
    ties: int
    longer: int
    shorter: int
    chosen: Tally
    rejected: Tally
    margins: Tally
    refused: dict[str, int]
    branches: dict[int, int]

    def row(self) -> dict[str, Any]:
        """JSON for ``pairs.jsonl``."""
        tallies = {"chosen": self.chosen, "rejected": self.rejected, "margin": self.margins}
        branches = {str(turn): count for turn, count in self.branches.items()}
        parted = {"branches": branches, "first_turn": self.branches.get(0, 0)}
        return {
            "pairs": self.pairs,
            "sources": self.sources,
            "tasks": self.tasks,
            "covered": self.covered,
            "duplicates": self.duplicates,
            "ties": self.ties,
            "chosen_longer": self.longer,
            "chosen_shorter": self.shorter,
            "refused": self.refused,
            **(parted if branches else {}),
            **{name: tally.summary() for name, tally in tallies.items() if tally.count},
        }

    def text(self) -> str:
        """One line for a person."""
        shown = [f"{self.pairs} pairs of {self.covered} of {self.tasks} tasks"]
        if self.chosen.mean is not None and self.rejected.mean is not None:
            shown.append(
                f"action tokens {self.chosen.mean:.1f} chosen, {self.rejected.mean:.1f} rejected "
                f"(chosen is longer in {self.longer}, shorter in {self.shorter})"
            )
        if self.branches:
            at = [f"at turn {turn} in {n}" for turn, n in self.branches.items() if turn]
            first = f"at the first turn in {self.branches.get(0, 0)}"
            shown.append(f"they branch {', '.join([first, *at])}")
        counts = {"ties": self.ties, "duplicates": self.duplicates, **self.refused}
        shown += [f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count]
        return "; ".join(shown)


def audit(pairs: Sequence[Pair], tasks: int, refused: Refused) -> PairAudit:
    """The audit of ``pairs`` made for ``tasks`` tasks, ``refused`` what made none."""
    seen = Counter((signature(pair.chosen), signature(pair.rejected)) for pair in pairs)
    lengths = [tuple(map(_weighed, pair.sides(""))) for pair in pairs]
    turns = Counter(pair.branch.turn for pair in pairs if pair.branch is not None)
    return PairAudit(
        pairs=len(pairs),
        sources=dict(Counter(pair.source for pair in pairs)),
        tasks=tasks,
        covered=len({pair.chosen.task_id for pair in pairs}),
        duplicates=len(pairs) - len(seen),
        ties=refused.ties,
        longer=sum(chosen > rejected for chosen, rejected in lengths),
        shorter=sum(chosen < rejected for chosen, rejected in lengths),
        chosen=Tally.of([chosen for chosen, _ in lengths]),
        rejected=Tally.of([rejected for _, rejected in lengths]),
        margins=Tally.of([pair.margin for pair in pairs]),
        refused={name: count for name, count in sorted(refused.reasons.items()) if count},
        branches=dict(sorted(turns.items())),
    )


def _weighed(episode: Episode) -> int:
    return sum(int((segment.weight > 0).sum()) for segment in episode.segments)
