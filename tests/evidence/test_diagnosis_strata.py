"""Since when a probe holds, and credit and endings by stratum, by hand."""

from dataclasses import replace

import pytest
import torch

from builders import episode, segment
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.episode import Costs
from hexad.contract.store import Store
from hexad.evidence import traces
from hexad.evidence.diagnosis import strata
from hexad.evidence.diagnosis.began import began
from hexad.evidence.diagnosis.findings import SYMPTOMS
from hexad.learner.assemble import assemble
from hexad.learner.report import Trace
from hexad.recipe.load import load


def store_of(folder, steps):
    store = Store(folder / "episodes")
    for step in range(steps):
        made = [episode(n, episode_id=f"v{step}-{n}", seed=step) for n in range(2)]
        store.append(step, made)
    return store


@pytest.mark.parametrize("first", [0, 1, 7, 11])
def test_a_probe_of_the_newest_episodes_is_dated_by_bisection(tmp_path, monkeypatch, first):
    monkeypatch.setattr("hexad.evidence.diagnosis.began.LEAST", 2)
    store, asked = store_of(tmp_path, 12), []

    def holds(episodes):
        asked.append(episodes[0].seed)
        assert len(episodes) == 2
        return episodes[0].seed >= first

    assert began(store, 11, holds) == first
    assert len(asked) <= 4, "bisected, not scanned"


def test_a_probe_reads_on_where_a_step_holds_few(tmp_path):
    seen = []
    began(store_of(tmp_path, 3), 2, lambda episodes: seen.append(len(episodes)) or True)
    assert seen == [2, 4], "from the middle step on, then from the first; the newest holds anyway"


def test_advantages_by_turn_and_task_by_hand(tmp_path):
    """Five actions: three in turn 0, two in turn 1 (builders.segment)."""
    one, two = episode(0, stratum="easy"), episode(1, stratum="hard")
    batch = assemble([one, two])
    advantage = torch.where(batch.action, batch.turn.double() + 1.0, torch.nan)
    advantage[batch.token_episode == 1] *= -2.0
    traces.write(tmp_path, 3, batch, Trace(advantage, advantage), None)
    found = strata.advantages(traces.batch(tmp_path, 3), [one, two])
    assert set(found) == {"turn 0", "turn 1", "easy", "hard"}
    assert found["turn 0"] == {"mean": pytest.approx(-0.5), "std": pytest.approx(1.5), "count": 6}
    assert found["easy"]["mean"] == pytest.approx((3 * 1 + 2 * 2) / 5)
    assert found["hard"]["mean"] == pytest.approx(-2 * 7 / 5) and found["hard"]["count"] == 5
    assert strata.newest(tmp_path, range(3)) is None and strata.newest(tmp_path, range(9)) == 3
    assert strata.bootstrap(traces.batch(tmp_path, 3), [one, two]) == {}, "nobody has a critic"


def test_the_value_behind_a_cut_stands_beside_that_of_an_end(tmp_path):
    ended = episode(0)
    cut = episode(1, ending=Ending.of(EndingKind.TRUNCATED_TURNS))
    batch = assemble([ended, cut])
    nothing = torch.full((len(batch.ids),), torch.nan, dtype=torch.float64)
    value = torch.where(batch.token_episode == 1, 0.75, 0.25).double()
    traces.write(tmp_path, 0, batch, Trace(nothing, nothing), value)
    found = strata.bootstrap(traces.batch(tmp_path, 0), [ended, cut])
    assert found["cut"] == {"mean": pytest.approx(0.75), "std": 0.0, "count": 1}
    assert found["ended"]["mean"] == pytest.approx(0.25)


def test_endings_by_horizon_by_hand():
    short = [episode(n, costs=Costs(turns=1)) for n in range(3)]
    long = [replace(episode(3), costs=Costs(turns=4), segments=(segment(),))]
    long.append(replace(long[0], ending=Ending.of(EndingKind.TRUNCATED_TURNS), verdict=None))
    found = strata.horizons([*short, *long])
    assert found["1"] == {"episodes": 3, "cut": 0.0, "success": 1.0}
    assert found["4"] == {"episodes": 2, "cut": 0.5, "success": 1.0}


@pytest.mark.parametrize(
    ("method", "said", "unsaid"),
    [
        ("kto", "update.preference.beta", ("target_kl", "critic.updates")),
        ("grpo", "update.target_kl", ("update.preference", "critic.updates")),
        ("ppo", "critic.updates", ("update.preference",)),
    ],
)
def test_what_to_try_is_about_the_recipe_at_hand(tmp_path, method, said, unsaid):
    (tmp_path / "r.yaml").write_text(f"method: {method}\nbudget: {{train_tokens: 64}}\n")
    told = " ".join(SYMPTOMS["drift"].to_try(load(tmp_path / "r.yaml")))
    assert said in told and not any(word in told for word in unsaid)
