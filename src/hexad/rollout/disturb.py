"""From a recipe's ``task.latency`` and ``task.chaos`` to a disturbed family and verifier."""

from __future__ import annotations

from hexad.contract.task import Split
from hexad.environments.chaos import Chaos
from hexad.environments.latency import Latency
from hexad.environments.protocol import TaskFamily
from hexad.environments.wrap import Disturbance, disturb
from hexad.feedback.flaky import FlakyVerifier
from hexad.feedback.protocol import Verifier
from hexad.recipe.axes import TaskSpec
from hexad.recipe.task_axis import ChaosSpec, LatencySpec


def disturbed(family: TaskFamily, task: TaskSpec) -> TaskFamily:
    """``family`` as the recipe disturbs it; the family itself where it does not."""
    found: list[Disturbance] = []
    if task.latency is not None:
        found.append(latency(task.latency))
    if task.chaos is not None:
        found.append(chaos(task.chaos))
    return disturb(family, found)


def flaky(verifier: Verifier, task: TaskSpec) -> Verifier:
    """``verifier``, failing as often as the recipe says."""
    spec = task.chaos
    if spec is None or spec.flaky_verifier == 0:
        return verifier
    return FlakyVerifier(verifier, spec.flaky_verifier, _splits(spec.splits))


def latency(spec: LatencySpec) -> Latency:
    """The distribution that ``spec`` describes."""
    fields = spec.model_dump(exclude={"splits"})
    return Latency(**fields, splits=_splits(spec.splits))


def chaos(spec: ChaosSpec) -> Chaos:
    """The failures that ``spec`` describes, those of the verifier apart."""
    slow = spec.slow_start
    return Chaos(
        crash=spec.crash,
        hang=spec.hang,
        junk=spec.junk,
        slow_start=0.0 if slow is None else slow.p,
        slow_seconds=0.0 if slow is None else slow.seconds,
        splits=_splits(spec.splits),
    )


def _splits(names: tuple[str, ...]) -> tuple[Split, ...]:
    return tuple(Split(name) for name in names)
