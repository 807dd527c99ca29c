"""What the columns of ``metrics.jsonl`` mean. One row a batch; what has no value is absent.

Everything outside ``time/`` is deterministic in synchronous runs: two with one seed write equal
values.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """A key (``*`` stands for a name), its meaning with its unit, and what is healthy."""

    key: str
    meaning: str
    healthy: str = ""


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
LAG = "schedule/lag"
LIVE = "schedule/live"
AGE = "time/queue_age"
BUSY = "time/worker_busy"

METRICS: tuple[Metric, ...] = (
    Metric("step", "learner version that the batch was sampled at"),
    Metric(SUCCESS, "share of the batch's scored episodes with a correct verdict"),
    Metric(SCORE, "mean over scored episodes of the sum of raw reward components"),
    Metric("reward/component/*", "mean of one raw component over scored episodes that carry it"),
    Metric(SCORED, "share of the batch's finished episodes with a score", "above 0.95"),
    Metric(
        f"{UNSCORED}*",
        "share of finished episodes that the verifier left unscored for this reason: `abstained`, "
        "or `orders_disagree` where a judge's choice followed the order of what it compared",
        "near 0",
    ),
    Metric(
        MIXED, "share of scored groups with right and wrong members", "above 0.2 for group methods"
    ),
    Metric(SIGNAL, "share of scored groups whose advantages are not all zero", "above 0.2"),
    Metric(FAULTED, "share of finished episodes that ended in a fault", "below 0.05"),
    Metric(REFUSED, "share of finished episodes that admission or a gate refused", "below 0.05"),
    Metric(TURNS, "mean assistant turns of an episode"),
    Metric(TOKENS, "mean sampled tokens of an episode"),
    Metric(CALLS, "mean tool calls of an episode"),
    Metric("ending/*", "share of finished episodes with this ending"),
    Metric("tokens/*", "tokens of the batch: action, loss, train (backward), forward (all)"),
    Metric("update/optimizer_steps", "optimiser steps of the batch"),
    Metric("policy/*", "what the learner reports of the update; see /mean, /std, /p50, /p99, ..."),
    Metric(
        "bucket/*",
        "asynchronous: one bucket of version lag, queue age (seconds) or length (action tokens), "
        "named by its lower end: accepted tokens and episodes; log-ratios to old, behaviour and of "
        "the engine; kl, k3 of current / behaviour; share outside a bound or gate; ess of episodes "
        "and of turn prefixes; mean reward and advantage",
        "ess not near 0, and few tokens outside, in the oldest bucket",
    ),
    Metric(
        "mix/*",
        "share of the generated, accepted or fresh (lag 0) episodes with this ending or horizon "
        "(turns, by lower end)",
        "alike: a difference is a shift of states",
    ),
    Metric(
        "critic/explained_variance",
        "1 - Var(return - value) / Var(return) over clock steps with a realised return; values are "
        "from before any update on the batch",
        "rises well above 0",
    ),
    Metric("critic/bias", "mean of value - realised return", "near 0"),
    Metric("critic/early_bias", "the same at the first decision of each episode", "near 0"),
    Metric("critic/behind", "policy steps since the critic's last update", "one batch at most"),
    Metric("critic/*", "what the critic's report says of the batch, and its own steps"),
    Metric(LAG + "/*", "learner version minus the oldest one that sampled an episode of the batch"),
    Metric(LIVE + "/*", "episodes that a worker plays, over workers"),
    Metric("schedule/*", "finished episodes that wait, episodes in flight, workers that were lost"),
    Metric(AGE + "/*", "seconds between an episode's end and its batch", "below a few batches"),
    Metric(BUSY + "/*", "processor seconds a second, over workers", "near 1 a thread"),
    Metric("budget/*", "consumed since the start of the run"),
    Metric("time/*", "wall-clock seconds of a phase since the row before"),
)
"""Every column."""


def describe(key: str) -> Metric | None:
    """The entry that ``key`` falls under, the longest match first."""
    ordered = sorted(METRICS, key=lambda m: len(m.key), reverse=True)
    for metric in ordered:
        start = metric.key.removesuffix("*")
        if key == metric.key or (metric.key.endswith("*") and key.startswith(start)):
            return metric
    return None
