import pytest
import torch
from learner_world import assign, parameters, random_episodes, recipe, tiny

from hexad.learner.assemble import assemble
from hexad.learner.learner import Learner
from hexad.learner.registry import Registry

SETTINGS = recipe(update={"minibatches": 3, "epochs": 2, "optimizer": {"warmup_steps": 9}})


def run(learner, batches):
    reports = []
    for number in batches:
        batch = assemble(random_episodes(number))
        credit = assign(batch, SETTINGS)
        reports.append(learner.update(batch, learner.score(batch), credit, number / 10))
    return reports


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_resume_is_bit_exactly_the_run_that_was_never_interrupted(dtype):
    straight = Learner(tiny(dtype=dtype), SETTINGS)
    expected = run(straight, range(4))
    first = Learner(tiny(dtype=dtype), SETTINGS)
    run(first, range(2))
    saved = first.state()
    run(first, [9])
    resumed = Learner(tiny(seed=5, dtype=dtype), SETTINGS)
    resumed.restore(saved)
    found = run(resumed, range(2, 4))
    assert torch.equal(parameters(straight), parameters(resumed))
    assert (
        (straight.version, straight.lineage)
        == (resumed.version, resumed.lineage)
        == (
            4,
            straight.policy.lineage(),
        )
    )
    assert straight.steps == resumed.steps == 24
    assert found == expected[2:]


def test_the_state_is_flat_tensors_and_json():
    learner = Learner(tiny(), SETTINGS)
    run(learner, [0])
    state = learner.state()
    assert all(isinstance(v, (torch.Tensor, int, str)) for v in state.values())
    names = {name for name, _ in learner.policy.model.named_parameters()}
    assert {k.split("/", 1)[1] for k in state if "/" in k} == names
    assert {k.split("/", 1)[0] for k in state if "/" in k} == {
        "parameter",
        "step",
        "exp_avg",
        "exp_avg_sq",
    }


def test_two_runs_with_one_seed_are_equal():
    one, two = (Learner(tiny(dtype=torch.float32), SETTINGS) for _ in range(2))
    assert run(one, range(2)) == run(two, range(2))
    assert one.lineage == two.lineage


def test_restoring_takes_the_writers_lease():
    taken = []

    class Lease:
        def writer(self):
            taken.append(True)
            return torch.no_grad()

    learner = Learner(tiny(), SETTINGS, lease=Lease())
    learner.restore(learner.state())
    assert taken == [True]


def test_the_state_survives_the_disk(tmp_path):
    registry, learner = Registry(), Learner(tiny(dtype=torch.bfloat16), SETTINGS)
    registry.register("learner", learner)
    run(learner, range(2))
    registry.save(tmp_path / "state")
    run(learner, [2])
    after = learner.lineage
    registry.load(tmp_path / "state")
    assert learner.version == 2 and learner.lineage != after
    run(learner, [2])
    assert learner.lineage == after
