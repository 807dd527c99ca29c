"""Credit and endings by stratum: what the newest trace says by turn, by task and by horizon."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hexad.contract.episode import Episode
from hexad.evidence import traces
from hexad.evidence.traces import Numbers

Row = dict[str, Any]
_ROWS = 8
"""Strata that are shown, those of the most tokens."""
Traced = Mapping[str, Mapping[int, Numbers]]
"""Episode id -> segment -> numbers of its tokens."""


def newest(folder: Path, steps: Iterable[int]) -> int | None:
    """The newest of ``steps`` whose batch was traced (``run.traces``)."""
    have = [s for s in steps if (folder / traces.FOLDER / f"step_{s}.parquet").is_file()]
    return max(have, default=None)


def advantages(traced: Traced, episodes: Sequence[Episode]) -> dict[str, Row]:
    """Advantages by turn and by the tasks' stratum: mean, deviation, action tokens."""
    pools: dict[str, list[float]] = {}
    for episode in episodes:
        for number, told in traced.get(episode.episode_id, {}).items():
            turns = episode.segments[number].turn.tolist()
            for turn, value in zip(turns, told["advantage"], strict=True):
                if np.isfinite(value):
                    pools.setdefault(f"turn {turn}", []).append(value)
                    pools.setdefault(episode.stratum or "no stratum", []).append(value)
    largest = sorted(pools, key=lambda name: -len(pools[name]))[:_ROWS]
    return {name: _spread(pools[name]) for name in sorted(largest)}


def bootstrap(traced: Traced, episodes: Sequence[Episode]) -> dict[str, Row]:
    """The critic's value before the last action, of episodes that a limit cut and of the others.

    Where cuts are bootstrapped, a high value there pays for being cut. Empty without a critic.
    """
    pools: dict[str, list[float]] = {}
    for episode in episodes:
        if found := traced.get(episode.episode_id):
            known = [value for value in found[max(found)]["value"] if np.isfinite(value)]
            name = "cut" if episode.ending.truncated else "ended"
            pools.setdefault(name, []).extend(known[-1:])
    return {name: _spread(values) for name, values in pools.items() if values}


def horizons(episodes: Sequence[Episode]) -> dict[str, Row]:
    """By the number of turns: episodes, the share that a limit cut, success of the scored ones."""
    found = {}
    for turns in sorted({episode.costs.turns for episode in episodes}):
        mine = [e for e in episodes if e.costs.turns == turns]
        judged = [e.verdict.success for e in mine if e.verdict is not None and e.scored]
        found[str(turns)] = {
            "episodes": len(mine),
            "cut": float(np.mean([e.ending.truncated for e in mine])),
            "success": float(np.mean(judged)) if judged else None,
        }
    return found


def _spread(values: Sequence[float]) -> Row:
    return {"mean": float(np.mean(values)), "std": float(np.std(values)), "count": len(values)}
