"""Limits on failures: a run whose episodes mostly fail for foreign reasons stops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hexad.contract.episode import Episode
from hexad.contract.faults import FaultRateExceeded


def check_fault_rate(episodes: Sequence[Episode], limit: float) -> None:
    """Raise ``FaultRateExceeded`` if more than the share ``limit`` of ``episodes`` faulted."""
    faulted = [episode for episode in episodes if episode.faulted]
    if len(faulted) <= limit * len(episodes):
        return
    last = [episode.faults[-1] for episode in faulted if episode.faults]
    counts = Counter(f"{fault.boundary}: {fault.kind}" for fault in last)
    example = last[-1].message if last else faulted[-1].ending.reason
    raise FaultRateExceeded(
        f"{len(faulted)} of {len(episodes)} episodes faulted (limit {limit:.0%})\n"
        f"  faults:  {_listed(counts)}\n"
        f"  example: {example}\n"
        "  fix:     repair what failed; or raise data.retries or data.fault_limit"
    )


def check_unscored_rate(episodes: Sequence[Episode], limit: float) -> None:
    """Raise ``FaultRateExceeded`` if more than ``limit`` of the unfaulted episodes lack a score."""
    judged = [episode for episode in episodes if not episode.faulted and episode.verdict]
    unscored = [episode.verdict for episode in judged if not episode.scored]
    if len(unscored) <= limit * len(judged):
        return
    counts = Counter(str(verdict.status) for verdict in unscored if verdict)
    raise FaultRateExceeded(
        f"{len(unscored)} of {len(judged)} finished episodes were not scored (limit {limit:.0%})\n"
        f"  verdicts: {_listed(counts)}\n"
        f"  example:  {unscored[-1].evidence if unscored[-1] else ''}\n"
        "  fix:      repair the verifier, or raise feedback.unscored_limit"
    )


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} x {count}" for name, count in counts.most_common())
