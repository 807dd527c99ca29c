"""A sign to change direction reaches whoever watches the run, while it runs."""

from short_run import write_recipe

from hexad.advice.triggers import TRIGGERS, Sign, Trigger
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


EVALUATED = ["run.evaluation={every: 1, tasks: 4, final: none}", "run.checkpoints.every=null"]


def test_an_evaluation_is_looked_at_when_it_is_written(tmp_path, monkeypatch):
    hole = TRIGGERS["verifier-hole"]
    monkeypatch.setattr(triggers, "concerning", lambda recipe: (hole,))
    looked = []

    def rule(curves):
        looked.append((len(curves.rows), len(curves.selection)))
        return 1 if len(curves.selection) >= 3 else None

    monkeypatch.setattr(triggers, "RULES", {hole.key: rule})
    watcher = Recorder()
    made = load(write_recipe(tmp_path), ["budget.episodes=36", *EVALUATED])
    train(made, tmp_path / "run", watcher=watcher)
    assert [(event.version, event.key) for event in watcher.seen] == [(2, "verifier-hole")]
    assert looked[-2][1] == looked[-1][1] + 1 >= 3  # now, and one evaluation earlier


def test_a_run_tells_its_watcher_when_a_sign_appears(tmp_path, monkeypatch):
    monkeypatch.setattr(triggers, "concerning", lambda recipe: (ALWAYS,))
    watcher = Recorder()
    train(load(write_recipe(tmp_path), SHORT), tmp_path / "run", watcher=watcher)
    assert [(event.version, event.key, event.then) for event in watcher.seen] == [
        (1, "always", "then")
    ]
