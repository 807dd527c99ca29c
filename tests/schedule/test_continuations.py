"""Values of states from continuations: their numbers, their books, and what is refused."""

import pytest
from walker import Walker

from hexad.contract.events import EpisodeDone
from hexad.contract.faults import EngineFault, UserError
from hexad.learner.assemble import assemble
from hexad.learner.assign import Assigner
from hexad.learner.batch import Scores
from hexad.policy.scripted import Reply
from hexad.recipe.axes import DataSpec, LimitsSpec, Recipe
from hexad.recipe.credit_axis import CreditSpec
from hexad.schedule.synchronous import SynchronousSource
from toyworld import ToyEnvironment, say, toy_world


class Liar(Walker):
    """Its forks are in another state than it was."""

    def fork(self, snapshot):
        made = super().fork(snapshot)
        made.lie = "!"
        return made


SAID = {"0-0": ".", "0-1": "xxx", "1-0": ".", "1-1": "a.", "2-0": ".", "2-1": None}
"""What the continuations say, by turn and member; ``None``: the engine fails."""


def script(said, main="ab."):
    """``main`` is what episodes say, a letter a turn."""

    def reply(request):
        past = (len(request.ids) - 3) // 5  # prompt and header, then a letter, its stop, ok, header
        name = request.key.task
        if not name.startswith("fork-v0-0"):
            return say(main[past])
        turn = int(name.rsplit("-", 1)[1])
        text = said[f"{turn}-{request.key.member}"]
        return Reply(fault=EngineFault("gone")) if text is None else say(text[past - turn])

    return reply


def source(events, kind=Walker, said=SAID, groups=1, **credit):
    spec = {"estimator": "vine", "clock": "turn", "gamma": 0.5, "continuations": 2}
    recipe = Recipe(
        data=DataSpec(groups=groups, group_size=1),
        credit=CreditSpec(**{**spec, "truncation": "score", **credit}),
    )
    limits = LimitsSpec(turns=3, turn_tokens=4, context_tokens=64)
    world = toy_world(script(said), kind=kind, limits=limits)
    made = SynchronousSource(world, recipe, events.append)
    made.publish(None, 0, "digest-0")
    return made, recipe


def test_a_state_is_worth_what_its_continuations_were_still_paid():
    """gamma .5: (1 + 0) / 2, (1 + .25 + .5) / 2, and 1: the hop of turn 0 is in no later value."""
    made, recipe = source([])
    found = made.next(0)
    assert found.values == {"v0-0-0": (0.5, 0.875, 1.0)}
    batch = assemble(found.episodes)
    credit = Assigner(recipe)(batch, Scores(), values=found.values)
    expected = [0.25 + 0.5 * 0.875 - 0.5, 0.5 - 0.875, 0.0]
    assert credit.advantage[batch.action][::2].tolist() == pytest.approx(expected)


def test_continuations_are_auxiliary_and_pay_only_for_themselves():
    events = []
    made, _ = source(events)
    made.next(0)
    done = [e for e in events if isinstance(e, EpisodeDone) and e.purpose == "continuation"]
    assert len(done) == 6
    costs = {e.episode.episode_id.removeprefix("fork-v0-0-0-"): e.episode.costs for e in done}
    kept = {n: (c.sampled_tokens, c.observation_tokens, c.tool_calls) for n, c in costs.items()}
    assert kept["0-0"] == (2, 0, 0)
    assert kept["1-1"] == (4, 3, 1)
    assert kept["2-0"] == (2, 0, 0) and costs["2-0"].turns == 1
    assert kept["2-1"] == (0, 0, 0)
    assert sum(e.purpose == "train" for e in events if isinstance(e, EpisodeDone)) == 1


def test_an_episode_with_a_state_that_nobody_could_continue_is_dropped():
    lost = {**SAID, "2-0": None}
    made, _ = source([], said=lost, groups=2)  # the other task's continuations all say what it did
    found = made.next(0)
    assert [e.episode_id for e in found.episodes] == ["v0-1-0"]
    assert [(e.episode_id, why) for e, why in found.dropped] == [("v0-0-0", "no_continuation")]
    assert len(found.sampled) == 2
    alone, _ = source([], said=lost)
    with pytest.raises(UserError, match="without any usable continuation"):
        alone.next(0)


def test_what_is_left_out_of_the_loss_is_not_continued():
    events = []
    made, _ = source(events, truncation="mask")
    made._world.engine._script = script(SAID, main="xxx")
    found = made.next(0)
    assert found.values == {} and len(found.episodes) == 1
    assert [e.purpose for e in events if isinstance(e, EpisodeDone)] == ["train"]


def test_no_fork_undoes_what_lasts():
    """A walk that a reset does not undo is in no state of its past any more."""

    class Lasting(Walker):
        @property
        def repeatable(self):
            return len(self.said) < 2

    made, _ = source([], kind=Lasting)
    with pytest.raises(UserError, match="did what a reset does not undo"):
        made.next(0)


def test_an_environment_must_fork_and_fork_truly():
    with pytest.raises(UserError, match="cannot fork") as caught:
        source([], kind=ToyEnvironment)
    assert caught.value.where == "credit.estimator" and "gae" in caught.value.fix
    made, _ = source([], kind=Liar)
    with pytest.raises(UserError, match="another state"):
        made.next(0)
