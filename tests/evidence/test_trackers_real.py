"""TensorBoard and Weights & Biases (offline) themselves, over a kill and a resume."""

import json
import time
from pathlib import Path

import pytest
import wandb_file
from made_run import stage
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from test_tracker_sessions import killed

from hexad.contract.events import Published, Timed
from hexad.contract.faults import UserError
from hexad.evidence import journal
from hexad.evidence.folder import claim
from hexad.evidence.ledger import Ledger
from hexad.evidence.trackers import watch
from hexad.evidence.trackers.tracker import numbers
from hexad.evidence.trackers.watch import Trackers, require
from hexad.recipe.load import load

RECIPE = load(Path(__file__).parents[2] / "recipes" / "calculator-grpo.yaml")


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    for name in ("WANDB_API_KEY", "WANDB_PROJECT", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("HOME", str(tmp_path))


def begin(folder, names, said):
    trackers = Trackers(names, folder, said.append)
    trackers.stage("calculator", RECIPE, Ledger(folder))
    trackers(Timed(0, "rollout", 0.1))
    return trackers


def rows(folder):
    """What the logs hold, by step and by the names that a tracker shows."""
    found = {}
    for row in journal.rows(folder / journal.METRICS):
        found.setdefault(row["step"], {}).update(numbers(row))
    for row in journal.rows(folder / journal.EVALUATIONS):
        found.setdefault(row["step"], {}).update(numbers(row, f"{row['split']}/"))
    for row in found.values():
        row.pop("step", None)
        for split in ("selection", "hidden"):
            row.pop(f"{split}/step", None)
    return found


@pytest.fixture(scope="module")
def tracked(tmp_path_factory):
    """A run of ten batches, killed after them, rewound to eight and trained to the end."""
    from plain_episode import build

    folder, said = tmp_path_factory.mktemp("tracked") / "run", []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        claim(folder, RECIPE, resume=False)
        names = ("tensorboard", "wandb", "tensorboard")
        trackers = begin(folder, names, said)
        stage(folder, build, batches=10, start=0.4, end=0.6)
        trackers.close()
        for each in trackers._begun:
            each.wait(time.monotonic() + 60)
        before = rows(folder)
        killed(folder, 8)
        trackers = begin(folder, names, said)
        again = folder.parent / "again"
        stage(again, build, batches=12, start=0.4, end=0.9)
        for name in (journal.METRICS, journal.LEDGER, journal.EVALUATIONS):
            late = [row for row in journal.rows(again / name) if row["step"] >= 8]
            for row in late:
                journal.append(folder / name, row)
        trackers(Published(12, "weights"))
        done = trackers.finish()
    return folder, before, said, {each["tracker"]: each for each in done}


def test_tensorboard_shows_the_rows_of_the_run_folder(tracked):
    folder, _, said, done = tracked
    shown = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    found = {}
    for tag in shown.Tags()["scalars"]:
        steps = [event.step for event in shown.Scalars(tag)]
        assert steps == sorted(set(steps)), f"{tag} was told twice"
        for event in shown.Scalars(tag):
            found.setdefault(event.step, {})[tag] = event.value
    expected = rows(folder)
    assert sorted(found) == sorted(expected) == list(range(13))
    for step, row in expected.items():
        assert {k: found[step][k] for k in row} == pytest.approx(row, rel=1e-6)
    assert found[12]["hidden/budget/episodes"] == expected[11]["budget/episodes"]
    assert found[12]["summary/funnel/updates"] == 24
    text = shown.Tensors("recipe")[-1].tensor_proto
    assert json.loads(text.string_val[0].decode().strip("`\n"))["method"] == "grpo"
    assert done["tensorboard"]["rewound"] == [] and done["tensorboard"]["missed"] == 0
    assert f"tensorboard: run tensorboard, {done['tensorboard']['rows']} rows told" in said


def test_wandb_continues_one_run_and_says_what_stays(tracked):
    folder, before, said, done = tracked
    first, second = wandb_file.sessions(folder)
    assert first["id"] == second["id"] == done["wandb"]["known"]["id"]
    assert first["name"] == "run" and first["config"]["method"] == "grpo"
    assert first["config"]["budget"] == second["config"]["budget"]
    assert first["steps"] == list(range(11)) and second["steps"] == [10, 11, 12]
    for step, row in before.items():
        assert row.items() <= first["history"][step].items()
    late = rows(folder)
    assert late[11].items() <= second["history"][11].items()
    assert second["summary"]["summary/funnel/updates"] == 24
    assert done["wandb"]["rewound"] == [[8, 9]]
    assert any("wandb" in line and "batches 8 to 9 and their" in line for line in said)


def test_nothing_but_numbers_and_the_recipe_leaves(tracked):
    folder, *_ = tracked
    for session in folder.glob("wandb/offline-run-*"):
        assert not [path for path in (session / "files").rglob("*") if path.is_file()]
    for session in wandb_file.sessions(folder):
        for row in session["history"].values():
            assert all(isinstance(value, int | float) for value in row.values())


def test_who_cannot_be_used_is_named_before_training(monkeypatch):
    require(["tensorboard", "wandb"])
    monkeypatch.delenv("WANDB_MODE")
    with pytest.raises(UserError, match="no API key") as caught:
        require(["wandb"])
    assert "WANDB_MODE=offline" in caught.value.fix
    with pytest.raises(UserError, match="no such tracker") as caught:
        require(["tensorbord"])
    assert "did you mean tensorboard" in caught.value.fix

    def missing(name):
        raise watch.PackageNotFoundError(name)

    monkeypatch.setattr(watch, "distribution", missing)
    with pytest.raises(UserError, match="trackio is not installed") as caught:
        require(["trackio"])
    assert caught.value.fix == "pip install 'hexad[trackio]'"
