"""Which answers fit together: the legal ratio units, clocks, denominators and required numbers.

Pure data, read by the validator, the documentation and the learner alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

from hexad.contract.faults import UserError
from hexad.contract.lookup import load_object, nearest

Kind = TypeVar("Kind")
UNITS = ("token", "turn", "episode")
"""Units of the probability ratio."""
CLOCKS = ("token", "span", "turn", "segment")
"""Time steps of an estimator."""
DENOMINATORS = ("token", "response", "segment", "episode", "prompt", "fixed")
"""What a loss averages over."""


@dataclass(frozen=True, slots=True)
class SurrogateRule:
    """``units`` its ratio may have; ``required`` and ``optional`` keys of ``update``.

    ``ratio`` names the ratio it is written for: ``update`` (current / old), ``direct`` (current /
    behaviour) or ``none``. ``denominators`` are those that keep its meaning. ``gates``: it drops
    tokens.
    """

    ratio: str
    units: tuple[str, ...] = ("token",)
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    denominators: tuple[str, ...] = DENOMINATORS
    gates: bool = False


@dataclass(frozen=True, slots=True)
class EstimatorRule:
    """``clocks`` it may run on; ``required`` and ``optional`` keys of ``credit``.

    ``critic``: needs a learned value. ``group``: fewest attempts at one task. ``states``: needs
    environments with a ``state_digest``. ``episode``: gives one number an episode. ``forks``:
    continues states, so it needs environments that fork.
    """

    clocks: tuple[str, ...] = ("token",)
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    critic: bool = False
    group: int = 1
    states: bool = False
    episode: bool = True
    forks: bool = False


_BOUNDS = ("clip_low", "clip_high")
SURROGATES: dict[str, SurrogateRule] = {
    "nll": SurrogateRule("none"),
    "plain": SurrogateRule("update", UNITS),
    "clip": SurrogateRule("update", UNITS, _BOUNDS, ("dual",)),
    "cispo": SurrogateRule("update", required=_BOUNDS),
    "sapo": SurrogateRule("update", required=("tau", "tau_negative")),
    "dis": SurrogateRule("direct", required=_BOUNDS, gates=True),
    "squared": SurrogateRule("update", ("episode",), ("tau",), (), ("episode",)),
    "token_clip": SurrogateRule("update", required=(*_BOUNDS, "tau")),
    "difference": SurrogateRule("direct", required=_BOUNDS, gates=True),
}
"""By name of ``update.surrogate``."""


@dataclass(frozen=True, slots=True)
class PreferenceRule:
    """``required`` and ``optional`` keys of ``update.preference``, beside ``beta``.

    ``denominator`` is what its terms are; ``reductions`` those of a side's tokens. ``reference``:
    a side's score is a ratio to the reference. ``head``: it is the output of a head instead of
    log-probs, and has none of these numbers.
    """

    denominator: str
    reductions: tuple[str, ...] = ("sum", "mean")
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    reference: bool = True
    head: bool = False


_TOKENS = ("excess", "decay", "nll")
PREFERENCES: dict[str, PreferenceRule] = {
    "dpo": PreferenceRule("pair", optional=("smoothing", *_TOKENS)),
    "ipo": PreferenceRule("pair", optional=_TOKENS),
    "simpo": PreferenceRule("pair", ("mean",), ("gamma",), ("nll",), reference=False),
    "kto": PreferenceRule("episode", ("sum",), optional=("weight_desirable", "weight_undesirable")),
    "bradley_terry": PreferenceRule("pair", (), reference=False, head=True),
}
"""Losses of preferences, by name of ``update.surrogate``."""
PREFERENCE_KEYS = (
    "smoothing",
    "gamma",
    "weight_desirable",
    "weight_undesirable",
    "excess",
    "decay",
    "nll",
)
"""Keys of ``update.preference`` that belong to a loss."""
GATING = ("icepop", "mis", "geometric", "k3", "opsm")
"""Rules of ``update.correction`` that drop tokens."""

_TRACES = ("lambda_policy",)
ESTIMATORS: dict[str, EstimatorRule] = {
    "none": EstimatorRule(),
    "reinforce": EstimatorRule(
        required=("baseline", "truncation"), optional=("window", "tracker", "whiten")
    ),
    "rloo": EstimatorRule(required=("truncation",), optional=("whiten",), group=2),
    "grpo": EstimatorRule(
        required=("std", "threshold", "truncation"), optional=("whiten",), group=2
    ),
    "dr_grpo": EstimatorRule(required=("truncation",), optional=("whiten",), group=2),
    "reinforce_pp": EstimatorRule(
        CLOCKS,
        ("whiten",),
        ("truncation", "gamma", "shaping", "baseline", "std"),
        episode=False,
    ),
    "turn_group": EstimatorRule(
        ("turn",),
        ("truncation",),
        ("std", "threshold", "whiten", "gamma", "shaping"),
        group=2,
        episode=False,
    ),
    "gigpo": EstimatorRule(
        ("turn",),
        ("omega", "truncation"),
        ("std", "threshold", "whiten", "gamma", "shaping"),
        group=2,
        states=True,
        episode=False,
    ),
    "vine": EstimatorRule(
        ("turn",),
        ("continuations", "truncation"),
        ("whiten", "gamma"),
        episode=False,
        forks=True,
    ),
    "gae": EstimatorRule(
        CLOCKS,
        ("lambda_critic",),
        ("lambda_policy", "alpha", "whiten", "gamma", "shaping", "truncation"),
        critic=True,
        episode=False,
    ),
    "n_step": EstimatorRule(
        CLOCKS,
        ("steps",),
        ("whiten", "gamma", "shaping", "truncation"),
        critic=True,
        episode=False,
    ),
    "vtrace": EstimatorRule(
        CLOCKS,
        ("rho_bar", "c_bar", "lambda_policy"),
        ("whiten", "gamma", "shaping", "truncation"),
        critic=True,
        episode=False,
    ),
}
"""By name of ``credit.estimator``."""

SURROGATE_KEYS = ("clip_low", "clip_high", "dual", "tau", "tau_negative")
"""Keys of ``update`` that belong to a surrogate."""
ESTIMATOR_KEYS = (
    "baseline",
    "window",
    "tracker",
    "std",
    "threshold",
    "omega",
    "gamma",
    "lambda_policy",
    "lambda_critic",
    "alpha",
    "steps",
    "continuations",
    "rho_bar",
    "c_bar",
    "shaping",
    "whiten",
    "truncation",
)
"""Keys of ``credit`` that belong to an estimator."""


@dataclass(frozen=True, slots=True)
class Surrogate:
    """A surrogate of user code, named ``package.module:object`` in ``update.surrogate``.

    ``function(log_ratio, current, advantage, **numbers) -> loss [N]``, where ``numbers`` are those
    that ``rule`` requires or allows, by their keys in ``update``; minimised, one term a token.
    ``idle``: a zero advantage means a zero gradient.
    """

    rule: SurrogateRule
    function: Callable[..., Any]
    idle: bool = True


@dataclass(frozen=True, slots=True)
class Estimator:
    """An estimator of user code, named ``package.module:object`` in ``credit.estimator``.

    With ``rule.episode`` the ``function(score [E], scored [E], group [E]) -> advantage [E]`` is as
    in ``hexad.credit.group_relative``; else ``function(question) -> Estimate`` as in
    ``hexad.learner.clocked``.
    """

    rule: EstimatorRule
    function: Callable[..., Any]


def surrogate(name: str) -> SurrogateRule:
    """The rule of a built-in or of user code. Raises ``UserError`` for neither."""
    if ":" in name:
        return own(name, Surrogate, "update.surrogate").rule
    if name in PREFERENCES:
        return SurrogateRule("none", denominators=(PREFERENCES[name].denominator,))
    return SURROGATES[_known(name, [*SURROGATES, *PREFERENCES], "update.surrogate")]


def estimator(name: str) -> EstimatorRule:
    """The rule of a built-in or of user code. Raises ``UserError`` for neither."""
    if ":" in name:
        return own(name, Estimator, "credit.estimator").rule
    return ESTIMATORS[_known(name, ESTIMATORS, "credit.estimator")]


def own(name: str, kind: type[Kind], where: str) -> Kind:
    """The object of user code that ``name`` refers to; it must be a ``kind`` of this module."""
    found = load_object(name, where=where)
    if not isinstance(found, kind):
        fix = f"make it a hexad.recipe.legal.{kind.__name__}: its rule and its function"
        raise UserError(f"{name} is a {type(found).__name__}", where=where, fix=fix)
    return found


def _known(name: str, rules: Collection[str], where: str) -> str:
    if name not in rules:
        fix = f"{nearest(name, rules)}; or package.module:object"
        raise UserError(f"{where}: there is no {name!r}", where=where, fix=fix)
    return name
