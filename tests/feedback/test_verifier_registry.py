import pytest

from hexad.contract.faults import UserError
from hexad.environments.registry import family
from hexad.feedback import registry
from hexad.feedback.verifiers import AnswerVerifier, RecomputingVerifier


class Bare:
    """A family that names no verifier."""

    name = "bare"


def test_training_and_evaluation_have_separate_objects_and_implementations():
    for name in ("calculator", "calculator-hard"):
        made = family(name)
        training, evaluation = registry.verifier(None, made), registry.evaluation_verifier(made)
        assert isinstance(training, AnswerVerifier)
        assert isinstance(evaluation, RecomputingVerifier)
        assert training.digest != evaluation.digest
        assert registry.verifier(None, made) is not training
        assert registry.evaluation_verifier(made) is not evaluation
    left, hard = (
        registry.evaluation_verifier(family(n)) for n in ("calculator", "calculator-hard")
    )
    assert left.digest != hard.digest


def test_a_family_without_an_evaluation_verifier_gets_a_fresh_training_one():
    reference = "hexad.feedback.verifiers:answer"
    training = registry.verifier(reference, Bare())
    evaluation = registry.evaluation_verifier(Bare(), reference)
    assert training is not evaluation and training.digest == evaluation.digest


def test_names_are_checked():
    calculator = family("calculator")
    assert isinstance(registry.verifier("left_to_right", calculator), RecomputingVerifier)
    with pytest.raises(UserError, match="did you mean answer"):
        registry.verifier("anwser", calculator)
    with pytest.raises(UserError, match="no verifier of its own"):
        registry.verifier(None, Bare())
    with pytest.raises(UserError, match="no verifier of its own"):
        registry.evaluation_verifier(Bare())
    with pytest.raises(UserError, match="cannot be called"):
        registry.verifier("hexad.feedback.registry:VERIFIERS", calculator)
    with pytest.raises(UserError, match="makes a dict"):
        registry.verifier("builtins:vars", calculator)
