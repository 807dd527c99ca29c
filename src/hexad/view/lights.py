"""The state of a run by axis: green, amber or red, each with the number and the rule behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hexad.contract.reasons import Reason
from hexad.evidence import metrics
from hexad.evidence.diagnosis import findings as diagnosis
from hexad.view.facts import Facts

GREEN, AMBER, RED, UNKNOWN, OFF = "green", "amber", "red", "unknown", "off"
_WORST = (RED, AMBER, GREEN, UNKNOWN, OFF)
_STALE = (Reason.STALE_VERSION, Reason.ORPHAN_VERSION)
_SURE = 0.75
"""Confidence from which on a symptom is red."""
_ENOUGH = 0.01
"""Share of the accepted tokens from which on a bucket of lag is looked at."""
AXES = {
    "feedback": "Is the reward there, and does it mean success?",
    "data": "Is what is trained on whole, and near the policy?",
    "action": "Do episodes end by themselves, and do their tokens count?",
    "credit": "Does the outcome tell decisions apart?",
    "critic": "Do its values deserve belief?",
    "timing": "Is the experience fresh?",
}
_SIGNS = {
    "closed-loop-errors": "data",
    "outside-the-data": "data",
    "verifier-hole": "feedback",
    "no-contrast": "credit",
    "critic-off": "critic",
    "stale-dropped": "timing",
    "process-hacked": "feedback",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """``measure`` is good from ``good`` on and bad beyond ``bad``; which side is better follows.

    Where ``measure`` gives ``None`` nothing was measured and ``missing`` says why.
    """

    axis: str
    name: str
    measure: Callable[[Facts], float | None]
    good: float
    bad: float
    unit: str = "share"
    missing: str = "nothing of this kind was counted"

    @property
    def text(self) -> str:
        """The rule in words."""
        words = ("at least", "below") if self.good > self.bad else ("at most", "above")
        good, bad = shown(self.good, self.unit), shown(self.bad, self.unit)
        return f"green {words[0]} {good}, red {words[1]} {bad}"

    def state(self, value: float | None) -> str:
        """The colour of ``value``."""
        if value is None:
            return UNKNOWN
        sign = 1.0 if self.good > self.bad else -1.0
        if sign * value >= sign * self.good:
            return GREEN
        return AMBER if sign * value >= sign * self.bad else RED


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule applied: its colour, the number as text, and the rule."""

    name: str
    state: str
    value: str
    rule: str


@dataclass(frozen=True, slots=True)
class Light:
    """One axis: the worst colour of its findings."""

    axis: str
    question: str
    state: str
    findings: tuple[Finding, ...]


def lights(facts: Facts) -> list[Light]:
    """The six axes of one stage. What was not measured makes no axis green or red."""
    return [_light(axis, facts) for axis in AXES]


def decisive(light: Light) -> Finding:
    """The first finding of the light's own colour."""
    return next(each for each in light.findings if each.state == light.state)


def _light(axis: str, facts: Facts) -> Light:
    if (why := _absent(axis, facts)) is not None:
        return Light(axis, AXES[axis], OFF, (Finding(why, OFF, "", ""),))
    found = []
    for rule in RULES:
        if rule.axis != axis:
            continue
        value = rule.measure(facts)
        text = rule.missing if value is None else shown(value, rule.unit)
        found.append(Finding(rule.name, rule.state(value), text, rule.text))
    for sign in facts.signs:
        if sign["holds"] and _SIGNS[sign["key"]] == axis:
            what = f"sign since batch {sign['step']}: {sign['what']}"
            found.append(Finding(what, RED, sign["then"], sign["fires_when"]))
    found += [_symptom(each) for each in facts.symptoms if each.symptom.axis == axis]
    states = {each.state for each in found}
    state = next((each for each in _WORST if each in states), UNKNOWN)
    return Light(axis, AXES[axis], state, tuple(found))


def _symptom(found: diagnosis.Finding) -> Finding:
    """A symptom that the curves show: red where the diagnosis is sure of it."""
    state = RED if found.confidence >= _SURE else AMBER
    name = f"{found.symptom.key}: {found.symptom.what}"
    return Finding(name, state, f"confidence {found.confidence:.0%}", "; ".join(found.evidence))


def _absent(axis: str, facts: Facts) -> str | None:
    """Why an axis has nothing to judge in this stage."""
    recipe = facts.part.recipe
    if axis == "critic" and recipe.critic is None:
        return "this method has no critic"
    if recipe.data.regime != "online" and axis in ("credit", "timing"):
        return "this stage does not sample: its examples are given"
    if axis == "timing" and recipe.timing.mode == "synchronous":
        return "synchronous: every batch is sampled by the weights that it trains"
    return None


def shown(value: float, unit: str) -> str:
    """A number as a reader wants it."""
    if unit == "share":
        return f"{value:.1%}" if abs(value) < 0.995 or value % 1 else f"{value:.0%}"
    return f"{value:.3g} {unit}".rstrip()


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _scored(facts: Facts) -> float | None:
    if facts.part.recipe.data.regime != "online":
        return None
    ended = facts.lately("funnel", "ended", "count")
    return _share(facts.lately("funnel", "rewarded", "count"), ended)


def _faulted(facts: Facts) -> float | None:
    ended = facts.lately("funnel", "ended", "count")
    return _share(facts.lately("funnel", "ended", "failed"), ended)


def _paid(facts: Facts) -> float | None:
    return facts.audit["paid_for_nothing"] if facts.audit else None


def _fallen(facts: Facts) -> float | None:
    rates = [row["success"] for row in facts.part.on("selection")]
    return max(rates) - rates[-1] if rates else None


def _mixed(facts: Facts) -> float | None:
    kinds = {k: facts.lately("groups", k, "groups") for k in ("mixed", "all_correct", "all_wrong")}
    compares = facts.part.recipe.data.group_size > 1
    return _share(kinds["mixed"], sum(kinds.values())) if compares else None


def _refused(facts: Facts) -> float | None:
    ended = facts.lately("funnel", "ended", "count")
    accepted = facts.lately("funnel", "accepted", "count")
    return _share(ended - accepted, ended)


def _cut(facts: Facts) -> float | None:
    ended = facts.lately("funnel", "ended", "count")
    return _share(facts.lately("funnel", "ended", "truncated"), ended)


def _mismatch(facts: Facts) -> float | None:
    seen = [r["mismatch/engine/p99"] for r in facts.recent if "mismatch/engine/p99" in r]
    return max(seen, default=None)


def _clipped(facts: Facts) -> float | None:
    above, below = facts.pooled("clip/above"), facts.pooled("clip/below")
    return None if above is None or below is None else above + below


def _signal(facts: Facts) -> float | None:
    signal = facts.lately("groups", "signal", "groups")
    return _share(signal, signal + facts.lately("groups", "no_signal", "groups"))


def _weighted(facts: Facts) -> float | None:
    tokens = facts.lately("funnel", "tokens", "action")
    return _share(facts.lately("funnel", "tokens", "loss"), tokens)


def _explained(facts: Facts) -> float | None:
    value: float | None = _whole_slice(facts).get("explained_variance")
    return value


def _bias(facts: Facts) -> float | None:
    row = _whole_slice(facts)
    return abs(row["bias"]) / row["return_std"] if row.get("return_std") else None


def _whole_slice(facts: Facts) -> dict[str, float]:
    found: dict[str, float] = facts.last.get("critic", {}).get("slices", {}).get("all", {})
    return found


def _stale(facts: Facts) -> float | None:
    dropped = sum(facts.lately("books", "dropped", reason) for reason in _STALE)
    return _share(dropped, dropped + facts.lately("books", "trained"))


def _oldest(facts: Facts) -> float | None:
    buckets = facts.last.get("staleness", {}).get("buckets", {})
    lag = {int(k.removeprefix("lag_")): v for k, v in buckets.items() if k.startswith("lag_")}
    tokens = sum(row["tokens"] for row in lag.values())
    large = [k for k, row in lag.items() if row["tokens"] >= _ENOUGH * tokens and "ess" in row]
    return lag[max(large)]["ess"] if large else None


def _column(key: str, name: str, measure: Callable[[Facts], float | None], bad: float) -> Rule:
    """The rule of a column of ``metrics.jsonl``: axis, unit and bound are those of its table."""
    metric = metrics.describe(key)
    if metric is None or (good := metric.high if metric.low is None else metric.low) is None:
        raise ValueError(f"the table of metrics names no healthy range of {key}")
    return Rule(metric.axis, name, measure, good, bad, metric.unit)


RULES: tuple[Rule, ...] = (
    _column(metrics.SCORED, "episodes with a score", _scored, 0.8),
    Rule(
        "feedback",
        "selection success below its best",
        _fallen,
        0.02,
        0.1,
        missing="no evaluation on selection tasks yet",
    ),
    Rule(
        "feedback",
        "high rewards that missed by the independent verifier",
        _paid,
        0.02,
        0.1,
        missing="no audit yet: hexad audit RUN",
    ),
    _column(metrics.FAULTED, "episodes that faulted", _faulted, 0.2),
    _column(metrics.REFUSED, "episodes that admission or a gate refused", _refused, 0.2),
    Rule(
        "data",
        "engine against learner, p99 of |log ratio|",
        _mismatch,
        0.01,
        0.1,
        "nats a token",
        missing="this method does not evaluate the sampling version",
    ),
    _column("clip/above", "tokens outside the clip range", _clipped, 0.5),
    _column("policy/kl", "KL to the updated policy, k3", lambda f: f.pooled("policy/kl"), 0.5),
    Rule("action", "episodes that a limit cut", _cut, 0.1, 0.5),
    Rule("action", "trained action tokens with weight in the loss", _weighted, 0.9, 0.5),
    _column(metrics.MIXED, "groups with right and wrong members", _mixed, 0.05),
    _column(metrics.SIGNAL, "groups whose advantages are not all zero", _signal, 0.05),
    Rule("critic", "explained variance on the last batch", _explained, 0.2, 0.0, ""),
    Rule("critic", "|bias| by the spread of the returns", _bias, 0.25, 1.0, ""),
    Rule("timing", "tokens dropped as stale or orphaned", _stale, 0.05, 0.2),
    Rule("timing", "effective sample size in the oldest bucket of lag", _oldest, 0.5, 0.1),
)
"""Every rule. Columns of the table of metrics have its bound; the rest are of this page."""
