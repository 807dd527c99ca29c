"""Environments, verifiers, mappings and models that fail: a fault with a cause, never a reward."""

import json
import time
from contextlib import nullcontext

import bad_parts
import pytest
import torch
from tiny import save_model, train


def family(how, where):
    return (
        "task.environment=bad_environment:BadFamily",
        f"task.options={{how: {how}, where: {where}}}",
    )


def bad(run, *words):
    code, text = train(run, "data.fault_limit=0.0", *words)
    assert "Traceback" not in text
    return code, text


@pytest.mark.parametrize(
    ("how", "where", "said"),
    [
        ("raise", "make", "RuntimeError: a bad environment: make"),
        ("raise", "reset", "ZeroDivisionError: a bad environment: reset"),
        ("junk", "reset", "reset returned a dict"),
        ("text", "reset", "not a Message with text"),
    ],
)
def test_a_bad_environment_stops_the_run_with_its_cause(tmp_path, how, where, said):
    code, text = bad(tmp_path / "run", *family(how, where))
    assert code == 1 and "4 of 4 episodes faulted" in text and said in text
    assert "fault of Hexad" not in text and not (tmp_path / "run" / "crash.txt").exists()
    assert (tmp_path / "run" / "checkpoints" / "step_0" / "manifest.json").exists()


@pytest.mark.parametrize("how", ["hang", "block"])
def test_an_environment_that_hangs_is_a_fault(tmp_path, how):
    started = time.monotonic()
    limit = "task.limits.reset_seconds=0.3"
    code, text = bad(tmp_path / "run", *family(how, "reset"), limit)
    assert code == 1 and "reset took longer than 0.3 s" in text
    assert time.monotonic() - started < 15


def test_faults_are_one_json_document(tmp_path):
    code, text = bad(tmp_path / "run", *family("raise", "reset"), "--json")
    error = json.loads(text.splitlines()[-1])["error"]
    assert code == 1 and error["kind"] == "faults" and "bad environment" in error["what"]


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [("Hangs", "timeout", '"limit":"seconds"'), ("Junk", "verifier_error", "returned a dict")],
)
def test_a_bad_verifier_leaves_episodes_unscored(tmp_path, name, status, said):
    words = (f"feedback.verifier=bad_parts:{name}", "feedback.timeout=unscored", "data.groups=1")
    code, text = bad(tmp_path / "run", *words)
    assert code == 1 and "2 of 2 finished episodes were not scored" in text
    assert f"{status} x 2" in text and said in text


def test_a_verifier_with_a_senseless_limit_is_the_users_mistake(tmp_path):
    code, text = bad(tmp_path / "run", "feedback.verifier=bad_parts:Impatient")
    assert code == 2 and "time limit of bad_parts:Impatient is 0" in text


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NotANumber", "value=nan"),
        ("RaisingMapping", "the reward mapping raised KeyError"),
        ("TextMapping", "returned a str, not a tuple"),
    ],
)
def test_a_bad_mapping_leaves_episodes_unscored(tmp_path, name, said):
    code, text = bad(tmp_path / "run", f"feedback.mapping=bad_parts:{name}")
    assert code == 1 and "4 of 4 finished episodes were not scored" in text and said in text


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_model_that_holds_nan_is_refused_by_the_name_of_its_weights(tmp_path, value):
    def spoil(tensors):
        name = next(n for n in tensors if "layers.0.mlp.down" in n)
        tensors[name].view(-1)[5] = torch.tensor(value)

    model = save_model(tmp_path / "model", spoil)
    code, text = train(tmp_path / "run", f"policy.model={model}")
    assert code == 2 and "model.layers.0.mlp.down_proj.weight" in text and "NaN" in text
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_model_that_overflows_while_sampling_stops_the_run(tmp_path):
    def blow_up(tensors):
        tensors["model.norm.weight"].fill_(3e38)

    model = save_model(tmp_path / "model", blow_up)
    code, text = train(tmp_path / "run", f"policy.model={model}")
    assert code == 1 and "engine: EngineFault x 4" in text and "non-finite" in text


def test_a_template_without_tools_is_refused(tmp_path):
    model = save_model(tmp_path / "model", lambda tensors: None)
    (model / "chat_template.jinja").write_text(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    code, text = train(tmp_path / "run", f"policy.model={model}")
    assert code == 2 and "template" in text and "tools" in text


def test_irreversible_tools_are_refused_for_online_training_and_the_family_is_closed(tmp_path):
    bad_parts.CLOSED.clear()
    code, text = train(tmp_path / "run", "task.environment=bad_parts:Sending")
    assert code == 2 and "'send' irreversible" in text and "task.environment" in text
    assert "sandbox" in text and bad_parts.CLOSED == ["well"]


@pytest.mark.parametrize("how", ["well", "raise", "hang"])
def test_a_family_is_closed_once_whatever_that_does(tmp_path, monkeypatch, how):
    monkeypatch.setattr("hexad.environments.guard.CLOSE_SECONDS", 0.2)
    bad_parts.CLOSED.clear()
    words = ("task.environment=bad_parts:Closing", f"task.options={{close: {how}}}")
    with pytest.warns(RuntimeWarning) if how != "well" else nullcontext():
        code, text = train(tmp_path / "run", *words)
    assert code == 0 and "spent" in text and bad_parts.CLOSED == [how]


def test_a_family_is_closed_after_an_error_too(tmp_path):
    bad_parts.CLOSED.clear()
    words = ("task.environment=bad_parts:Closing", "feedback.mapping=bad_parts:RaisingMapping")
    assert train(tmp_path / "run", *words)[0] == 1 and bad_parts.CLOSED == ["well"]


def test_a_family_that_knows_its_size_ends_the_run(tmp_path):
    code, text = train(tmp_path / "run", "task.environment=bad_parts:Small", "--json")
    document = json.loads(text.splitlines()[-1])
    assert code == 0 and document["reason"] == "no task is left"
    assert document["stages"][0]["consumed"]["episodes"] == 6
