"""Rules that read a run's curves: each names one symptom, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hexad.contract.reasons import Reason
from hexad.evidence import metrics
from hexad.evidence.diagnosis.findings import SYMPTOMS, Finding
from hexad.evidence.diagnosis.series import WINDOW, Series
from hexad.evidence.intervals import wilson
from hexad.recipe.axes import Recipe

Row = dict[str, Any]
SOLVED = 0.95
"""Training success from which on a lack of contrast, or of entropy, is no symptom."""
MOVED = 3.0
"""Standard errors from which on a change is taken for real."""

_CUT = 0.2
"""Share of cut episodes from which on limits matter."""
_STALE = (Reason.STALE_VERSION, Reason.ORPHAN_VERSION)
_KL = "policy/kl/mean"
_TRUNCATED = "ending/truncated"


@dataclass(frozen=True)
class Curves:
    """What the rules read: the recipe, the rows of ``metrics.jsonl``, evaluations on selection."""

    recipe: Recipe
    rows: list[Row]
    selection: list[Row] = field(default_factory=list)
    books: Row = field(default_factory=dict)

    def series(self, *keys: str) -> Series:
        """The first of ``keys`` that a row has."""
        return Series.of(self.rows, *keys)

    @property
    def success(self) -> Series:
        """Success of training episodes; the score where the reward is no verdict.

        As in an evaluation, one that was got by a violation is none.
        """
        rows = (
            {**row, metrics.SUCCESS: row[metrics.SUCCESS] - (row.get(metrics.UNAUTHORISED) or 0.0)}
            if row.get(metrics.SUCCESS) is not None
            else row
            for row in self.rows
        )
        return Series.of(rows, metrics.SUCCESS, metrics.SCORE)

    @property
    def cut(self) -> Series:
        """Share of the finished episodes that a limit of the trainer cut."""
        ended = (
            {"step": row["step"], "cut": sum(v for k, v in row.items() if k.startswith(_TRUNCATED))}
            for row in self.rows
        )
        return Series.of(ended, "cut")

    @property
    def evaluated(self) -> Series:
        """Independent success on selection, by learner version."""
        return Series.of(self.selection, "success")


def engine_mismatch(curves: Curves) -> Finding | None:
    """Engine and learner disagree by more than rounding explains."""
    # The logits that both round are divided by the temperature before they are compared.
    temperature = curves.recipe.policy.sampling.temperature
    bound = metrics.MISMATCH[curves.recipe.system.dtype] / min(1.0, temperature)
    worst = curves.series("mismatch/engine/max")
    if not len(worst) or worst.values.max() <= bound:
        return None
    first = next(s for s, v in zip(worst.steps, worst.values, strict=True) if v > bound)
    told = f"|log learner / behaviour| reaches {worst.values.max():.2g}; rounding is {bound:g}"
    share = float((worst.values > bound).mean())
    confidence = 0.95 if share > 0.5 else 0.8
    return Finding(SYMPTOMS["engine-mismatch"], confidence, first, (told, _share(share)))


def no_contrast(curves: Curves) -> Finding | None:
    """Most groups have nothing to learn from, and the task is not solved."""
    recipe, signal = curves.recipe, curves.series(metrics.SIGNAL)
    compares = recipe.data.regime == "online" and recipe.data.group_size > 1
    if not compares or recipe.critic is not None or not len(signal):
        return None
    low = _least(metrics.SIGNAL)
    success = curves.success
    solved = len(success) > 0 and success.recent >= SOLVED
    if len(signal) < 10 or solved or signal.recent >= low:
        return None
    p, k = min(max(success.recent, 0.0), 1.0), recipe.data.group_size
    expected = 1.0 - p**k - (1.0 - p) ** k
    side = "all wrong" if p < 0.5 else "all right"
    told = [
        f"{signal.recent:.0%} of the last groups have a contrast; {low:.0%} is little",
        f"success is {p:.0%}, so most groups are {side}; {expected:.0%} of groups of {k} would be "
        "mixed if tasks were alike",
    ]
    entropy = curves.series("policy/entropy/mean")
    if len(entropy):
        told.append(f"entropy of the policy: {entropy.recent:.3g} nats a token")
    confidence = 0.9 if signal.recent < low / 2 else 0.75
    if follows := _lost(curves, signal, low):
        told.append(follows)
        confidence = 0.6
    since = signal.since(lambda value: value < low)
    return Finding(SYMPTOMS["no-contrast"], confidence, since, tuple(told))


def _lost(curves: Curves, signal: Series, low: float) -> str:
    """Why a lack of contrast may be the consequence of something else; empty if nothing says so."""
    if signal.enough and signal.before(signal.steps[WINDOW]).recent >= low:
        fell = curves.success.enough and curves.success.z < -MOVED
        if fell or _burst(curves) is not None:
            return "groups had a contrast before success fell: look for what made it fall"
    if signal.start >= low and _gives_up(curves):
        return "episodes became shorter: attempts that give up at once are alike"
    cut = curves.cut
    if cut.enough and cut.early > _CUT:
        return f"{cut.early:.0%} of episodes were cut by a limit from the start: cut ones are alike"
    return ""


def drift(curves: Curves) -> Finding | None:
    """Success fell well below the best it had, beyond noise, where it was learned and held out."""
    fell = _fall(curves)
    if fell is None:
        return None
    told = [f"success{fell.where} fell from {fell.peak:.0%} at batch {fell.step} to {fell.now:.0%}"]
    confidence = 0.5 if fell.depth < 0.2 else 0.6
    grown = _grown(curves, fell.step)
    told += grown
    variance = curves.series("critic/explained_variance")
    if len(variance.after(fell.step)) >= 10 and variance.recent < 0.2:
        told.append(f"explained variance of the critic: {variance.recent:.2f}")
        grown.append("critic")
    confidence += 0.25 if grown else 0.0
    burst = _burst(curves)
    if burst is not None:
        told.append(f"KL of batch {burst[0]} is {burst[1]:.2g} nats a token")
        confidence = 0.95
    since = _below(fell.series.after(fell.step), fell.peak - 0.05)
    return Finding(SYMPTOMS["drift"], confidence, since, tuple(told))


def _below(series: Series, limit: float) -> int | None:
    """The first step from which on ``series`` stays below ``limit``."""
    found = None
    for step, value in zip(reversed(series.steps), reversed(series.values), strict=True):
        if value >= limit:
            break
        found = step
    return found


@dataclass(frozen=True, slots=True)
class _Fall:
    """The best value of ``series``, the step it was at, and what came of it."""

    peak: float
    step: int
    now: float
    series: Series
    where: str = ""

    @property
    def depth(self) -> float:
        """From the best to now."""
        return self.peak - self.now


def _fall(curves: Curves) -> _Fall | None:
    """The larger fall of success: in training, or on selection.

    A fall in training is no drift where success on selection holds: other tasks were drawn.
    """
    success, held = curves.success, curves.selection
    found = []
    if len(held) >= 2:
        top = max(held, key=lambda row: row["success"])
        last = held[-2:] if len(held) >= 4 else held[-1:]
        correct, scored = (sum(row[key] for row in last) for key in ("correct", "scored"))
        now = correct / scored if scored else 0.0
        if top["success"] - now < 0.1:
            return None
        beyond = _interval(top["correct"], top["scored"])[0] > _interval(correct, scored)[1]
        rises = success.enough and success.z > MOVED  # then it is a gap, no drift
        if beyond and not rises:
            found.append(_Fall(top["success"], top["step"], now, curves.evaluated, " on selection"))
    if success.enough:
        smooth = success.smooth
        best = int(smooth.values.argmax())
        peak, step = float(smooth.values[best]), smooth.steps[best]
        before = Series(success.steps[best : best + WINDOW], success.values[best : best + WINDOW])
        beyond = len(success.after(step)) >= WINDOW and before.differs(success.last) > MOVED
        if peak - success.recent >= 0.1 and beyond:
            found.append(_Fall(peak, step, success.recent, smooth))
    return max(found, key=lambda each: each.depth, default=None)


def _interval(correct: int, scored: int) -> tuple[float, float]:
    return wilson(correct, scored) or (0.0, 1.0)


def _burst(curves: Curves) -> tuple[int, float] | None:
    """The first batch whose KL is unhealthy, with it: one update went too far."""
    kl, most = curves.series(_KL), _most(_KL)
    found = zip(kl.steps, kl.values, strict=True)
    return next(((step, float(value)) for step, value in found if value > most), None)


def _grown(curves: Curves, step: int) -> list[str]:
    """Tails that are several times what they were before ``step``."""
    found = []
    for name, keys in (
        ("KL", (_KL,)),
        ("p99 of log current / old", ("log_ratio/update/p99",)),
        ("share above the clip", ("clip/above/mean",)),
    ):
        series = curves.series(*keys)
        before, after = series.before(step), series.after(step)
        if len(before) < 5 or len(after) < 5:
            continue
        low, high = float(abs(before.values).mean()), float(abs(after.values[-10:]).mean())
        if high > 3 * low and high > 1e-3:
            found.append(f"{name} grew from {low:.2g} to {high:.2g}")
    return found


def stale(curves: Curves) -> Finding | None:
    """Much of what was sampled is refused or gated for its age; worse where success is flat."""
    if curves.recipe.timing.mode != "asynchronous":
        return None
    refused, success, most = curves.series(metrics.REFUSED), curves.success, _most(metrics.REFUSED)
    if len(refused) < 10:
        return None
    dropped, generated = _dropped(curves.books), curves.books.get("books", {}).get("generated", 0)
    lost = dropped / generated if generated else 0.0
    late = refused.recent * _old_share(curves.books)
    outside = _oldest(curves, "outside")
    signs = []
    if late > 2 * most:
        signs.append(f"{late:.0%} of the last episodes were refused as too old")
    if lost > 2 * most:
        signs.append(f"{lost:.0%} of all sampled tokens were dropped as stale")
    if outside is not None and outside > 0.3:
        signs.append(f"{outside:.0%} of the tokens of the oldest bucket are outside the gate")
    if not signs:
        return None
    confidence = 0.5 + 0.1 * len(signs)
    if success.enough:
        signs.append(f"success moved by {success.change:+.1%}")
        flat = success.change < 0.05 and success.recent < SOLVED
        confidence += 0.15 if flat else 0.0
    since = refused.since(lambda value: value > most)
    return Finding(SYMPTOMS["stale"], confidence, since, tuple(signs))


def early_end(curves: Curves) -> Finding | None:
    """More episodes are cut, or they give up earlier, and success does not gain by it."""
    success, turns, cut = curves.success, curves.series(metrics.TURNS), curves.cut
    if not success.enough or success.recent >= SOLVED:
        return None
    flat = success.change < 0.05
    told, confidence = _cut_short(curves, flat)
    forced = cut.enough and cut.start > 1.5 * _CUT
    if _gives_up(curves) and (flat or forced):
        told.append(f"turns an episode fell from {turns.start:.2f} to {turns.late:.2f}")
        confidence = max(confidence, 0.7) + (0.1 if success.change < -0.02 else 0.0)
        if forced:
            told.append(f"{cut.start:.0%} of episodes were cut by a limit in the first batches")
            confidence = max(confidence, 0.75)
    if not confidence:
        return None
    explained = [follows for other, follows in _EXPLAINS_ENDS if other(curves) is not None]
    told += [*explained, f"success moved by {success.change:+.1%}"]
    since = cut.since(lambda value: value > _CUT)
    sure = 0.6 if explained else confidence
    return Finding(SYMPTOMS["early-end"], sure, since, tuple(told))


def _cut_short(curves: Curves, flat: bool) -> tuple[list[str], float]:
    """What limits cut, and how sure that makes of an early end; 0 where they cut little."""
    cut = curves.cut
    if not cut.enough or cut.late <= _CUT:
        return [], 0.0
    told = [f"{cut.late:.0%} of episodes are cut by a limit, {cut.early:.0%} at first"]
    confidence = 0.0
    if cut.early > _CUT and cut.late > 0.5 * cut.early:  # the limit did it, not the policy
        confidence = 0.85 if flat or cut.late > 2 * _CUT else 0.6
    elif flat and cut.change > 0.1:
        confidence = 0.75
    if curves.recipe.critic is not None and curves.recipe.credit.truncation is None:
        told.append("behind each cut they are paid the critic's value")
    return told, confidence


def _gives_up(curves: Curves) -> bool:
    """Whether the turns of an episode have become fewer."""
    turns = curves.series(metrics.TURNS)
    if not turns.enough or turns.late > 0.85 * turns.start:
        return False
    return turns.last.differs(turns.first) < -MOVED


def entropy_collapse(curves: Curves) -> Finding | None:
    """Entropy fell to a fraction without the success that would explain it."""
    entropy, success = curves.series("policy/entropy/mean"), curves.success
    if not entropy.enough or not success.enough or success.recent >= 0.9:
        return None
    fell = entropy.late < 0.3 * entropy.start and entropy.z < -MOVED
    if not fell or success.change >= 0.1:
        return None
    told = [
        f"entropy fell from {entropy.start:.3g} to {entropy.late:.3g} nats a token",
        f"success moved by {success.change:+.1%}, to {success.recent:.0%}",
    ]
    limit = 0.5 * entropy.start
    confidence = 0.9 if entropy.late < 0.2 * entropy.start else 0.75
    since = entropy.since(lambda value: value < limit)
    return Finding(SYMPTOMS["entropy-collapse"], confidence, since, tuple(told))


def length_drift(curves: Curves) -> Finding | None:
    """Episodes grew by a third or more and success did not."""
    tokens, success = curves.series("length/action_tokens/mean", metrics.TOKENS), curves.success
    if not tokens.enough or not success.enough:
        return None
    grew = tokens.change > 0.3 * tokens.early and tokens.z > MOVED
    if not grew or success.change >= 0.05:
        return None
    told = (
        f"action tokens an episode grew from {tokens.early:.1f} to {tokens.late:.1f}",
        f"success moved by {success.change:+.1%}",
    )
    confidence = 0.85 if tokens.change > 0.6 * tokens.early else 0.7
    limit = 1.15 * tokens.early
    since = tokens.since(lambda value: value > limit)
    return Finding(SYMPTOMS["length-drift"], confidence, since, told)


def verifier_hole(curves: Curves) -> Finding | None:
    """The gap between training success and success on selection has opened."""
    train, held = curves.success, curves.evaluated
    if len(held) < 4 or not train.enough:
        return None
    paid = [_near(train, step) for step in held.steps]
    gaps = [mine - float(value) for mine, value in zip(paid, held.values, strict=True)]
    half = max(2, len(gaps) // 3)
    first, last = sum(gaps[:half]) / half, sum(gaps[-half:]) / half
    if sum(paid[-half:]) / half < sum(paid[:half]) / half - 0.05:
        return None  # training fell, too: whatever it is, nobody is paid for it
    best = float(held.values.max())
    fell = best - float(held.values[-half:].mean())
    opened = last - first
    if opened < 0.1 or (fell < 0.03 and opened < 0.2):
        return None
    told = (
        f"training success less success on selection: {first:+.1%} at first, {last:+.1%} now",
        f"success on selection is {fell:.1%} below its best of {best:.0%}",
    )
    confidence = 0.9 if fell >= 0.05 else 0.7
    steps = zip(held.steps, gaps, strict=True)
    since = next((step for step, gap in steps if gap > first + opened / 2), None)
    return Finding(SYMPTOMS["verifier-hole"], confidence, since, told)


def _near(series: Series, step: int) -> float:
    """Mean of the ten batches around ``step``."""
    close = sorted(zip(series.steps, series.values, strict=True), key=lambda p: abs(p[0] - step))
    return float(sum(value for _, value in close[:10]) / len(close[:10]))


def _oldest(curves: Curves, name: str) -> float | None:
    """The column ``name`` of the oldest lag bucket, over the last batches that have one."""
    found = []
    for row in curves.rows[-10:]:
        lags = {
            int(key.split("/")[1].removeprefix("lag_")): value
            for key, value in row.items()
            if key.startswith("bucket/lag_") and key.endswith(f"/{name}")
        }
        if lags:
            found.append(lags[max(lags)])
    return sum(found) / len(found) if found else None


def _dropped(books: Row) -> int:
    dropped = books.get("books", {}).get("dropped", {})
    return sum(count for reason, count in dropped.items() if reason in _STALE)


def _old_share(books: Row) -> float:
    """Share of the refused episodes that were refused for their age, not for what is in them."""
    funnel = books.get("funnel", {})
    lost = [funnel.get(stage, {}).get("lost", {}) for stage in ("valid", "accepted")]
    counts = [(reason, count) for each in lost for reason, count in each.items()]
    whole = sum(count for _, count in counts)
    return sum(count for reason, count in counts if reason in _STALE) / whole if whole else 0.0


def _least(key: str) -> float:
    metric = metrics.describe(key)
    assert metric is not None and metric.low is not None
    return metric.low


def _most(key: str) -> float:
    metric = metrics.describe(key)
    assert metric is not None and metric.high is not None
    return metric.high


def _share(share: float) -> str:
    return f"in {share:.0%} of the batches"


_EXPLAINS_ENDS = (
    (length_drift, "episodes grow longer: look for what pays for that"),
    (
        entropy_collapse,
        "the policy has stopped exploring, and repeats itself up to a limit or an end",
    ),
)
"""Symptoms that cuts and short episodes follow from."""
RULES: tuple[Callable[[Curves], Finding | None], ...] = (
    engine_mismatch,
    verifier_hole,
    no_contrast,
    drift,
    stale,
    early_end,
    entropy_collapse,
    length_drift,
)
"""Every rule that reads curves alone."""
