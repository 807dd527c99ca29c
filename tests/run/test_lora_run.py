"""A LoRA adapter in real runs: its checkpoints, a resume, an evaluation, a stage after it."""

import json
import shutil

import pytest
from safetensors.torch import load_file, save_file
from tiny import hexad, write_recipe

from hexad.policy import adapter as adapters
from hexad.policy.load import load_policy
from hexad.schedule import asynchronous

ADAPTER = ("policy.adapter={rank: 4, alpha: 8}", "update.optimizer.lr=1e-2")
FORMS = {
    "grpo": (),
    "sft": (
        "method=sft",
        "feedback.mapping=binary",
        "data.groups=4",
        "data.group_size=1",
        "data.size=8",
        "task.limits={turns: 6, turn_tokens: 24, context_tokens: 320}",
    ),
    "asynchronous": ("method=areal", "timing={max_lag: 1, workers: {count: 1}}"),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base") / "model"
    load_policy("builtin:tiny", seed=5).save(folder)
    return folder


def train(run, base, *words):
    model = f"policy.model={base}"
    return hexad("train", write_recipe(run.parent), model, *ADAPTER, *words, "--run", run)


def policy(run, step=2):
    return run / "checkpoints" / f"step_{step}" / "policy"


@pytest.mark.parametrize("form", FORMS)
def test_a_run_keeps_its_adapter_in_pefts_layout_and_evaluates_it(tmp_path, base, form):
    run = tmp_path / "run"
    code, text = train(run, base, *FORMS[form])
    assert code == 0, text
    names = {path.name for path in policy(run).iterdir()}
    assert {adapters.CONFIG, adapters.WEIGHTS} <= names and "model.safetensors" not in names
    made = load_policy(str(run), seed=0)
    assert made.lineage() != load_policy(str(base), seed=0).lineage()
    code, text = hexad("evaluate", run, "--split", "selection", "--tasks", 4)
    assert code == 0, text


def test_a_resume_goes_on_bit_for_bit_and_the_next_stage_merges(tmp_path, base):
    whole, again = tmp_path / "whole" / "run", tmp_path / "again" / "run"
    for run in (whole, again):
        run.parent.mkdir()
    code, text = train(whole, base)
    assert code == 0, text
    shutil.copytree(whole, again)
    shutil.rmtree(policy(again).parent)
    code, text = train(again, base, "--resume")
    assert code == 0, text
    kept = [(policy(run) / adapters.WEIGHTS).read_bytes() for run in (whole, again)]
    assert kept[0] == kept[1]
    later = tmp_path / "later" / "run"
    later.parent.mkdir()
    model = f"policy.model={whole}"
    code, text = hexad("train", write_recipe(later.parent), model, "--run", later)
    assert code == 0 and (policy(later) / "model.safetensors").is_file(), text


def test_workers_are_sent_the_adapter_alone_and_sample_by_it(tmp_path, base, monkeypatch):
    run, sent, inner = tmp_path / "run", [], asynchronous.pack
    monkeypatch.setattr(
        asynchronous, "pack", lambda weights: sent.append(set(weights)) or inner(weights)
    )
    code, text = train(run, base, *FORMS["asynchronous"])
    assert code == 0, text
    assert sent and all(name and all(".lora_" in each for each in name) for name in sent)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert (
        rows
        and max(row["mismatch/engine/max"] for row in rows if "mismatch/engine/max" in row) < 1e-4
    )


def test_a_base_that_moved_on_is_refused_at_resume(tmp_path, base):
    own, run = shutil.copytree(base, tmp_path / "model"), tmp_path / "run"
    code, text = train(run, own)
    assert code == 0, text
    shutil.rmtree(policy(run).parent)
    weights = load_file(own / "model.safetensors")
    name = next(iter(weights))
    save_file({**weights, name: weights[name] + 1e-3}, own / "model.safetensors", {"format": "pt"})
    code, text = train(run, own, "--resume")
    assert code != 0 and "other weights than when the run began" in text, text
