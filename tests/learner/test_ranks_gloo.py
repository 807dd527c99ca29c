"""Two real processes over gloo, against one."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import preference_world
import pytest
import torch
from learner_world import random_episodes, recipe, tiny

from hexad.learner.assemble import assemble
from hexad.learner.assign import Assigner
from hexad.learner.critic import Critic
from hexad.learner.learner import Learner
from hexad.learner.ranks import Gloo, Single
from hexad.recipe.axes import Recipe


def critical(trunk):
    """GAE with a critic that has seen nothing yet."""
    made = recipe(
        action={"denominator": "token"},
        credit={"estimator": "gae", "lambda_policy": 0.9, "lambda_critic": 1.0},
        update={"minibatches": 2},
        system={"micro_batch_tokens": 60},
    )
    return Recipe.model_validate({**made.model_dump(), "critic": {"trunk": trunk}})


SETTINGS = {
    "clip": recipe(
        action={"denominator": "prompt", "inner": "token"},
        update={"minibatches": 2, "epochs": 2, "target_kl": 10.0},
        system={"micro_batch_tokens": 60},
    ),
    "single step": recipe(),
    "episode ratio, kl, entropy": recipe(
        action={"ratio": "episode", "combine": "mean", "denominator": "episode"},
        update={
            "minibatches": 2,
            "kl": {"estimator": "k3", "placement": "loss", "coefficient": 0.1},
            "entropy": 0.1,
            "positive_nll": 0.1,
            "ess": {"base": 1.0},
        },
        system={"micro_batch_tokens": 60},
    ),
    "snapshots, buckets": recipe(
        update={"minibatches": 2, "epochs": 2, "old": "snapshot", "sampled": "snapshot"},
        timing={"mode": "asynchronous", "max_lag": 4},
        system={"micro_batch_tokens": 60},
    ),
    **{f"critic, {trunk}": critical(trunk) for trunk in ("own", "shared")},
    "nll": recipe(
        action={"denominator": "token"}, update={"surrogate": "nll"}, credit={"estimator": "none"}
    ),
    "dpo": preference_world.settings(preference={"nll": 0.5}, system={"micro_batch_tokens": 60}),
    "kto": preference_world.settings("kto", system={"micro_batch_tokens": 60}),
}


def prefer(ranks, name):
    learner, report = preference_world.train(preference_world.data(name), SETTINGS[name], 2, ranks)
    learner.trained = [learner.root]
    return learner, report


def train(ranks, name):
    settings = SETTINGS[name]
    if settings.update.preference is not None:
        return prefer(ranks, name)
    learner, assigner = Learner(tiny(), settings, ranks), Assigner(settings)
    critic = learner.shared
    if settings.critic is not None and critic is None:
        critic = Critic(tiny(), settings, ranks)
    for number in range(2):
        batch = assemble(random_episodes(number))
        scores = learner.score(batch)
        if critic is not None:
            scores = replace(scores, value=critic.score(batch, assigner.wanted(batch)))
        credit = assigner(batch, scores)
        if isinstance(critic, Critic):
            critic.update(batch, scores.value.value.roll(1), credit.target, 0.0)
        report = learner.update(batch, scores, credit, 0.0)
    learner.trained = [learner.root, *([critic.net] if critic is not None else [])]
    return learner, report


def snapshots(learner):
    """Digests of the weights that are kept, in order of their versions."""
    kept = learner.roles.snapshots if isinstance(learner, Learner) else None
    return [] if kept is None else [kept.digests[version] for version in sorted(kept.digests)]


def facts(learner, report):
    return {
        "scalars": dict(report.scalars),
        "snapshots": snapshots(learner),
        "counts": [report.train_tokens, report.loss_tokens, report.forward_tokens],
        "tallies": {k: [t.count, t.sum, t.low, t.high] for k, t in report.tallies.items()},
        "parameters": torch.cat(
            [p.detach().reshape(-1) for net in learner.trained for p in net.parameters()]
        ).tolist(),
    }


def main(rank, size, folder):
    torch.set_num_threads(1)
    ranks = Gloo(rank, size, f"file://{folder}/meet", timeout=120.0)
    found = {name: facts(*train(ranks, name)) for name in SETTINGS}
    data = bytes(range(rank + 1)) * 3
    cell = torch.tensor([rank + 0.5], dtype=torch.float64)
    ranks.sum_([cell])
    found["wire"] = {
        "gather": [list(part) for part in ranks.gather(data)],
        "empty": [list(part) for part in ranks.gather(b"")],
        "broadcast": list(ranks.broadcast_bytes(b"zero" if rank == 0 else None)),
        "nothing": list(ranks.broadcast_bytes(b"" if rank == 0 else None)),
        "float": ranks.broadcast_float(0.1 + rank),
        "sum": float(cell),
    }
    ranks.barrier()
    ranks.close()
    Path(folder, f"{rank}.json").write_text(json.dumps(found))


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gloo")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__]
    started = [
        subprocess.Popen([*command, str(rank), "2", str(folder)], env=environment)
        for rank in range(2)
    ]
    assert [process.wait(timeout=200) for process in started] == [0, 0]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("name", list(SETTINGS))
def test_two_ranks_make_the_step_of_one(pair, name):
    learner, report = train(Single(), name)
    alone = facts(learner, report)
    for rank in pair:
        found = rank[name]
        assert np.allclose(found["parameters"], alone["parameters"], rtol=0, atol=1e-9)
        assert found["scalars"] == pytest.approx(alone["scalars"], abs=1e-9)
        assert found["counts"] == alone["counts"]
        assert found["tallies"].keys() == alone["tallies"].keys()
        for key, values in found["tallies"].items():
            assert values == pytest.approx(alone["tallies"][key], abs=1e-9), key
    assert pair[0][name] == pair[1][name]


def test_every_rank_keeps_the_weights_of_old_versions_and_sums_the_buckets(pair):
    found = [rank["snapshots, buckets"] for rank in pair]
    assert len(found[0]["snapshots"]) == 2 and found[0]["snapshots"] == found[1]["snapshots"]
    for rank in found:  # the last batch was sampled by version 0 and trained on at version 1
        lags = {name for name in rank["tallies"] if name.startswith("bucket/lag_")}
        assert {"bucket/lag_1/log_ratio_direct", "bucket/lag_1/log_ratio_engine"} <= lags
        assert not any(name.startswith("bucket/lag_0") for name in lags)


def test_bytes_and_numbers_cross_exactly(pair):
    for rank in pair:
        assert rank["wire"] == {
            "gather": [[0, 0, 0], [0, 1, 0, 1, 0, 1]],
            "empty": [[], []],
            "broadcast": list(b"zero"),
            "nothing": [],
            "float": 0.1,
            "sum": 2.0,
        }


def test_one_process_is_its_own_group():
    ranks = Single()
    assert ranks.gather(b"x") == [b"x"] and ranks.broadcast_bytes(b"y") == b"y"
    with pytest.raises(ValueError, match="nothing to broadcast"):
        ranks.broadcast_bytes(None)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
