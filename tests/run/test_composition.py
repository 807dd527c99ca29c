"""What only the composed parts can refuse."""

from pathlib import Path

import pytest

from hexad.contract.faults import UserError
from hexad.recipe.load import load
from hexad.run import compose

RECIPE = Path(__file__).parents[2] / "recipes" / "calculator-sft.yaml"


def test_a_context_limit_beyond_the_model_is_refused_before_training(tmp_path):
    recipe = load(RECIPE, ["task.limits.context_tokens=1000000"])
    with pytest.raises(UserError, match="positions") as caught, compose(recipe, tmp_path):
        pass
    assert caught.value.where == "task.limits.context_tokens" and caught.value.fix
