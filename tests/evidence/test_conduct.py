"""What a study runs, repeats, resumes, chooses and leaves out; the runs themselves are made up."""

import pytest
from compare_world import ended, evaluated, made, outcomes, recipe_file

from hexad import run, study
from hexad.contract.faults import UserError
from hexad.evidence import journal
from hexad.evidence.compare import compare
from hexad.recipe.load import load
from hexad.recipe.study import plan

STUDY = """
name: made
recipe: made.yaml
arms:
  fast: {set: {update.optimizer.lr: 1e-3}}
budget: {episodes: 16}
seeds: [1, 2]
margin: 0.05
points: 2
"""
TUNED = STUDY + "tuning: {seed: 9, trials: [{update.minibatches: 1}, {update.minibatches: 2}]}\n"


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A study file beside its recipe; runs take no time and their words are kept in ``calls``."""
    recipe_file(tmp_path)
    world = World(tmp_path)
    monkeypatch.setattr(study, "apart", world.train)
    monkeypatch.setattr(run, "evaluate", world.evaluate)
    return world


class World:
    def __init__(self, folder):
        self.folder, self.calls, self.hidden, self.codes = folder, [], [], {}

    def train(self, words, *, quiet):
        *_, file, _, target = [w for w in words if w != "--resume"]
        recipe, path = load(file), self.folder.joinpath(target)
        name = path.relative_to(self.folder / "out").as_posix()
        self.calls.append(name + (" again" if "--resume" in words else ""))
        code = self.codes.pop(name, 0)
        if code != 1 and not path.exists():
            made(path, recipe, None)
        if code == 0:
            success = [1, 0] if recipe.update.minibatches == 1 else [1, 1]
            evaluated(path, "selection", 4, outcomes(*success))
            ended(path)
        elif code == 130:
            ended(path, "")
        return code, 2**20 * (1 + len(self.calls))

    def evaluate(self, folder, split, *, attempts):
        self.hidden.append(folder.name)
        found = outcomes(1, 1, 0, attempts=attempts)
        evaluated(folder, str(split), 4, found, attempts=attempts, temperature=1.0, verifier="v")

    def conduct(self, text=STUDY, interrupted=lambda: False):
        file = self.folder / "study.yaml"
        file.write_text(text)
        planned, folder = plan(file), self.folder / "out"
        self.changes = study.claim(planned, folder)
        told = []
        conduct = study.Conduct(planned, folder, told.append, True, interrupted)
        return planned, conduct()


def test_every_arm_meets_every_seed_once_and_hidden_once(world):
    planned, sides = world.conduct()
    assert world.calls == ["base-1", "fast-1", "base-2", "fast-2"]
    assert world.hidden == ["base-1", "fast-1", "base-2", "fast-2"]
    found = compare(sides, study.ask(planned, world.changes))
    assert found["hidden_uses"] == 4 and found["budget"] == {"key": "episodes", "size": 16}
    assert found["arms"][0]["peak_memory"] == 4 * 2**20 and found["arms"][1]["failed"] == 0
    states = {row["item"]: row["state"] for row in found["manifest"]}
    assert states["hardware"] == states["failed runs"] == "fixed"
    assert found["notes"] == ["fewer than 3 seeds, so no verdict: base, fast"]


def test_what_ended_is_not_repeated(world):
    world.conduct()
    world.calls.clear(), world.hidden.clear()
    world.conduct()
    assert world.calls == [] and world.hidden == []


def test_more_seeds_are_added_and_told(world):
    world.conduct()
    world.calls.clear()
    planned, sides = world.conduct(STUDY.replace("[1, 2]", "[1, 2, 3]"))
    assert world.calls == ["base-3", "fast-3"]
    notes = compare(sides, study.ask(planned, world.changes))["notes"]
    assert notes == ["changed after the study began: seeds.2"]


def test_an_interrupted_run_is_resumed_and_asks_nothing_of_hidden_before(world):
    world.codes = {"fast-1": 130}
    assert world.conduct()[1] is None
    assert world.calls == ["base-1", "fast-1"] and world.hidden == []
    world.calls.clear()
    assert world.conduct()[1] is not None
    assert world.calls == ["fast-1 again", "base-2", "fast-2"]


def test_a_request_to_stop_is_heard_between_runs(world):
    assert world.conduct(interrupted=lambda: len(world.calls) == 1)[1] is None
    assert world.calls == ["base-1"]


def test_a_failed_run_is_counted_left_out_and_tried_again(world):
    world.codes = {"fast-1": 1}
    planned, sides = world.conduct()
    assert [run.seed for run in sides[1].runs] == [2] and sides[1].failed == 1
    found = compare(sides, study.ask(planned, []))
    assert found["contrasts"][0]["seeds"] == [2]
    world.calls.clear()
    assert len(world.conduct()[1][1].runs) == 2 and world.calls == ["fast-1"]
    assert [row["code"] for row in journal.rows(world.folder / "out" / study.JOBS)][1] == 1


def test_a_users_mistake_in_a_run_stops_the_study(world):
    world.codes = {"base-1": 2}
    with pytest.raises(UserError, match="base-1 cannot be trained"):
        world.conduct()


def test_a_changed_arm_does_not_pass_for_the_one_that_was_run(world):
    world.conduct()
    with pytest.raises(UserError, match=r"has changed since fast-1 was run: update\.optimizer\.lr"):
        world.conduct(STUDY.replace("1e-3", "1e-2"))


def test_tuning_chooses_on_selection_and_never_sees_hidden(world):
    planned, sides = world.conduct(TUNED)
    trials = [f"tuning/{name}-{i}" for name in ("base", "fast") for i in (1, 2)]
    assert world.calls[:4] == trials and len(world.calls) == 8
    assert not any(name.startswith("tuning") for name in world.hidden)
    assert [side.chosen for side in sides] == [{"update.minibatches": 2}] * 2
    for job in ("base-1", "fast-2"):
        kept = load(world.folder / "out" / job / "recipe.yaml")
        assert kept.update.minibatches == 2 and kept.run.seed in (1, 2)
    found = compare(sides, study.ask(planned, []))
    assert [arm["trials"] for arm in found["arms"]] == [2, 2]
    assert found["arms"][1]["axes"] == {"update": ["update.optimizer.lr"]}


def test_of_equal_trials_that_ended_the_first_is_chosen(world):
    equal = TUNED.replace("1}, {", "1}, {update.epochs: 2, update.minibatches: 1}, {")
    world.codes = {"tuning/base-3": 1}
    assert world.conduct(equal)[1][0].chosen == {"update.minibatches": 1}


def test_a_run_apart_tells_its_code_and_its_memory(capfd):
    code, peak = study.apart(["python3", "-c", "print('x'); raise SystemExit(3)"], quiet=True)
    assert code == 3 and 2**20 < peak < 2**32 and capfd.readouterr().out == ""
    killed = "import os; os.kill(os.getpid(), 9)"
    assert study.apart(["python3", "-c", killed], quiet=True)[0] == -9
