"""Lag limit 0 and one worker: the asynchronous run is the synchronous one, bit for bit."""

from dataclasses import replace

import pytest
import torch
from async_run import write_recipe

from hexad.contract.episode import Times
from hexad.contract.store import Store
from hexad.recipe.load import load
from hexad.run import compose

MODES = {
    "synchronous": [
        "timing.mode=synchronous",
        "timing.max_lag=null",
        "timing.workers=null",
    ],
    "asynchronous": ["timing.max_lag=0"],
}


def trained(tmp_path, mode):
    """Weights, optimiser steps and episodes after two batches."""
    run = tmp_path / mode
    run.mkdir()
    short = ["budget.episodes=8", "run.checkpoints.every=null", "name=equal"]
    recipe = load(write_recipe(tmp_path), [*MODES[mode], *short])
    with compose(recipe, run) as loop:
        loop.run(lambda: False)
        learner = loop.parts.learner
        weights = {name: tensor.clone() for name, tensor in learner.weights().items()}
        return weights, learner.steps, Store(run / "episodes").read()


@pytest.mark.timeout(900)
def test_lag_zero_with_one_worker_is_the_synchronous_run(tmp_path):
    ours, theirs = (trained(tmp_path, mode) for mode in MODES)
    keys = [sorted((e.task_id, e.member, e.seed) for e in made[2]) for made in (ours, theirs)]
    assert keys[0] == keys[1] and len(keys[0]) == 8
    for left, right in zip(ours[2], theirs[2], strict=True):
        assert replace(left, times=Times()) == replace(right, times=Times())
    assert ours[1] == theirs[1] == 2
    assert all(torch.equal(tensor, theirs[0][name]) for name, tensor in ours[0].items())
