"""A sign to change direction reaches whoever watches the run, while it runs."""

from short_run import write_recipe

from hexad.advice.triggers import Sign, Trigger
from hexad.contract.events import TriggerFired
from hexad.evidence import triggers
from hexad.evidence.watcher import Blind
from hexad.recipe.load import load
from hexad.run import train

ALWAYS = Trigger("always", "what", "then", "source", (Sign("step", "above", -1.0, 2),))
SHORT = ["budget.episodes=36", "run.evaluation.every=null", "run.checkpoints.every=null"]


class Recorder(Blind):
    def __init__(self):
        self.seen = []

    def __call__(self, event):
        if isinstance(event, TriggerFired):
            self.seen.append(event)


def test_a_run_tells_its_watcher_when_a_sign_appears(tmp_path, monkeypatch):
    monkeypatch.setattr(triggers, "concerning", lambda recipe: (ALWAYS,))
    watcher = Recorder()
    train(load(write_recipe(tmp_path), SHORT), tmp_path / "run", watcher=watcher)
    assert [(event.version, event.key, event.then) for event in watcher.seen] == [
        (1, "always", "then")
    ]
