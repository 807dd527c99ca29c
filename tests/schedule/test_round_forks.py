"""A round that forks: which attempt, what its forks say of themselves, which pairs they make."""

import json
from dataclasses import replace

import pytest
from test_pair_sources import DPO, names, run
from walker import Walker

from builders import episode, verdict
from hexad.contract.admission import Needs, admit
from hexad.contract.digest import digest
from hexad.contract.episode import Prefix
from hexad.contract.events import EpisodeDone, EpisodeRefused
from hexad.contract.faults import EngineFault, FaultRateExceeded, UserError
from hexad.contract.store import Store
from hexad.environments.tools import Effect
from hexad.evidence.ledger import Ledger
from hexad.policy.scripted import Reply
from hexad.recipe.axes import LimitsSpec, Recipe
from hexad.schedule.branches import chosen
from hexad.schedule.pairs import RoundSource
from toyworld import ToyEnvironment, ToyFamily, say, toy_world

MAIN = {0: "pqr", 1: "."}
"""What the two attempts at a task say, a letter a turn: wrong at the limit of three, and right."""
ENDS = {"1-0": ".", "1-1": "xx", "2-0": ".", "2-1": "y"}
"""What the forks say from their own turn on, by turn and member."""


def script(ends):
    def reply(request):
        past = (len(request.ids) - 3) // 5  # prompt and header, then a letter, its stop, ok, header
        name, member = request.key.task, request.key.member
        if not name.startswith("fork-"):
            return say(MAIN[member][past])
        turn = int(name.rsplit("-", 1)[1])
        text = ends[f"{turn}-{member}"]
        return Reply(fault=EngineFault("gone")) if text is None else say(text[past - turn])

    return reply


def recipe(most=1, rule="branch", fault_limit=0.2, **rounds):
    rounds = {"tasks": 2, "passes": 2, "forks": 2, **rounds}
    data = {"regime": "iterative", "groups": 2, "group_size": 2, "fault_limit": fault_limit}
    pairs = {"rule": rule, "gap": 0.5, "most": most}
    return Recipe.model_validate({**DPO, "data": {**data, "rounds": rounds, "pairs": pairs}})


def world(ends=ENDS, kind=Walker, **changes):
    limits = LimitsSpec(turns=3, turn_tokens=4, context_tokens=64)
    return toy_world(script(ends), kind=kind, limits=limits, **changes)


def source(folder, plan, events=None, where=None):
    folder.mkdir(exist_ok=True)
    sink = (lambda event: None) if events is None else events
    made = RoundSource(where or world(), plan, folder, sink)
    made.publish(None, 0, digest(0))
    return made


def test_the_first_wrong_attempt_is_forked_where_another_is_right_else_the_first():
    right, wrong, unscored = (verdict(name) for name in ("correct", "wrong", "verifier_error"))

    def of(*verdicts):
        made = chosen([episode(n, verdict=each) for n, each in enumerate(verdicts)])
        return None if made is None else made.member

    assert of(right, right, wrong, wrong) == 2
    assert of(right, right) == of(wrong, wrong) == 0
    assert of(unscored, wrong) == 1 and of(unscored) is None


def test_forks_repeat_a_beginning_and_pay_for_their_own_end(tmp_path):
    (batch,) = run(source(tmp_path, recipe()), tmp_path, 1)
    forks = {e.episode_id: e for e in batch.sampled if e.prefix is not None}
    assert len(batch.sampled) == 2 * (2 + 4)
    assert sorted(n.removeprefix("fork-v0-0-0-") for n in forks if "v0-0-" in n) == list(ENDS)
    one, parent = forks["fork-v0-0-0-1-1"], batch.sampled[0]
    assert one.prefix == Prefix("v0-0-0", "v0-0", 1)
    assert (one.group_id, one.member, one.tree) == ("fork-v0-0-0-1", 1, "v0-0")
    assert (one.seed, one.initial_state) == (parent.seed, parent.initial_state)
    assert one.states[:2] == parent.states[:2] and len(one.states) == 3
    # "p", its stop, then "x", "x" and two stops of its own; one "ok" each turn but the last
    assert (one.action_count, one.own_count, one.costs.sampled_tokens) == (6, 4, 4)
    assert (one.costs.turns, one.costs.lost_tokens) == (2, 0)
    (row,), (theirs,) = one.segments, parent.segments
    assert row.ids[:8].tolist() == theirs.ids[:8].tolist()
    assert row.weight[row.action].tolist() == [0.0] * 2 + [1.0] * 4
    assert row.logprob[row.action].tolist() == [-1.0] * 6
    assert all(admit(e, Needs(reward=True)) == [] for e in batch.sampled)
    assert not forks["fork-v0-0-0-1-1"].verdict.success
    assert forks["fork-v0-0-0-1-0"].verdict.success


def test_pairs_branch_behind_the_first_turn_by_design(tmp_path):
    found = []
    batches = run(source(tmp_path, recipe(most=2)), tmp_path, 2)
    sides = [episode for batch in batches for episode in batch.episodes]
    for chosen_, rejected in zip(sides[::2], sides[1::2], strict=True):
        rows = [side.segments[0] for side in (chosen_, rejected)]
        weighed = [row.weight[row.action].tolist() for row in rows]
        found.append(((chosen_.episode_id, rejected.episode_id), weighed))
    by_task = sorted(each for each in found if "v0-0-" in each[0][1])
    assert by_task == [
        (("fork-v0-0-0-1-0", "fork-v0-0-0-1-1"), [[0, 0, 1, 1], [0, 0, 1, 1, 1, 1]]),
        (("fork-v0-0-0-2-0", "v0-0-0"), [[0] * 4 + [1, 1], [0] * 4 + [1, 1]]),
    ]
    (row,) = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert row["branches"] == {"1": 2, "2": 2} and row["first_turn"] == 0
    assert row["forks"] == {"played": 8, "correct": 4} and row["tasks"] == 2


def test_the_books_hold_what_the_engine_sampled(tmp_path):
    ledger, where = Ledger(tmp_path), world()
    made = source(tmp_path, recipe(), ledger, where)
    (batch,) = run(made, tmp_path, 1)
    for each, reason in batch.dropped:
        ledger(EpisodeRefused(0, each.episode_id, (reason,), each.own_count))
    ledger.books.balance()
    assert ledger.books.generated == where.engine.stats.sampled_tokens > 0
    assert sum(ledger.books.pending.values()) == sum(e.own_count for e in batch.episodes)
    assert ledger.used["episodes"] == ledger.funnel.started == len(batch.sampled)
    assert ledger.funnel.tasks == 2


@pytest.mark.parametrize("stop", [1, 2])
def test_a_resumed_round_makes_the_same_pairs_of_what_it_stored(tmp_path, stop):
    plan = recipe(most=2)
    whole = [names(b) for b in run(source(tmp_path / "a", plan), tmp_path / "a", 4)]
    made = source(tmp_path / "b", plan)
    run(made, tmp_path / "b", stop)
    assert len(Store(tmp_path / "b" / "episodes").read()) == 12
    events = []
    again = source(tmp_path / "b", plan, events.append)
    again.restore(json.loads(json.dumps(made.state())))
    rest = run(again, tmp_path / "b", 4 - stop, first=stop)
    assert [names(b) for b in rest] == whole[stop:] and events == []


def test_a_fork_that_faults_is_dropped_and_not_tried_again(tmp_path):
    events, lost = [], {**ENDS, "2-0": None}
    made = source(tmp_path, recipe(fault_limit=0.3), events.append, world(lost))
    (batch,) = run(made, tmp_path, 1)
    out = [(e.episode_id, why) for e, why in batch.dropped if e.faulted]
    assert out == [(f"fork-v0-{task}-0-2-0", "faulted") for task in (0, 1)]
    done = [e.episode for e in events if isinstance(e, EpisodeDone) and e.episode.faulted]
    assert [(e.attempt, e.costs.sampled_tokens) for e in done] == [(0, 0)] * 2
    with pytest.raises(FaultRateExceeded, match="2 of 8 episodes faulted"):
        run(source(tmp_path, recipe(), None, world(lost)), tmp_path, 1)


class Keeper(ToyFamily):
    """Its tool does what stays."""

    @property
    def effects(self):
        return {"look": Effect.EXTERNAL}


def test_only_environments_that_fork_are_forked(tmp_path):
    with pytest.raises(UserError, match="a ToyEnvironment cannot fork") as caught:
        source(tmp_path, recipe(), None, world(kind=ToyEnvironment))
    assert caught.value.where == "data.rounds.forks" and "remove it" in caught.value.fix
    with pytest.raises(UserError, match="no fork undoes what look did"):
        source(tmp_path, recipe(), None, replace(world(), family=Keeper(Walker)))
    source(tmp_path, recipe(forks=None), None, world(kind=ToyEnvironment))
