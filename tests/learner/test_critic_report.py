import pytest
import torch
from learner_world import episode, recipe, segment, tiny

from hexad.contract.ending import EndingKind
from hexad.evidence.critic import CriticBooks, explained_variance
from hexad.learner.assemble import assemble
from hexad.learner.assign import Assigner
from hexad.learner.critic import Critic
from hexad.learner.critic_report import judge
from hexad.recipe.axes import Recipe


def steps_of(batch):
    made = recipe(credit={"estimator": "gae", "lambda_policy": 1.0, "lambda_critic": 1.0})
    return Assigner(made)._clock(batch, None)


def worked():
    """R = (1, 0, 1, 1), V = (.8, .3, .6, .9): explained variance .6533 (algorithms.md 1.5)."""
    rows = [segment([1, 2, 3], [0, 1, 0]) for _ in range(4)]
    rewards = (1.0, 0.0, 1.0, 1.0)
    batch = assemble([episode(f"e{i}", [row], reward=rewards[i]) for i, row in enumerate(rows)])
    value = torch.full((len(batch.ids),), torch.nan)
    value[batch.offsets[:-1]] = torch.tensor([0.8, 0.3, 0.6, 0.9])
    return batch, value


def test_explained_variance_is_the_worked_number():
    batch, value = worked()
    event = judge(batch, steps_of(batch), value, gamma=1.0, counts=(3, 6, 0))
    assert explained_variance(event.slices["all"]) == pytest.approx(0.653333, abs=1e-6)
    assert event.slices["all"].error.mean == pytest.approx((0.8 + 0.3 + 0.6 + 0.9 - 3) / 4)
    assert (event.batches, event.steps, event.behind) == (3, 6, 0)


def test_without_variance_of_the_return_it_is_undefined():
    batch = assemble([episode("a", [segment([1, 2, 3], [0, 1, 1])], reward=1.0)])
    event = judge(batch, steps_of(batch), torch.rand(3), gamma=1.0, counts=(0, 0, 0))
    assert explained_variance(event.slices["all"]) is None
    books = CriticBooks()
    books.add(event)
    assert books.row()["slices"]["all"]["explained_variance"] is None
    assert "critic/explained_variance" not in books.metrics()


def test_slices_are_by_horizon_ending_version_and_value():
    row = segment([9, 1, 2, 3, 4, 5], [0, 1, 1, 1, 1, 1], version=7)
    batch = assemble([episode("a", [row], reward=1.0)])
    value = torch.tensor([0.05, 0.25, 0.25, 0.95, 0.95, 0.0])
    event = judge(batch, steps_of(batch), value, gamma=0.5, counts=(0, 0, 0))
    counts = {name: part.realised.count for name, part in event.slices.items()}
    assert counts == {
        "all": 5, "first": 1, "horizon 4-7": 2, "horizon 2-3": 2, "horizon 1": 1,
        "value 0.0": 1, "value 0.2": 2, "value 0.9": 2, "ending terminal": 5, "version 7": 5,
    }  # fmt: skip
    assert event.slices["first"].realised.mean == pytest.approx(0.5**4)
    assert event.slices["horizon 1"].error.mean == pytest.approx(0.95 - 1.0)


def test_truncated_episodes_have_no_realised_return_but_a_value_at_the_cut():
    cut = episode(
        "a", [segment([9, 1, 2], [0, 1, 0])], reward=0.0, ending=EndingKind.TRUNCATED_TURNS
    )
    whole = episode("b", [segment([9, 1], [0, 1])], reward=1.0)
    batch = assemble([cut, whole])
    value = torch.tensor([0.1, 0.2, 0.7, 0.4, 0.5])
    event = judge(batch, steps_of(batch), value, gamma=1.0, counts=(0, 0, 0))
    assert event.slices["all"].realised.count == 1
    assert (event.bootstrapped, event.missing) == (1, 0)
    assert event.cut.mean == pytest.approx(0.7)


def test_books_add_up_and_survive_a_resume():
    batch, value = worked()
    event = judge(batch, steps_of(batch), value, gamma=1.0, counts=(3, 6, 1))
    books = CriticBooks()
    books.add(event)
    books = CriticBooks.restored(books.state())
    books.add(event)
    row = books.row()
    assert row["slices"]["all"]["n"] == 8
    assert row["slices"]["all"]["explained_variance"] == pytest.approx(0.653333, abs=1e-6)
    assert row["value_at_cut"] is None
    assert books.metrics()["critic/behind"] == 1
    assert list(row["slices"])[:2] == ["all", "first"]


def test_a_critic_that_cannot_learn_is_seen_in_its_report():
    """A learning rate of nothing: many steps, one value, and no variance explained."""
    reports = {}
    for rate in (1e-30, 1e-2):
        settings = recipe(credit={"estimator": "gae", "lambda_policy": 1.0, "lambda_critic": 1.0})
        spec = {"updates": 40, "optimizer": {"lr": rate, "schedule": "constant"}}
        settings = Recipe.model_validate({**settings.model_dump(), "critic": spec})
        critic, assigner = Critic(tiny(), settings), Assigner(settings)
        rows = [segment([i, 2, 3], [0, 1, 1]) for i in range(8)]
        batch = assemble([episode(f"e{i}", [rows[i]], reward=float(i % 2)) for i in range(8)])
        wanted, steps = assigner.wanted(batch), steps_of(batch)
        held = critic.score(batch, wanted).value
        target = torch.full((len(batch.ids),), torch.nan, dtype=torch.float64)
        target[steps.first] = batch.score[steps.episode]
        critic.update(batch, held.roll(1), target, 0.0)
        value, counts = critic.score(batch, wanted).value, (critic.batches, critic.steps, 0)
        reports[rate] = judge(batch, steps, value, gamma=1.0, counts=counts)
    broken, sound = reports[1e-30], reports[1e-2]
    assert broken.steps == sound.steps == 40
    assert explained_variance(broken.slices["all"]) == pytest.approx(0.0)
    assert broken.slices["all"].value.std < 1e-20
    assert explained_variance(sound.slices["all"]) > 0.9
