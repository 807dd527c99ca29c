"""Nothing irreversible is executed, by whichever command a policy or an expert would play."""

import json

import pytest
from tiny import hexad

from defaults_family import LOG
from hexad.contract.faults import UserError
from hexad.contract.task import Split
from hexad.run import evaluate

RECIPE = """
name: mail
method: {method}
task:
  environment: defaults_family:{family}
  limits: {{turns: 2, turn_tokens: 8, context_tokens: 320}}
  selection: {{count: 2}}
policy: {{model: "builtin:tiny"}}
data: {{groups: 2, {data}}}
budget: {{episodes: 4}}
feedback: {{verifier: "answer"}}
run: {{evaluation: {evaluation}, checkpoints: {{every: null}}}}
system: {{threads: 1}}
"""
NOTHING = "{every: null, final: none}"
GUARDED = "task.guard={forbidden: [{tool: send}]}"
SFT = {"method": "sft", "data": "origin: data_set, demonstrations: {path: %s, format: jsonl}"}
DPO = {
    "method": "dpo",
    "data": "regime: fixed, origin: data_set, rounds: null, pairs: null, "
    "preferences: {path: %s, format: jsonl}",
}
CALL = {
    "role": "assistant",
    "tool_calls": [{"function": {"name": "send", "arguments": {"text": "x"}}}],
}


@pytest.fixture
def sent(tmp_path, monkeypatch):
    """Whether anything was sent: the tool leaves a line in a file."""
    log = tmp_path / "sent"
    monkeypatch.setenv(LOG, str(log))
    return lambda: log.exists()


def written(tmp_path, form, *, family="Mail", evaluation=NOTHING):
    rows = [
        {"prompt": f"/f{i}", "completion": [CALL], "chosen": f"{i}", "rejected": "no"}
        for i in range(4)
    ]
    keys = ("prompt", "completion") if form is SFT else ("prompt", "chosen", "rejected")
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({k: r[k] for k in keys}) + "\n" for r in rows))
    told = {"family": family, "evaluation": evaluation, "method": form["method"]}
    recipe = tmp_path / "mail.yaml"
    recipe.write_text(RECIPE.format(**told, data=form["data"].replace("%s", str(path))))
    return recipe


def train(tmp_path, recipe, *words):
    code, text = hexad("train", str(recipe), "--run", str(tmp_path / "run"), *words)
    return code, " ".join(text.split())


@pytest.mark.parametrize("form", [SFT, DPO], ids=["sft", "dpo"])
@pytest.mark.parametrize("evaluation", ["{every: 1, tasks: 2, final: none}", "{every: null}"])
def test_fixed_data_with_an_evaluation_is_refused(tmp_path, sent, form, evaluation):
    code, text = train(tmp_path, written(tmp_path, form, evaluation=evaluation))
    assert code == 2 and "'send' irreversible" in text and not sent()
    assert "run.evaluation: {every: null, final: none}" in text


def test_fixed_data_without_one_trains_and_is_evaluated_by_no_command(tmp_path, sent):
    recipe = written(tmp_path, SFT)
    code, text = train(tmp_path, recipe)
    assert code == 0, text
    for command in (("evaluate", "--split", "selection"), ("gate", str(tmp_path / "gate.yaml"))):
        (tmp_path / "gate.yaml").write_text("success: 0.0\ntasks: 2\n")
        code, text = hexad(command[0], str(tmp_path / "run"), *command[1:])
        assert code == 2 and "irreversible" in text, text
    with pytest.raises(UserError, match="irreversible"):
        evaluate(tmp_path / "run", Split.SELECTION, tasks=2)
    assert not sent()


def test_an_experts_demonstrations_are_played_too(tmp_path, sent):
    recipe = written(tmp_path, {"method": "sft", "data": "size: 2"})
    code, text = train(tmp_path, recipe)
    assert code == 2 and "irreversible" in text and not sent()


def test_a_stage_with_a_gate_is_refused_before_it_trains(tmp_path, sent):
    recipe = written(tmp_path, SFT)
    path = tmp_path / "path.yaml"
    stage = f"{{name: a, recipe: {recipe.name}, gate: {{split: gate, success: 0.0}}}}"
    path.write_text(f"name: path\nstages: [{stage}]\n")
    code, text = train(tmp_path, path)
    assert code == 2 and "irreversible" in text and not sent()
    assert not (tmp_path / "run" / "a" / "checkpoints").exists()


def test_a_sandbox_and_a_guard_let_an_evaluation_play(tmp_path, sent):
    """Data that nobody samples has no violation to gate."""
    recipe = written(
        tmp_path, SFT, family="ContainedMail", evaluation="{every: 1, tasks: 2, final: none}"
    )
    code, text = train(tmp_path, recipe)
    assert code == 2 and "task.guard that forbids 'send'" in text and "hard gate" not in text
    code, text = train(tmp_path, recipe, GUARDED)
    assert code == 0, text
    assert not sent()


def test_what_is_sampled_still_needs_a_gate(tmp_path, sent):
    recipe = written(tmp_path, {"method": "grpo", "data": "group_size: 2"}, family="ContainedMail")
    code, text = train(tmp_path, recipe, GUARDED)
    assert code == 2 and "a hard gate" in text and not sent()
