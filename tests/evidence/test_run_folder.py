import io
import json
import shutil
from pathlib import Path

import pytest
from made_run import stage, staged_run
from rich.console import Console

from hexad.contract.faults import UserError
from hexad.evidence.curve import draw
from hexad.evidence.folder import claim, parts
from hexad.evidence.summary import rate, render, summarize
from hexad.recipe.load import load

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture
def made(tmp_path, episode):
    staged_run(tmp_path, episode, RECIPES / "calculator.yaml")
    return tmp_path


def shown(summary):
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(render(summary))
    return console.export_text()


def test_a_summary_tells_start_end_costs_and_what_is_not_known(made):
    summary = summarize(made)
    sft, grpo = summary["stages"]
    assert (sft["name"], grpo["name"]) == ("sft", "grpo")
    assert grpo["hidden"]["start"]["success"] == 0.41 and grpo["hidden"]["end"]["success"] == 0.975
    assert grpo["budget"]["episodes"] == {"used": 80 * 32, "limit": grpo_limit()}
    assert grpo["mixed_groups"] == pytest.approx(53 / 80) and "mixed_groups" not in sft
    assert grpo["seconds"] == {"rollout": 40.0, "update": pytest.approx(64.0)}
    assert sft["gate"]["success"] == 0.25 and summary["hidden_uses"] == 4
    json.dumps(summary, allow_nan=False)
    text = shown(summary)
    assert "97.5 % [95.5, 98.6] of 400" in text and "4 times" in text
    assert "not measured: verifier agreement" in text


def grpo_limit():
    return load(RECIPES / "calculator.yaml").stages[1].recipe.budget.episodes


def test_a_run_that_only_began_has_a_summary_and_a_picture(tmp_path):
    claim(tmp_path, load(RECIPES / "calculator-sft.yaml"), resume=False)
    summary = summarize(tmp_path)
    assert summary["stages"][0]["batches"] == 0 and "hidden" not in summary["stages"][0]
    assert draw(tmp_path).exists() and "never" in shown(summary)


def test_a_picture_is_drawn_for_one_recipe_and_for_stages(made, episode):
    def pixels(path):
        header = path.read_bytes()[:24]
        assert header.startswith(b"\x89PNG")
        return int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")

    single = made / "alone"
    claim(single, load(RECIPES / "calculator-grpo.yaml"), resume=False)
    stage(single, episode, batches=3, start=0.2, end=0.3)
    assert pixels(draw(made))[0] > pixels(draw(single))[0] > 800
    assert summarize(made)["curve"].endswith("curve.png")


def test_evaluations_stand_at_the_episodes_trained_before_them(made):
    grpo = parts(made)[1]
    assert [grpo.episodes_at(v) for v in (0, 1, 10, 80)] == [0, 32, 320, 2560]


def test_only_stages_that_began_are_shown(made):
    shutil.rmtree(made / "grpo")
    assert [part.name for part in parts(made)] == ["sft"]


def test_a_folder_without_a_recipe_is_no_run(tmp_path):
    with pytest.raises(UserError, match="no run"):
        parts(tmp_path)


def test_a_claimed_folder_keeps_its_recipe_and_refuses_another_start(tmp_path):
    recipe = load(RECIPES / "calculator.yaml")
    claim(tmp_path / "r", recipe, resume=False)
    claim(tmp_path / "r", recipe, resume=False)  # nothing happened in it yet
    (tmp_path / "r" / "sft").mkdir()
    (tmp_path / "r" / "sft" / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match="exists") as caught:
        claim(tmp_path / "r", recipe, resume=False)
    assert "--resume" in caught.value.fix and "--run" in caught.value.fix
    claim(tmp_path / "r", recipe, resume=True)
    other = load(RECIPES / "calculator.yaml", ["stages.grpo.run.seed=9"])
    with pytest.raises(UserError, match=r"stages\.1\.recipe\.run\.seed"):
        claim(tmp_path / "r", other, resume=True)


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "r").write_text("")
    with pytest.raises(UserError, match="exists"):
        claim(tmp_path / "r", load(RECIPES / "calculator-sft.yaml"), resume=False)


def test_rates_are_shown_with_interval_and_count():
    row = {"success": 26 / 30, "low": 0.7032, "high": 0.9469, "scored": 30}
    assert rate(row) == "86.7 % [70.3, 94.7] of 30"
