"""What ``benchmarks/confusion.py`` injects, as data: a symptom, a strength, and how it is made.

Where a user could make the mistake, it is a recipe override, with a verifier, a mapping, an
estimator or a potential of this file where one has to be written. What only a bug of the engine can
make is a patch for the time of one run: :func:`noisy_engine`. A recorder that takes what tools said
for actions, or stores a segment twice, is not among them: the books refuse its first batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hexad.contract.digest import canonical_json
from hexad.contract.episode import Episode
from hexad.contract.messages import Message
from hexad.contract.reward import Reward
from hexad.contract.task import Task
from hexad.contract.verdict import Verdict, VerdictStatus
from hexad.credit.baselines import group_mean
from hexad.credit.reward_to_go import less, reward_to_go
from hexad.credit.values import Estimate
from hexad.feedback.answer import final_answer
from hexad.learner.batch import Batch
from hexad.learner.clocked import Question
from hexad.policy.engine import Completion, Request
from hexad.policy.local import LocalEngine
from hexad.recipe.legal import Estimator, EstimatorRule, Surrogate, SurrogateRule

Patch = Callable[[], AbstractContextManager[None]]


# -- mistakes that a user can write ---------------------------------------------------------------


class Lenient:
    """A verifier with a hole: any integer is right that equals the answer modulo ``modulus``."""

    def __init__(self, family: object, modulus: int = 1) -> None:
        self._modulus = modulus

    @property
    def digest(self) -> str:
        """Name and config: the source of a bed is no contract."""
        return f"lenient/{self._modulus}"

    def verify(self, task: Task, episode: Episode, transcript: tuple[Message, ...]) -> Verdict:
        """Correct, or wrong."""
        answer = final_answer(episode, transcript)
        near = answer.value is not None and (
            (answer.value - int(task.data["answer"])) % self._modulus == 0
        )
        status = VerdictStatus.CORRECT if near else VerdictStatus.WRONG
        evidence = canonical_json({"answer": answer.text[:20]})
        return Verdict(status, 1.0 if near else 0.0, evidence)


class PaidByToken:
    """Beside the outcome every sampled token pays ``price``: a reward that follows length."""

    price = 0.01

    @property
    def version(self) -> str:
        """Name and price."""
        return f"paid-by-token/{self.price}"

    def rewards(self, verdict: Verdict, episode: Episode) -> tuple[Reward, ...]:
        """The components ``task`` and ``tokens``."""
        if episode.faulted or not verdict.scored:
            return ()
        paid = self.price * episode.costs.sampled_tokens
        return (Reward("task", 1.0 if verdict.success else 0.0), Reward("tokens", paid))


class PaidMore(PaidByToken):
    """Three times that."""

    price = 0.03


class PaidWhereHard(PaidByToken):
    """A twentieth for every token on tasks of three operations: it talks on where it is lost."""

    price = 0.05

    def rewards(self, verdict: Verdict, episode: Episode) -> tuple[Reward, ...]:
        """The component ``task``, and ``tokens`` on hard tasks."""
        hard = episode.stratum == "operations 3"
        return tuple(r for r in super().rewards(verdict, episode) if hard or r.component == "task")


class PaidMost(PaidByToken):
    """Ten times that."""

    price = 0.1


def _sharpened(weight: float) -> Surrogate:
    """A policy gradient with ``weight`` of an entropy bonus whose sign is wrong.

    ``grad H = -E[log p grad log p]``, so what is unlikely is made unlikelier.
    """

    def loss(log_ratio: Tensor, current: Tensor, advantage: Tensor) -> Tensor:
        return -(log_ratio.exp() * advantage) - weight * current.detach() * current

    return Surrogate(SurrogateRule("update"), loss, idle=False)


SHARP, SHARPER, SHARPEST = _sharpened(2.0), _sharpened(5.0), _sharpened(20.0)


def _full_context(price: float) -> Callable[[Batch], Tensor]:
    """A potential that falls by ``price`` for every token of the context, observations included."""

    def potential(batch: Batch) -> Tensor:
        place = torch.arange(len(batch.ids)) - batch.offsets[batch.token_row]
        return -price * place.double()

    return potential


context_price = _full_context(0.02)


def _by_place(factor: float) -> Estimator:
    """Success less its group's mean, discounted by the tokens that follow in the context.

    What stands between a decision and the end is the tools' as much as the policy's.
    """

    def estimate(asked: Question) -> Estimate:
        batch, steps = asked.batch, asked.clock
        group = group_mean(steps.scores(), steps.lengths > 0, batch.episode_group)
        pulled = less(steps, reward_to_go(steps, gamma=1.0), group)
        behind = batch.offsets[1:][batch.token_row[steps.first]] - steps.first
        advantage = pulled * factor ** behind.double()
        return Estimate(advantage, advantage)

    return Estimator(EstimatorRule(group=2, episode=False), estimate)


BY_PLACE, BY_PLACE_MORE = _by_place(0.998), _by_place(0.98)


# -- a bug of the engine ------------------------------------------------------------------


def noisy_engine(deviation: float) -> Patch:
    """The engine's log-probs are off by Gaussian noise of ``deviation`` nats."""

    @contextmanager
    def patched() -> Iterator[None]:
        whole, draw = LocalEngine.sample, np.random.default_rng(0)

        async def sample(self: LocalEngine, request: Request) -> Completion:
            done = await whole(self, request)
            noise = draw.normal(0.0, deviation, len(done.ids))
            told = np.minimum(done.logprobs + noise, 0.0).astype(np.float32)
            return replace(done, logprobs=told)

        with _replaced(LocalEngine, "sample", sample):
            yield

    return patched


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    whole = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, whole)


# -- the table ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One way to run the bed. ``symptom`` is what is injected, ``None`` for a healthy run."""

    symptom: str | None
    strength: str
    overrides: tuple[str, ...] = ()
    patch: Patch = nullcontext
    before: tuple[str, ...] = ()
    """Overrides of a run that comes first, and whose policy this one starts from."""

    @property
    def name(self) -> str:
        """For a folder."""
        return f"{self.symptom or 'healthy'}-{self.strength}".replace(" ", "-")


def _options(**options: Any) -> tuple[str, ...]:
    return tuple(f"task.train.options.{name}={value}" for name, value in options.items())


_WIDE = ("task.limits={turns: 8, turn_tokens: 64, context_tokens: 512}",)
_LONGEST = "task.limits={turns: 14, turn_tokens: 24, context_tokens: 512}"
_PPO = (
    "method=ppo",
    "data={groups: 36, group_size: 1}",
    "critic={minibatches: 2, pretrain: 2, optimizer: {lr: 3e-3}}",
    "credit={lambda_policy: 0.97, lambda_critic: 1.0}",
)
_FRESH = ("method=areal", "timing.max_lag=4", "update.minibatches=2")
_LATE = (*_FRESH, "timing.max_lag=1", "update.optimizer.lr=4e-4")
_SLOW = "task.latency={{kind: pareto, mean: {}, alpha: 1.2, cap: 15.0}}"


def _placed(estimator: str) -> tuple[str, ...]:
    return (f"credit={{estimator: 'injections:{estimator}', clock: token}}",)


def _wrong_sign(surrogate: str) -> tuple[str, ...]:
    return (
        "policy.sampling.temperature=1.3",
        f"update.surrogate=injections:{surrogate}",
        "update.clip_low=null",
        "update.clip_high=null",
        "update.optimizer.schedule=constant",
    )


def _rare(share: float) -> tuple[str, ...]:
    """Three operations in ``share`` of the tasks, each token worth a token, little learned."""
    tasks = f"task.train.options.operations={{1: {1.0 - share:g}, 3: {share:g}}}"
    return (*_WIDE, tasks, "action.denominator=token", "update.optimizer.lr=1e-4")


def _hole(modulus: int) -> tuple[str, ...]:
    return ("feedback.verifier=injections:Lenient", f"feedback.options={{modulus: {modulus}}}")


def _rising(peak: float) -> tuple[str, ...]:
    """A warm-up as long as the run, to a rate that the policy does not bear: stable, then not."""
    rate = f"{{lr: {peak}, schedule: constant, warmup_steps: 128, clip_norm: 1.0}}"
    return ("update.epochs=2", f"update.optimizer={rate}")


_VERBOSE = (
    *_WIDE,
    "task.train.options.operations={1: 0.5, 3: 0.5}",
    "feedback.mapping=injections:PaidWhereHard",
)

INJECTIONS: tuple[Case, ...] = (
    Case("verifier-hole", "last digit", _hole(10)),
    Case("verifier-hole", "parity", _hole(2)),
    Case("verifier-hole", "any integer", _hole(1)),
    Case("no-contrast", "temperature .1", ("policy.sampling.temperature=0.1",)),
    Case("no-contrast", "long sums", (_LONGEST, *_options(operations="{6: 1}"))),
    Case("no-contrast", "three digits", _options(low=100, high=999)),
    Case("drift", "warm-up to 4.5e-3", _rising(4.5e-3)),
    Case("drift", "warm-up to 6e-3", _rising(6e-3)),
    Case("drift", "warm-up to 8e-3", _rising(8e-3)),
    Case("stale", "tail .1", (*_LATE, _SLOW.format(0.1))),
    Case("stale", "tail .3", (*_LATE, _SLOW.format(0.3))),
    Case("stale", "tail 1", (*_LATE, _SLOW.format(1.0))),
    Case("length-weight", "1 task in 10", _rare(0.1), before=_VERBOSE),
    Case("length-weight", "1 task in 7", _rare(0.14), before=_VERBOSE),
    Case("length-weight", "1 task in 5", _rare(0.2), before=_VERBOSE),
    Case("observations-count", "discount of .998 a place", _placed("BY_PLACE")),
    Case("observations-count", "discount of .98 a place", _placed("BY_PLACE_MORE")),
    Case("observations-count", "potential", (*_PPO, "credit.shaping=injections:context_price")),
    Case(
        "early-end",
        "3 turns",
        ("task.limits.turns=3", *_options(operations="{1: 0.2, 2: 0.2, 3: 0.6}")),
    ),
    Case(
        "early-end",
        "2 turns and a critic",
        (*_PPO, "task.limits.turns=2", *_options(operations="{2: 0.5, 3: 0.5}")),
    ),
    Case("early-end", "turns cost 1", ("feedback.costs={turn: 1.0}",)),
    Case("entropy-collapse", "bonus of -2", _wrong_sign("SHARP")),
    Case("entropy-collapse", "bonus of -5", _wrong_sign("SHARPER")),
    Case("entropy-collapse", "bonus of -20", _wrong_sign("SHARPEST")),
    Case("length-drift", ".01 a token", (*_WIDE, "feedback.mapping=injections:PaidByToken")),
    Case("length-drift", ".03 a token", (*_WIDE, "feedback.mapping=injections:PaidMore")),
    Case("length-drift", ".1 a token", (*_WIDE, "feedback.mapping=injections:PaidMost")),
    Case("engine-mismatch", "3e-4 nats", (), noisy_engine(3e-4)),
    Case("engine-mismatch", "3e-3 nats", (), noisy_engine(3e-3)),
    Case("engine-mismatch", "3e-2 nats", (), noisy_engine(3e-2)),
)
"""Every way to make a symptom, the weakest first."""

_METHODS: dict[str, tuple[str, ...]] = {
    "grpo": (),
    "rloo": ("method=rloo",),
    "dr_grpo": ("method=dr_grpo", "action.length=64"),
    "dapo": ("method=dapo", "feedback.overlong={limit: 120, cache: 60}"),
    "gspo": ("method=gspo",),
    "cispo": ("method=cispo",),
    "reinforce": ("method=reinforce", "action.length=64"),
    "reinforce_pp": ("method=reinforce_pp",),
    "ppo": _PPO,
    "areal": _FRESH,
}
_RATES = ("4e-4", "8e-4")
_OLD_RATES = {"areal": ("2e-4", "4e-4")}
"""A method that trains on older experience bears half of what the others do."""
HEALTHY: tuple[Case, ...] = tuple(
    Case(None, f"{method} lr {rate}", (*overrides, f"update.optimizer.lr={rate}"))
    for method, overrides in _METHODS.items()
    for rate in _OLD_RATES.get(method, _RATES)
)
"""Recipes as a user should write them."""
