"""The symptoms that can be named: what each looks like, why it happens, and what to try."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hexad.evidence.metrics import AxisName
from hexad.recipe.axes import Recipe

_TABLE = "失败模式应沿轴定位"
"""The seed's table of symptoms; its rows are numbered from 1."""
_EXTRA = "contract.md 5.7, extra"


def _online(recipe: Recipe) -> bool:
    return recipe.data.regime == "online"


def _clipped(recipe: Recipe) -> bool:
    return recipe.update.clip_high is not None


def _critic(recipe: Recipe) -> bool:
    return recipe.critic is not None


def _cuts_count(recipe: Recipe) -> bool:
    return recipe.critic is None and recipe.credit.truncation not in (None, "mask")


def _preferences(recipe: Recipe) -> bool:
    return recipe.update.preference is not None


def _priced(recipe: Recipe) -> bool:
    return bool(recipe.feedback.costs)


@dataclass(frozen=True, slots=True)
class Try:
    """Something to try, where a recipe has what it speaks of."""

    text: str
    fits: Callable[[Recipe], bool] = lambda recipe: True


@dataclass(frozen=True, slots=True)
class Symptom:
    """What is seen, the axis it belongs to, likely ``causes``, and ``tries`` in order."""

    key: str
    axis: AxisName
    what: str
    causes: str
    tries: tuple[Try, ...]
    source: str

    def to_try(self, recipe: Recipe) -> list[str]:
        """What of ``tries`` fits ``recipe``, in order."""
        return [each.text for each in self.tries if each.fits(recipe)]


@dataclass(frozen=True, slots=True)
class Finding:
    """A symptom in a run: ``confidence`` in [0, 1], the version it began at, and what shows it."""

    symptom: Symptom
    confidence: float
    since: int | None
    evidence: tuple[str, ...]


SYMPTOMS = {
    symptom.key: symptom
    for symptom in (
        Symptom(
            "verifier-hole",
            "feedback",
            "training reward rises and independent success does not follow",
            "a hole in the verifier, a judge that is coupled to the policy, or process rewards "
            "in place of the outcome",
            (
                Try("hexad audit RUN --cell high-miss, and read what was paid for nothing"),
                Try("repair the verifier, hexad rescore RUN, and train again from before it began"),
                Try("keep process rewards for diagnosis only", lambda r: bool(r.feedback.process)),
            ),
            f"{_TABLE}, row 1",
        ),
        Symptom(
            "no-contrast",
            "credit",
            "groups have nothing to compare, so the gradient is close to zero",
            "all members right or all wrong, small groups, a reward of few values",
            (
                Try("tasks of other difficulty, or data.dynamic"),
                Try("a larger data.group_size; a higher policy.sampling.temperature"),
                Try("a critic (method: ppo) if attempts stay alike"),
            ),
            f"{_TABLE}, row 2",
        ),
        Symptom(
            "drift",
            "data",
            "training was stable, then success falls",
            "a critic that lags behind, repeated epochs, tails of KL or ratio",
            (
                Try("fewer update.epochs and minibatches, or update.target_kl", _clipped),
                Try("a lower update.optimizer.lr, or a schedule that ends at 0"),
                Try("a larger update.preference.beta; fewer passes over the pairs", _preferences),
                Try(
                    "more critic.updates a batch, or pretraining, where the critic is off", _critic
                ),
            ),
            f"{_TABLE}, row 3",
        ),
        Symptom(
            "stale",
            "timing",
            "much of what is sampled is too old to train on",
            "stale episodes that are dropped or gated, a shift of states",
            (
                Try("a smaller timing.max_lag"),
                Try("fewer workers, or hexad check: is the learner the limit?"),
                Try("timing.mode: synchronous at the same budget, as a control"),
            ),
            f"{_TABLE}, row 4",
        ),
        Symptom(
            "length-weight",
            "action",
            "long answers have an outsized weight in the loss",
            "a sum over tokens, segments that are counted twice, the wrong denominator",
            (
                Try("action.denominator: episode, or response"),
                Try("compare the four reductions below; look for repeated segments"),
            ),
            f"{_TABLE}, row 5",
        ),
        Symptom(
            "observations-count",
            "action",
            "the length of tool output changes the loss",
            "observations among the action tokens, or on the clock of discount and trace",
            (
                Try("look for tools' tokens in an estimator, a potential or a reward of your own"),
                Try("repair the spans of messages: only what was sampled is action"),
                Try("credit.clock: turn where tools answer at length", _critic),
            ),
            f"{_TABLE}, row 6",
        ),
        Symptom(
            "early-end",
            "credit",
            "long tasks end early, by a limit or because the policy gives up",
            "a time-out taken for a terminal state or paid like success, costs that are too high, "
            "far credit that fades",
            (
                Try("larger task.limits"),
                Try("credit.truncation: mask", _cuts_count),
                Try("credit.truncation: terminal where the limits belong to the task", _critic),
                Try("lower costs a turn or token", _priced),
                Try("credit.gamma: 1 and a longer trace", _critic),
            ),
            f"{_TABLE}, row 7",
        ),
        Symptom(
            "entropy-collapse",
            "action",
            "the policy has stopped exploring",
            "updates that only sharpen, a clip that holds rare tokens down, few tasks",
            (
                Try("update.entropy", _online),
                Try("a higher update.clip_high", _clipped),
                Try("a lower learning rate; a KL to the reference"),
            ),
            _EXTRA,
        ),
        Symptom(
            "length-drift",
            "action",
            "episodes grow longer without growing better",
            "reward that follows length, a denominator that favours it, rewarded truncation",
            (
                Try("look at reward by length below; feedback.overlong, or a length cost"),
                Try("action.denominator: episode, or fixed"),
            ),
            _EXTRA,
        ),
        Symptom(
            "engine-mismatch",
            "data",
            "the engine's log-probs are not the learner's",
            "another kernel or precision, quantisation, another version of the weights",
            (
                Try("the same precision in engine and learner; then add features one by one"),
                Try("update.correction: {ratio: engine, rule: tis}, if it has to stay"),
            ),
            _EXTRA,
        ),
    )
}
"""By key."""
