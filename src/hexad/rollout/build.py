"""From a resolved recipe to a policy and a world to play in, in the trainer and in its workers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch

from hexad.contract.faults import UserError
from hexad.contract.task import Split
from hexad.environments.guard import opened
from hexad.environments.protocol import TaskFamily
from hexad.environments.registry import Origin
from hexad.feedback.judge import Feedback
from hexad.feedback.mapping import mapping
from hexad.feedback.overlong import Overlong
from hexad.feedback.protocol import RewardMapping
from hexad.feedback.registry import evaluation_verifier, verifier
from hexad.policy.engine import Engine
from hexad.policy.load import load_policy
from hexad.policy.policy import Policy
from hexad.recipe.axes import Recipe
from hexad.rollout.charged import prices_of, terms_of
from hexad.rollout.disturb import disturbed, flaky
from hexad.rollout.guarded import acts, guard_of, require_safe
from hexad.rollout.world import Patience, PolicyIdentity, World


@dataclass(slots=True)
class Lineage:
    """The run's own history: policy version -> digest of the weights it stood for."""

    digests: dict[int, str]

    def __init__(self) -> None:
        self.digests = {}

    def of(self, version: int) -> str:
        """The digest of ``version``; ``KeyError`` for one that this run never published."""
        return self.digests[version]

    def state(self) -> dict[str, Any]:
        """As JSON: keys are text."""
        return {str(version): digest for version, digest in self.digests.items()}

    def restore(self, state: dict[str, Any]) -> None:
        """Versions after the checkpoint no longer exist."""
        self.digests.clear()
        self.digests.update({int(version): digest for version, digest in state.items()})


def policy_of(recipe: Recipe) -> Policy:
    """The policy that the recipe starts with. Raises ``UserError`` for weights not finite."""
    dtype = getattr(torch, recipe.system.dtype)
    spec = recipe.policy
    policy = load_policy(spec.model, seed=recipe.run.seed, dtype=dtype, adapter=spec.adapter)
    for name, weights in policy.model.state_dict().items():
        if weights.is_floating_point() and not bool(weights.isfinite().all()):
            raise UserError(
                f"the weights {name} of {recipe.policy.model} hold NaN or infinity",
                where="policy.model",
                fix="use another model, or a checkpoint from before the training diverged",
            )
    policy.model.to(recipe.system.device)
    return policy


def world_of(
    recipe: Recipe,
    policy: Policy,
    engine: Engine,
    lineage: Callable[[int], str],
    held: ExitStack,
) -> World:
    """The world of training episodes; ``held`` gets what must be released.

    Raises ``UserError`` where a run of ``recipe`` may not play what its family offers.
    """
    tasks = held.enter_context(opened(_origin(recipe).make()))
    if acts(recipe):
        require_safe(recipe, tasks)
    if recipe.task.limits.context_tokens > policy.max_context:
        raise UserError(
            f"contexts of {recipe.task.limits.context_tokens} tokens do not fit "
            f"{policy.name}, which has {policy.max_context} positions",
            where="task.limits.context_tokens",
            fix=f"lower it to at most {policy.max_context}",
        )
    feedback = _training(recipe, tasks, held) if _verified(recipe) else None
    chat = policy.chat(tasks.tools)
    identity = PolicyIdentity(
        policy.tokenizer_digest, policy.template_digest, policy.precision, policy.adapter
    )
    return World(
        engine=engine,
        chat=chat,
        family=disturbed(tasks, recipe.task),
        policy=identity,
        stop_ids=policy.stop_ids,
        lineage=lineage,
        feedback=feedback,
        sampling=policy.behaviour(recipe.policy.sampling.build(), chat),
        limits=recipe.task.limits,
        retries=recipe.data.retries,
        patience=Patience(recipe.task.limits.reset_seconds, recipe.task.limits.step_seconds),
        guard=guard_of(recipe, tasks),
        prices=prices_of(recipe),
    )


def independent(world: World, recipe: Recipe, held: ExitStack) -> World:
    """The world of an evaluation: a verifier object that training never sees.

    Whoever evaluates first asks :func:`hexad.rollout.guarded.require_safe`.
    """
    return replace(world, feedback=_evaluation(recipe, world.family, held))


def family_of(recipe: Recipe, held: ExitStack) -> TaskFamily:
    """The recipe's family, undisturbed; ``held`` gets what must be released."""
    return held.enter_context(opened(_origin(recipe).make()))


def judges(recipe: Recipe, held: ExitStack) -> dict[str, Feedback]:
    """The feedback of ``training`` (where a verifier gives it) and of ``evaluation``.

    ``held`` gets what must be released.
    """
    tasks = family_of(recipe, held)
    found = {"evaluation": _evaluation(recipe, tasks, held)}
    if _verified(recipe):
        return {"training": _training(recipe, tasks, held)} | found
    return found


def _verified(recipe: Recipe) -> bool:
    """Whether a verifier judges what is trained on: a round's preferences are its word, too."""
    return recipe.feedback.source == "verifier" or recipe.data.regime == "iterative"


def _training(recipe: Recipe, tasks: TaskFamily, held: ExitStack) -> Feedback:
    spec = recipe.feedback
    judge = verifier(spec.verifier, tasks, _origin(recipe), spec.options)
    terms = terms_of(recipe, tasks)
    feedback = Feedback(flaky(judge, recipe.task), _mapping(recipe), spec.timeout, terms)
    held.callback(feedback.close)
    return feedback


def _evaluation(recipe: Recipe, tasks: TaskFamily, held: ExitStack) -> Feedback:
    spec = recipe.feedback
    judge = evaluation_verifier(tasks, spec.verifier, _origin(recipe), spec.options)
    feedback = Feedback(flaky(judge, recipe.task), mapping(spec.mapping), spec.timeout)
    held.callback(feedback.close)
    return feedback


def _origin(recipe: Recipe) -> Origin:
    task = recipe.task
    options = {str(split): getattr(task, str(split)).options for split in Split}
    return Origin(task.environment, task.options, options, recipe.system.tool_workers)


def _mapping(recipe: Recipe) -> RewardMapping:
    """What training makes of a verdict; an evaluation never charges for length."""
    made, overlong = mapping(recipe.feedback.mapping), recipe.feedback.overlong
    return made if overlong is None else Overlong(made, overlong.limit, overlong.cache)
