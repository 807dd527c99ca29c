"""Ctrl-C in every phase: once ends the batch, twice ends at once, and nothing committed is lost."""

import os
import signal

import pytest
from tiny import train, weights

PHASES = {
    "rollout": "hexad.schedule.synchronous.collect",
    "update": "hexad.learner.learner.Learner.update",
    "evaluation": "hexad.run.evaluate_world",
}
EVALUATED = ("run.evaluation.every=1", "run.evaluation.tasks=2")


def press(monkeypatch, phase, times):
    """Ctrl-C ``times`` times when ``phase`` runs for the second time."""
    import importlib

    place, _, name = PHASES[phase].rpartition(".")
    module, _, inner = place.rpartition(".")
    owner = (
        getattr(importlib.import_module(module), inner)
        if inner == "Learner"
        else importlib.import_module(place)
    )
    real, calls = getattr(owner, name), []

    def pressed(*args, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, pressed)


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    run = tmp_path_factory.mktemp("evaluated") / "run"
    code, text = train(run, *EVALUATED)
    assert code == 0, text
    return run


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c(tmp_path, monkeypatch, evaluated, phase, times):
    run = tmp_path / "run"
    with monkeypatch.context() as patched:
        press(patched, phase, times)
        code, text = train(run, *EVALUATED)
    assert code == 130 and "--resume" in text and "Traceback" not in text
    assert ("whole batch" in text) == (times == 1) and ("at once" in text.split("Ctrl-C again")[-1])
    code, text = train(run, *EVALUATED, "--resume")
    assert code == 0 and weights(run) == weights(evaluated), text
    rows = (run / "metrics.jsonl").read_text().splitlines()
    assert len(rows) == 2
