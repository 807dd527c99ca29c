"""What buckets of lag, age and length say: from tallies to numbers. See ``learner/buckets.py``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from hexad.contract.episode import Episode
from hexad.contract.mix import labels
from hexad.contract.tally import Tally
from hexad.evidence.tallies import tally_json, tally_of

BUCKET, MIX = "bucket/", "mix/"


def ours(key: str) -> bool:
    """Whether ``key`` names a tally of a bucket or a mix."""
    return key.startswith((BUCKET, MIX))


def numbers(key: str, tally: Tally) -> dict[str, float | int]:
    """The columns that one tally becomes; none where nothing was counted.

    Log-ratios show median, p95, p99 and the largest, weights the effective share of their number
    ``(sum w)^2 / (n sum w^2)``; the rest their mean, with the count of accepted tokens or episodes.
    """
    if tally.mean is None:
        return {}
    start, _, name = key.rpartition("/")
    if name.startswith("log_ratio"):
        summary = tally.summary()
        return {f"{key}/{q}": summary[q] for q in ("p50", "p95", "p99", "max")}
    if name in ("weight", "prefix_weight"):
        share = tally.sum**2 / (tally.count * tally.squares) if tally.squares else 0.0
        return {f"{start}/{'ess' if name == 'weight' else 'ess_prefix'}": share}
    counts = {"advantage": "tokens", "reward": "episodes"}
    more = {f"{start}/{counts[name]}": tally.count} if name in counts else {}
    return {key: tally.mean, **more}


class Staleness:
    """The same over the whole run, and the mixes of what was generated, accepted and fresh.

    Empty until a batch brings a bucket: a synchronous run has none. Part of the ledger's state.
    """

    def __init__(self) -> None:
        self.tallies: dict[str, Tally] = {}
        self.generated: Counter[str] = Counter()
        self.episodes = 0

    def ended(self, episode: Episode) -> None:
        """A finished training episode."""
        self.episodes += 1
        self.generated.update(labels(episode))

    def add(self, tallies: Mapping[str, Tally]) -> None:
        """What a trained batch brought."""
        for key, tally in tallies.items():
            if ours(key):
                self.tallies[key] = self.tallies.get(key, Tally()) + tally

    def row(self) -> dict[str, Any]:
        """``buckets``: bucket -> numbers. ``mix``: label -> share of generated, accepted, fresh."""
        if not self.tallies:
            return {}
        buckets: dict[str, dict[str, Any]] = {}
        mix: dict[str, dict[str, float]] = {}
        for label, count in sorted(self.generated.items()):
            mix.setdefault(label, {})["generated"] = count / self.episodes
        totals = {kind: self._total(f"{MIX}{kind}/") for kind in ("accepted", "fresh")}
        for key, tally in self.tallies.items():
            kind, middle, name = key.split("/", 2)
            if kind + "/" == MIX:
                mix.setdefault(name, {})[middle] = tally.sum / totals[middle]
                continue
            for column, value in numbers(key, tally).items():
                buckets.setdefault(middle, {})[column.split("/", 2)[2]] = value
        return {"buckets": buckets, "mix": mix}

    def _total(self, start: str) -> float:
        """How many episodes: each has one ending."""
        mine = (t.sum for key, t in self.tallies.items() if key.startswith(f"{start}ending_"))
        return sum(mine)

    def state(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        tallies = {key: tally_json(tally) for key, tally in self.tallies.items()}
        return {"tallies": tallies, "generated": dict(self.generated), "episodes": self.episodes}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Staleness:
        """The books that ``state`` was taken of."""
        made = cls()
        made.tallies = {key: tally_of(value) for key, value in state["tallies"].items()}
        made.generated, made.episodes = Counter(state["generated"]), state["episodes"]
        return made
