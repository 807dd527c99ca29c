"""The verifier that evaluates takes no part in training: contract.md, 4.1."""

import json

import pytest
from tiny import hexad

from hexad.environments.registry import family
from hexad.feedback.registry import evaluation_verifier, require_apart, verifier

RECIPE = "name: apart\nmethod: grpo\ntask: {environment: calculator}\nbudget: {episodes: 8}\n"
ALIAS = "hexad.feedback.verifiers:recompute_left_to_right"


@pytest.mark.parametrize("name", ["left_to_right", ALIAS])
def test_training_on_the_evaluator_is_refused_before_anything_is_sampled(name, tmp_path):
    (tmp_path / "r.yaml").write_text(RECIPE)
    for flags in (["--dry-run"], ["--run", tmp_path / "run"]):
        code, output = hexad(
            "train", tmp_path / "r.yaml", f"feedback.verifier={name}", *flags, "--json"
        )
        error = json.loads(output.splitlines()[-1])["error"]
        assert (code, error["where"]) == (2, "feedback.verifier"), output
        assert "no evaluation is independent" in error["what"] and "answer" in error["fix"]
    assert not (tmp_path / "run" / "episodes").exists()
    for other in ("answer", "precedence", "null"):
        words = ("train", tmp_path / "r.yaml", f"feedback.verifier={other}", "--dry-run")
        code, output = hexad(*words)
        assert code == 0, output


def test_a_family_with_one_verifier_for_both_has_no_evaluator_of_its_own():
    calculator = family("calculator")
    judges = verifier("left_to_right", calculator), evaluation_verifier(calculator)
    for final in (None, "answer"):
        calculator.evaluation_verifier, calculator.verifier = final, "answer"
        require_apart(calculator, *judges)
