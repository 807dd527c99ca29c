"""What the columns of ``metrics.jsonl`` mean. One row a batch; what has no value is absent.

The one table: documentation (``docs/metrics.md``), diagnosis and viewer read it. Everything outside
``time/`` is deterministic in synchronous runs: two with one seed write equal values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AxisName = Literal["feedback", "data", "action", "credit", "critic", "timing", "run"]
"""The six axes of a training contract, and the run as a whole."""
UPDATE: AxisName = "data"
"""Ratios, gates and KL say how far the policies of the data regime have drifted apart."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A key (``*`` stands for a name or the statistics of a tally), its meaning, unit and axis.

    A value below ``low`` or above ``high`` is not healthy; ``note`` says more, or when it holds.
    """

    key: str
    meaning: str
    unit: str
    axis: AxisName
    low: float | None = None
    high: float | None = None
    note: str = ""

    @property
    def healthy(self) -> str:
        """The healthy range in words; empty where there is none."""
        bounds = []
        if self.low is not None:
            bounds.append(f"above {self.low:g}")
        if self.high is not None:
            bounds.append(f"below {self.high:g}")
        return "; ".join(filter(None, [" and ".join(bounds), self.note]))

    def holds(self, value: float) -> bool:
        """Whether ``value`` is in the healthy range."""
        low = self.low is None or value >= self.low
        return low and (self.high is None or value <= self.high)


MISMATCH = {"float32": 1e-4, "float64": 1e-4, "bfloat16": 0.5}
"""Largest |log learner / engine| of a token that rounding explains, by the type of the weights.

Measured were 5e-6 in float32 and .06 in bfloat16 (benchmarks/README.md); a larger model has more.
"""
SUCCESS = "reward/success"
SCORE = "reward/score"
SCORED = "reward/scored"
UNSCORED = "unscored/"
MIXED = "group/mixed"
SIGNAL = "group/signal"
FAULTED = "episode/faulted"
TURNS = "episode/turns"
TOKENS = "episode/sampled_tokens"
CALLS = "episode/tool_calls"
REFUSED = "episode/refused"
STALE = "episode/stale"
OUTSIDE = "data/states_outside"
VIOLATING = "conduct/violating"
REFUSED_CALLS = "conduct/refused_calls"
UNAUTHORISED = "conduct/unauthorised_success"
GATED = "conduct/gated"
LAG = "schedule/lag"
LIVE = "schedule/live"
AGE = "time/queue_age"
BUSY = "time/worker_busy"

METRICS: tuple[Metric, ...] = (
    Metric("step", "learner version that the batch was sampled at", "version", "run"),
    # -- feedback
    Metric(SUCCESS, "scored episodes of the batch with a correct verdict", "share", "feedback"),
    Metric(
        SCORE,
        "sum of raw reward components of a scored episode, or its gate's reward, mean",
        "reward",
        "feedback",
    ),
    Metric(
        "reward/component/*",
        "one raw component, mean over scored episodes that carry it",
        "reward",
        "feedback",
    ),
    Metric(SCORED, "finished episodes of the batch with a score", "share", "feedback", low=0.95),
    Metric(
        f"{UNSCORED}*",
        "finished episodes that the verifier left unscored for this reason: `abstained`, or "
        "`orders_disagree` where a judge's choice followed the order of what it compared",
        "share",
        "feedback",
        high=0.05,
    ),
    Metric(
        "reward/kept_success",
        "success of what dynamic sampling kept, beside all that was sampled",
        "share",
        "feedback",
    ),
    Metric(
        VIOLATING,
        "finished episodes that asked for a call they may not make",
        "share",
        "feedback",
        note="0",
    ),
    Metric(
        REFUSED_CALLS,
        "calls that were not executed, as they may not be, of an episode, mean",
        "calls",
        "feedback",
    ),
    Metric(
        UNAUTHORISED,
        "scored episodes that were correct, with a violation",
        "share",
        "feedback",
        note="0",
    ),
    Metric(GATED, "scored episodes whose reward a gate replaced", "share", "feedback"),
    Metric(
        "constraint/*",
        "of one constraint: the multiplier after this batch, the mean cost over all that was "
        "sampled for it, and the limit",
        "as constrained",
        "feedback",
        note="cost at most the limit, multiplier settled",
    ),
    # -- data: what was sampled, and how far its policy is from the learner's
    Metric(
        OUTSIDE,
        "different states visited by a round's attempts, or by stored episodes, that are in no "
        "pair and in nothing kept; in the row of a round's start",
        "share",
        "data",
        note="near 1: the pairs cover little of what the policy meets",
    ),
    Metric(FAULTED, "finished episodes that ended in a fault", "share", "data", high=0.05),
    Metric(
        REFUSED, "finished episodes that admission or a gate refused", "share", "data", high=0.05
    ),
    Metric(
        "log_ratio/engine/*",
        "learner at sampling time / behaviour: what engine and learner disagree by",
        "nats a token",
        UPDATE,
        note=f"|max| below {MISMATCH['float32']:g} in float32, {MISMATCH['bfloat16']:g} in "
        "bfloat16",
    ),
    Metric("mismatch/engine/*", "the absolute value of log_ratio/engine", "nats a token", UPDATE),
    Metric(
        "log_ratio/*",
        "update: current / old; direct: current / behaviour; proximal: old / behaviour; episode: "
        "the sum over an episode",
        "nats",
        UPDATE,
    ),
    Metric(
        "clip/*",
        "tokens beyond the bound on that side, by the sign of the advantage",
        "share",
        UPDATE,
        high=0.3,
        note="/mean",
    ),
    Metric("correction/kept/*", "tokens that the correction did not mask", "share", UPDATE),
    Metric("correction/weight/*", "weights of the correction", "ratio", UPDATE),
    Metric(
        "policy/kl/*",
        "estimate of KL(behaviour or old || current), k3",
        "nats a token",
        UPDATE,
        high=0.1,
        note="/mean",
    ),
    Metric("policy/kl_reference/*", "estimate of KL(current || reference)", "nats a token", UPDATE),
    Metric("policy/kl_coefficient/*", "weight of the KL to the reference", "1", UPDATE),
    Metric(
        "bucket/*",
        "asynchronous: one bucket of version lag, queue age (seconds) or length (action tokens), "
        "named by its lower end: accepted tokens and episodes; log-ratios to old, behaviour and of "
        "the engine; kl, k3 of current / behaviour; share outside a bound or gate; ess of episodes "
        "and of turn prefixes; mean reward and advantage",
        "as named",
        "timing",
        note="ess not near 0, and few tokens outside, in the oldest bucket",
    ),
    Metric(
        "mix/*",
        "generated, accepted or fresh (lag 0) episodes with this ending, horizon (turns, by lower "
        "end) or kind of task",
        "share",
        "timing",
        note="alike: a difference is a shift of states",
    ),
    # -- action
    Metric(TURNS, "assistant turns of an episode, mean", "turns", "action"),
    Metric(TOKENS, "sampled tokens of an episode, mean", "tokens", "action"),
    Metric(CALLS, "tool calls of an episode, mean", "calls", "action"),
    Metric("length/*", "action tokens of a trained episode", "tokens", "action"),
    Metric("ending/*", "finished episodes with this ending", "share", "action"),
    Metric(
        "tokens/*",
        "of the batch: action, loss, train (backward), forward (all)",
        "tokens",
        "action",
    ),
    Metric("policy/entropy/*", "entropy of the sampling distribution", "nats a token", "action"),
    Metric("policy/nll/*", "negative log-likelihood of demonstrated tokens", "nats", "action"),
    Metric("policy/positive_nll/*", "the same of what was sampled and right", "nats", "action"),
    # -- credit
    Metric(
        MIXED,
        "scored groups with right and wrong members",
        "share",
        "credit",
        low=0.2,
        note="for group methods",
    ),
    Metric(SIGNAL, "scored groups whose advantages are not all zero", "share", "credit", low=0.2),
    Metric("policy/advantage/*", "advantage of an action token", "reward", "credit"),
    Metric("policy/*", "what the learner reports of the update", "as named", "credit"),
    Metric("update/optimizer_steps", "optimiser steps of the batch", "steps", "credit"),
    # -- critic
    Metric(
        "critic/explained_variance",
        "1 - Var(return - value) / Var(return) over clock steps with a realised return; values are "
        "from before any update on the batch",
        "share",
        "critic",
        low=0.0,
        note="rises well above 0",
    ),
    Metric("critic/bias", "value - realised return, mean", "reward", "critic", note="near 0"),
    Metric(
        "critic/early_bias",
        "the same at the first decision of each episode",
        "reward",
        "critic",
        note="near 0",
    ),
    Metric(
        "critic/behind",
        "policy steps since the critic's last update",
        "steps",
        "critic",
        note="one batch at most",
    ),
    Metric(
        "critic/*",
        "what the critic's report says of the batch, and its own steps",
        "as named",
        "critic",
    ),
    # -- timing
    Metric(
        STALE,
        "finished episodes that were refused for their age and nothing else",
        "share",
        "timing",
        high=0.05,
    ),
    Metric(
        LAG + "/*",
        "learner version minus the oldest one that sampled an episode of the batch",
        "versions",
        "timing",
    ),
    Metric(LIVE + "/*", "episodes that a worker plays, over workers", "episodes", "timing"),
    Metric(
        "schedule/*",
        "finished episodes that wait, episodes in flight, workers that were lost",
        "count",
        "timing",
    ),
    Metric(
        AGE + "/*",
        "from an episode's end to its batch",
        "seconds",
        "timing",
        note="a few batches at most",
    ),
    Metric(
        BUSY + "/*",
        "processor seconds a second, over workers",
        "share",
        "timing",
        note="near 1 a thread",
    ),
    Metric("time/*", "wall-clock of a phase since the row before", "seconds", "timing"),
    # -- run
    Metric("budget/*", "consumed since the start of the run", "as named", "run"),
)
"""Every column."""


def describe(key: str) -> Metric | None:
    """The entry that ``key`` falls under, the longest match first."""
    ordered = sorted(METRICS, key=lambda m: len(m.key), reverse=True)
    for metric in ordered:
        start = metric.key.removesuffix("*")
        bare = metric.key.endswith("/*") and key == start.removesuffix("/")
        if key == metric.key or bare or (metric.key.endswith("*") and key.startswith(start)):
            return metric
    return None


def markdown() -> str:
    """The table as a page: ``docs/metrics.md`` is this text, and a test holds it to it."""
    lines = [
        "# Every column of `metrics.jsonl`",
        "",
        "One row a batch. `*` stands for a name, or for the statistics of a tally: `/mean`,",
        "`/std`, `/min`, `/p50`, `/p95`, `/p99`, `/max`, `/count` and `/missing`. The table is",
        "`src/hexad/evidence/metrics.py`, which diagnosis and viewer read too.",
        "",
        "| column | meaning | unit | axis | healthy |",
        "|---|---|---|---|---|",
    ]
    for each in METRICS:
        row = (f"`{each.key}`", each.meaning, each.unit, each.axis, each.healthy)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return "\n".join(lines) + "\n"
