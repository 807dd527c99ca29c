"""Train the calculator agent through the library, top to bottom: imitate, then reinforce.

Run it with ``python examples/train_loop.py`` (minutes on one core), or see it move in seconds
with ``--quick``. The loop that ``hexad train`` runs (``hexad/loop.py``) does the same steps
with admission reports, books, checkpoints and ranks around them.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import torch

from hexad.contract.admission import Needs, admit, admit_group
from hexad.contract.episode import Episode
from hexad.contract.task import Split
from hexad.environments.protocol import TaskFamily
from hexad.environments.registry import family
from hexad.evidence.intervals import wilson
from hexad.feedback.judge import Feedback
from hexad.feedback.mapping import mapping
from hexad.feedback.registry import evaluation_verifier, verifier
from hexad.learner.assemble import assemble
from hexad.learner.assign import Assigner
from hexad.learner.learner import Learner
from hexad.policy.load import load_policy
from hexad.policy.local import LocalEngine
from hexad.recipe.axes import Recipe
from hexad.recipe.load import resolve
from hexad.recipe.read import Document
from hexad.rollout.collect import collect
from hexad.rollout.demonstrate import record
from hexad.rollout.plan import plan_tasks
from hexad.rollout.world import PolicyIdentity, World

SEED = 0

# --- 1. Two recipes. Each fills its axes from the preset of its method; here we write out the rest.

SFT = {
    "method": "sft",
    "data": {"groups": 32},
    "update": {"optimizer": {"lr": 4e-3, "warmup_steps": 10, "clip_norm": 1.0}},
    "budget": {"episodes": 140 * 32},
}
GRPO = {
    "method": "grpo",
    "data": {"groups": 32, "group_size": 8},
    "update": {"minibatches": 2, "optimizer": {"lr": 6e-4, "clip_norm": 0.5}},
    "budget": {"episodes": 60 * 256},
}


def recipe_of(tree: dict[str, object]) -> Recipe:
    """The typed recipe: unknown keys, wrong types and impossible combinations are refused."""
    return resolve(Document(Path(__file__), tree, {}))


# --- 2. The world: a policy, an engine bound to its weights, an environment and a verifier.


class Agent:
    """The parts that both phases share."""

    def __init__(self) -> None:
        self.policy = load_policy("builtin:tiny", seed=SEED)
        # The engine reads the learner's own tensors: no copy, no mismatch. A lease makes sure that
        # the learner never steps while a request is open.
        self.engine = LocalEngine(self.policy, rows=256)
        # Short expressions and long ones: what is never shown starts at exactly zero.
        shown = {"operations": {1: 0.25, 2: 0.3, 3: 0.45}}
        self.school = self.world(family("calculator", {}, {"train": shown}))
        self.field = self.world(family("calculator"))
        # Evaluation has a verifier of its own, which recomputes the answer from the expression.
        independent = Feedback(evaluation_verifier(self.field.family), mapping("binary"))
        self.exam = self.world(self.field.family, independent)
        self.lineage: dict[int, str] = {}

    def world(self, tasks: TaskFamily, feedback: Feedback | None = None) -> World:
        """Everything that an episode meets."""
        policy = self.policy
        return World(
            engine=self.engine,
            chat=policy.chat(tasks.tools),
            family=tasks,
            policy=PolicyIdentity(
                policy.tokenizer_digest, policy.template_digest, policy.precision
            ),
            stop_ids=policy.stop_ids,
            lineage=lambda version: self.lineage[version],
            feedback=feedback or Feedback(verifier(None, tasks), mapping("binary")),
        )

    def publish(self, learner: Learner) -> None:
        """The engine loads what the learner holds: cached prefixes retire, the version moves."""
        self.lineage[learner.version] = learner.lineage
        asyncio.run(self.engine.publish(None, learner.version))


# --- 3. One step. This is the whole of training: facts, scores, credit, update.


def admitted(episodes: list[Episode], needs: Needs) -> list[Episode]:
    """Episodes that may be trained on. Admission judges and never repairs."""
    kept = [episode for episode in episodes if not admit(episode, needs)]
    if violations := admit_group(kept, needs):
        raise SystemExit(f"the batch does not fit together: {violations}")
    return kept


def step(learner: Learner, episodes: list[Episode], progress: float) -> dict[str, float]:
    """Turn admitted episodes into optimiser steps; ``progress`` is the used share of the budget."""
    batch = assemble(episodes)  # facts: tokens packed flat, groups by their carried ids
    scores = learner.score(batch)  # what the learner says of them before its first step
    credit = Assigner(learner.recipe)(batch, scores)  # an advantage for every action token
    return dict(learner.update(batch, scores, credit, progress).scalars)


# --- 4. Imitate the expert.


def imitate(agent: Agent, batches: int) -> None:
    """Supervised learning of the protocol from demonstrations, in part."""
    recipe = recipe_of(SFT)
    learner = Learner(agent.policy, recipe, lease=agent.engine.lease())
    agent.publish(learner)
    size = recipe.data.groups
    for number in range(batches):
        tasks = agent.school.family.tasks(Split.TRAIN, size, offset=number * size)
        plans = plan_tasks(
            tasks, 1, prefix=f"expert-{number}-", seed=SEED, environment="calculator"
        )
        episodes = admitted(record(plans, agent.school), Needs.for_sft())
        numbers = step(learner, episodes, number / batches)
        if number % 20 == 0:
            print(f"imitate {number:4d}   loss {numbers['loss']:.3f}", flush=True)
    agent.publish(learner)


# --- 5. Reinforce what succeeds.


def reinforce(agent: Agent, batches: int) -> None:
    """Group-relative policy optimisation on the policy's own episodes."""
    recipe = recipe_of(GRPO)
    # A new learner counts versions from 0: its own lineage starts here.
    learner = Learner(agent.policy, recipe, lease=agent.engine.lease())
    agent.publish(learner)
    groups, size = recipe.data.groups, recipe.data.group_size
    for number in range(batches):
        tasks = agent.field.family.tasks(Split.TRAIN, groups, offset=number * groups)
        plans = plan_tasks(tasks, size, prefix=f"v{number}-", seed=SEED, environment="calculator")
        episodes = collect(plans, agent.field)
        needs = Needs(max_lag=0, learner_version=learner.version, lineage=agent.lineage)
        numbers = step(learner, admitted(episodes, needs), number / batches)
        agent.publish(learner)
        success = sum(e.verdict is not None and e.verdict.success for e in episodes)
        print(
            f"reinforce {number:3d}   success {success / len(episodes):.3f}   "
            f"gradient norm {numbers['grad_norm']:.3f}",
            flush=True,
        )


# --- 6. Ask an independent verifier, on tasks that nothing was tuned on.


def examine(agent: Agent, count: int) -> str:
    """Closed-loop success on hidden tasks at the training temperature, with a Wilson interval."""
    tasks = agent.exam.family.tasks(Split.HIDDEN, count)
    plans = plan_tasks(tasks, 1, prefix="hidden-", seed=SEED, environment="calculator")
    episodes = [episode for episode in collect(plans, agent.exam) if episode.scored]
    correct = sum(e.verdict is not None and e.verdict.success for e in episodes)
    interval = wilson(correct, len(episodes))
    if interval is None:
        return "nothing was scored"
    return f"{correct / len(episodes):.1%} [{interval[0]:.1%}, {interval[1]:.1%}]"


def main() -> None:
    """Imitate, examine, reinforce, examine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few batches of each phase")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    agent = Agent()
    imitate(agent, 3 if quick else 140)
    print("hidden success after imitation:", examine(agent, 20 if quick else 400))
    reinforce(agent, 2 if quick else 60)
    print("hidden success after reinforcement:", examine(agent, 20 if quick else 400))


if __name__ == "__main__":
    main()
