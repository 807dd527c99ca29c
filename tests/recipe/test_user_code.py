"""A method, estimator, surrogate and reward of user code run like built-ins, and fail like them."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hexad.contract.faults import UserError
from hexad.recipe import legal
from hexad.recipe.load import load

EXAMPLES = Path(__file__).parents[2] / "examples"
RECIPE = str(EXAMPLES / "own_method.yaml")


@pytest.fixture(autouse=True)
def path(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))


def test_the_example_trains_as_its_docstring_says(tmp_path):
    done = subprocess.run(
        [
            Path(sys.executable).parent / "hexad",
            "train",
            "own_method.yaml",
            "--run",
            tmp_path / "r",
        ],
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "own_method:METHOD" in done.stdout
    row = (tmp_path / "r" / "metrics.jsonl").read_text()
    assert "reward/component/calls" in row


def test_user_code_is_validated_by_its_own_record():
    with pytest.raises(UserError, match=r"update.tau: surrogate own_method:SURROGATE needs it"):
        load(RECIPE, ["update.tau=null"])
    with pytest.raises(UserError, match=r"data\.group_size"):
        load(RECIPE, ["data.group_size=1"])
    with pytest.raises(UserError, match=r"update.dual: has no effect"):
        load(RECIPE, ["update.dual=3.0"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("method=own_method:NOTHING", "own_method has no NOTHING"),
        ("method=own_method:SURROGATE", "is a Surrogate"),
        ("update.surrogate=own_method:METHOD", "is a Method"),
        ("update.surrogate=nowhere:IT", "cannot import nowhere"),
        ("credit.estimator=own_method:SURROGATE", "is a Surrogate"),
        ("credit.estimator=gropo", "there is no 'gropo'"),
        ("update.surrogate=klip", "there is no 'klip'"),
    ],
)
def test_a_name_that_is_not_what_it_should_be_is_one_clear_message(override, message):
    with pytest.raises(UserError, match=message) as caught:
        load(RECIPE, [override])
    assert caught.value.fix


def test_the_examples_functions_do_what_they_say():
    import own_method

    log = torch.zeros(3)
    loss = own_method.asymmetric(log, log, torch.tensor([1.0, -1.0, 0.0]), tau=0.5)
    assert loss.tolist() == [-1.0, 0.5, 0.0]
    score = torch.tensor([1.0, 0.0, 0.5], dtype=torch.float64)
    found = own_method.best_of(score, torch.tensor([True] * 3), torch.zeros(3, dtype=torch.int64))
    assert found.tolist() == pytest.approx([0.5, -0.5, 0.0])
    assert legal.surrogate("own_method:SURROGATE").required == ("tau",)
