"""Pairs of small episodes for a tiny float64 policy."""

from dataclasses import replace

import numpy as np
import torch
from learner_world import assign, episode, random_segment, tiny

from hexad.learner.assemble import assemble
from hexad.learner.preference import PreferenceLearner
from hexad.recipe.axes import Recipe

NUMBERS = {
    "dpo": {"beta": 0.1, "reduction": "sum"},
    "ipo": {"beta": 0.1, "reduction": "mean"},
    "simpo": {"beta": 2.0, "reduction": "mean", "gamma": 1.0},
    "kto": {"beta": 0.1, "reduction": "sum"},
}
NEUTRAL = {"dpo": float(np.log(2)), "ipo": 25.0, "kto": 0.5}


def settings(name="dpo", **sections):
    numbers = {**NUMBERS[name], **sections.pop("preference", {})}
    update = {
        "surrogate": name,
        "preference": numbers,
        "optimizer": {"lr": 1e-2, "schedule": "constant"},
    }
    base = {
        "feedback": {"source": "preferences"},
        "action": {"denominator": "episode" if name == "kto" else "pair"},
        "credit": {"estimator": "none"},
        "update": {**update, **sections.pop("update", {})},
    }
    return Recipe.model_validate({**base, **sections})


def side(pair, member, segments):
    made = episode(f"p{pair}-{member}", segments, group=f"p{pair}")
    return replace(made, member=member)


def pairs(count=3, seed=0, longest=6):
    """Sides of different lengths and turns; some episodes have two segments."""
    rng = np.random.default_rng(seed)
    made = []
    for pair in range(count):
        prompt = rng.integers(0, 32, 3)
        for member in (0, 1):
            rows = [
                random_segment(rng, turns=1 + int(rng.integers(0, 3)), longest=longest)
                for _ in range(1 + (pair == 1 and member == 0))
            ]
            rows[0] = replace(rows[0], ids=np.concatenate([prompt, rows[0].ids[3:]]))
            made.append(side(pair, member, rows))
    return made


def singles(count=4, seed=0):
    """What KTO reads: one context each."""
    rng = np.random.default_rng(seed)
    return [side(number, number % 2, [random_segment(rng)]) for number in range(count)]


def data(name, **options):
    return singles(**options) if name == "kto" else pairs(**options)


def train(episodes, recipe, batches=1, ranks=None, change=None, policy=None):
    """The learner after ``batches`` updates, and the last report."""
    learner = PreferenceLearner(policy or tiny(), recipe, ranks)
    for _ in range(batches):
        batch = assemble(episodes)
        if change is not None:
            batch = change(batch)
        scores = learner.score(batch)
        report = learner.update(batch, scores, assign(batch, recipe), 0.0)
    return learner, report


def weights(learner):
    return torch.cat([p.detach().reshape(-1) for p in learner.root.parameters()])
