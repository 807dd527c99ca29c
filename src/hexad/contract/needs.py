"""What a method demands of the data it is trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hexad.contract.task import Split


@dataclass(frozen=True, slots=True)
class Needs:
    """Demands beyond the contract itself. The defaults are those of an on-policy method.

    ``logprob``: behaviour log-probs and versions on every action token (a ratio or lag is used).
    ``reward``: a scored verdict with at least one reward component.
    ``final_observation``: truncated episodes bootstrap, so they must store what came last, within
    the ``positions`` of the model. A turn that was cut before one of the ``stop_ids`` was answered
    by nothing: there the state is what was sampled.
    ``max_lag``: largest ``learner_version`` minus the oldest version that sampled anything before
    the last trained token; ``None`` for no limit. ``lineage``: policy version -> digest of the
    weights that this learner had then; ``None`` skips the test. ``expected``: provenance part ->
    digest that the learner works with; parts not named are not compared. ``splits``: the splits
    whose tasks may be trained on.
    ``support``: whether the behaviour distribution cuts the vocabulary, so that sampled tokens
    must name their sets (true) or must not (false); ``None`` skips the test.
    """

    logprob: bool = True
    reward: bool = True
    final_observation: bool = False
    stop_ids: frozenset[int] = frozenset()
    positions: int | None = None
    max_lag: int | None = None
    learner_version: int = 0
    lineage: Mapping[int, str] | None = None
    expected: Mapping[str, str] = field(default_factory=dict)
    splits: frozenset[Split] = frozenset({Split.TRAIN})
    support: bool | None = None

    @classmethod
    def for_sft(cls, expected: Mapping[str, str] | None = None) -> Needs:
        """Demands of imitation: ids, masks and weights; no log-probs, versions or rewards."""
        return cls(logprob=False, reward=False, expected=dict(expected or {}))
