"""What a task starts with: the seed's matrix, and how its rows compose."""

import io
from pathlib import Path

import pytest
from advice_world import CONTRAST, FAILED, FEW, FLAT, GAIN, NO_GAIN, SOLVED, ask, methods, number
from rich.console import Console

from hexad.advice.measured import BarrierProfile, Lag
from hexad.advice.read import recipe_text
from hexad.cli.advise_view import view
from hexad.contract.faults import UserError
from hexad.recipe.load import build
from hexad.recipe.methods import METHODS
from hexad.recipe.read import Document

SINGLE = {"critic": {"candidates": "single"}}
STREAM = {"data": {"collection": "continuous"}}
POOR = {"critic": {"value": "poor"}}
RICH = {"feedback": {"demonstrations": "rich", "protocol": "unlearned"}}
PAIRS = {"feedback": {"preferences": "stable", "goal": "subjective", "outcome": "none"}}
DANGER = {"data": {"irreversible": True, "trials": "costly", "collection": "fixed"}}


def test_rich_demonstrations_and_no_protocol_start_with_imitation():
    advice = ask(RICH)
    assert methods(advice) == ["sft", "rloo"]
    first, second = advice.draft.tree["stages"]
    assert first["gate"] == {"split": "selection", "success": 0.05}
    assert second["recipe"]["policy"]["model"] == "previous"


def test_a_subjective_goal_in_a_costly_world_starts_with_pairs():
    advice = ask(PAIRS, {"data": {"trials": "costly"}, "feedback": {"agreement": None}})
    assert methods(advice) == ["dpo"] and advice.draft.tree is None
    assert "feedback.pairs_from" in advice.refusals[0]


def test_pairs_are_read_and_never_sampled():
    recorded = {"feedback": {"pairs_from": "recorded", "agreement": None}}
    tree = ask(PAIRS, DANGER, recorded).draft.tree
    built = build(Document(Path("x.yaml"), tree, {}))
    assert (built.method, built.data.regime, built.data.origin) == ("dpo", "fixed", "recorded")
    assert built.data.rounds is None and built.run.evaluation.every is None


def test_a_judge_is_followed_after_pairs_only_where_trials_are_cheap():
    judged = {"feedback": {**PAIRS["feedback"], "outcome": "judge"}}
    advice = ask(judged)
    assert methods(advice) == ["dpo", "rloo"]
    assert "the judge that trains is not the one that evaluates" in advice.companions
    assert methods(ask(judged, {"data": {"trials": "costly"}})) == ["dpo"]


def test_cheap_attempts_and_an_exact_verifier_compare_attempts():
    assert methods(ask()) == ["rloo"]
    assert methods(ask({"credit": {"scale": "varied"}})) == ["grpo"]


def test_one_attempt_a_state_needs_a_value():
    advice = ask(SINGLE, {"action": {"unit": "tool_call"}})
    tree = advice.draft.tree
    assert methods(advice) == ["ppo"]
    assert tree["data"]["group_size"] == 1 and tree["critic"]["pretrain"] > 0
    assert tree["credit"]["clock"] == "turn"


def test_without_comparison_and_without_value_plain_monte_carlo_is_left():
    assert methods(ask(SINGLE, POOR)) == ["reinforce"]


def test_long_episodes_paid_on_the_way_get_a_critic_only_if_it_can_be_learned():
    paid = {"credit": {"horizon": "long", "reward": "transitions"}}
    assert methods(ask(paid, {"critic": {"value": "learnable"}})) == ["ppo"]
    assert methods(ask(paid)) == ["rloo"]


def test_asynchrony_needs_a_profile_that_shows_a_gain():
    waits = {"timing": {"durations": "heavy_tailed", "learner": "idle"}}
    unprofiled = ask(STREAM, waits)
    assert methods(unprofiled) == ["rloo"]
    assert "barrier profile" in [each.what for each in unprofiled.missing]
    assert methods(ask(STREAM, waits, profile=NO_GAIN)) == ["rloo"]
    advice = ask(STREAM, waits, profile=GAIN)
    assert methods(advice) == ["sao"]
    # max_lag 2 reaches 3.9 of 4.0: 97.5 % of the best
    assert advice.draft.tree["timing"] == {"max_lag": 2}


def test_a_gain_bought_with_stale_episodes_is_none():
    stale = BarrierProfile("check", (Lag(1, 3.0, 0.16),))
    assert methods(ask(STREAM, profile=stale)) == ["rloo"]


def test_asynchrony_without_a_learnable_value_has_no_critic():
    advice = ask(STREAM, POOR, profile=GAIN)
    assert methods(advice) == ["areal"] and "critic" not in advice.draft.tree


def test_a_profile_does_not_make_episodes_arrive_in_a_stream():
    assert methods(ask(profile=GAIN)) == ["rloo"]


@pytest.mark.parametrize("agreement", [None, FEW])
def test_an_unmeasured_verifier_is_measured_before_it_is_optimised(agreement):
    advice = ask(RICH, {"feedback": {"agreement": agreement}})
    assert methods(advice) == ["sft"] and advice.draft.tree["method"] == "sft"
    assert [step.method for step in advice.path.later] == ["rloo"]
    assert "feedback.agreement" in advice.path.first[0]


def test_an_unmeasured_verifier_alone_gives_no_recipe_but_a_path():
    advice = ask({"feedback": {"agreement": None}})
    assert advice.draft.tree is None and advice.refusals
    assert [step.method for step in advice.path.later] == ["rloo"] and advice.path.first


def test_a_verifier_that_failed_is_not_optimised():
    advice = ask({"feedback": {"agreement": FAILED}})
    assert not advice.path.steps and not advice.path.later
    assert "30 of 60" in advice.refusals[0]


def test_irreversible_risk_is_never_explored():
    advice = ask(RICH, DANGER)
    assert advice.draft.tree is None  # the environment's demonstrations would be played
    recorded = ask(RICH, DANGER, {"feedback": {"demonstrations_from": "recorded"}})
    assert methods(recorded) == ["sft"]
    assert recorded.draft.tree["run"]["evaluation"] == {"every": None, "final": "none"}
    boxed = ask(RICH, DANGER, {"data": {"sandbox": True, "collection": "rounds"}})
    assert methods(boxed) == ["sft"] and "run" not in boxed.draft.tree
    assert not boxed.path.later


def test_without_a_sandbox_only_one_stage_is_taken_at_a_time():
    feedback = {"preferences": "stable", "goal": "both", "demonstrations_from": "recorded"}
    advice = ask(RICH, DANGER, {"feedback": feedback})
    assert methods(advice) == ["sft"]
    assert [step.method for step in advice.path.later] == ["dpo"]


NOBODY = {"feedback": {**PAIRS["feedback"], **RICH["feedback"], "agreement": None}}
STORED = {"data": {"collection": "fixed"}, "critic": {"candidates": "single"}}
SCORED = {"feedback": {"outcome": "judge"}}
BOXED = {"data": {"irreversible": True, "sandbox": True}}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ((STORED,), "data.collection: fixed"),
        ((STORED, SCORED), "data.collection: fixed"),
        ((), "feedback.outcome: none"),
        ((BOXED,), "feedback.outcome: none"),
        ((BOXED, STORED, SCORED), "data.collection: fixed"),
    ],
)
def test_no_stage_is_gated_or_evaluated_where_nobody_plays_or_scores(changes, why):
    recorded = {"feedback": {"pairs_from": "recorded"}}
    advice = ask(NOBODY, recorded, *changes)
    assert methods(advice) == ["sft"] and advice.path.later[0].method == "dpo"
    assert why in advice.path.first[-1]
    assert advice.draft.tree["run"]["evaluation"] == {"every": None, "final": "none"}
    assert any("no evaluation is in the recipe" in text for text in advice.draft.remarks)


def test_stages_are_gated_where_episodes_are_played_and_scored():
    recorded = {"feedback": {"pairs_from": "recorded"}}
    for changes in ((SCORED,), (SCORED, BOXED)):
        stages = ask(NOBODY, recorded, *changes).draft.tree["stages"]
        assert [stage["name"] for stage in stages] == ["sft", "dpo"]
        assert stages[0]["gate"] == {"split": "selection", "success": 0.05}
        assert all("run" not in stage["recipe"] for stage in stages)


def test_an_exact_check_gates_no_subjective_goal_but_is_evaluated():
    recorded = {"feedback": {"pairs_from": "recorded", "outcome": "exact"}}
    advice = ask(NOBODY, recorded)
    assert methods(advice) == ["sft"] and "run" not in advice.draft.tree
    assert "does not measure a subjective goal" in advice.path.first[-1]


def test_a_judge_is_written_with_placeholders_and_said_to_be_one():
    judged = {"feedback": {"outcome": "judge", "goal": "subjective"}}
    advice = ask(judged)
    found = advice.draft.tree["feedback"]
    assert found["verifier"] == "llm_judge" and set(found["options"]) == {"url", "model"}
    assert "placeholders" in advice.draft.remarks[0]
    assert "# mind: rloo: feedback.options.url" in recipe_text(advice)
    named = {"feedback": {"verifier": "mine:Judge", "options": {"strict": True}}}
    advice = ask(judged, named)
    assert advice.draft.tree["feedback"] == named["feedback"] and not advice.draft.remarks
    assert "feedback" not in ask().draft.tree and not ask().draft.remarks


def test_a_process_signal_is_a_potential_where_the_method_can_be_paid_one():
    steps = {"feedback": {"process": "checkable", "process_signal": "remaining_operations"}}
    advice = ask(SINGLE, steps)
    signal = {"signal": "remaining_operations", "paid": "potential"}
    assert advice.draft.tree["feedback"] == {"process": {"progress": signal}}
    assert not advice.draft.remarks
    unnamed = ask(SINGLE, {"feedback": {"process": "checkable"}})
    assert "no signal is named" in unnamed.draft.remarks[0]
    assert "feedback" not in unnamed.draft.tree
    compared = ask(steps)
    assert "compares whole episodes" in compared.draft.remarks[0]
    assert "feedback" not in compared.draft.tree


def test_a_unit_that_changes_nothing_is_named():
    turns = {"action": {"unit": "turn"}}
    assert "action.unit: turn changes nothing here" in ask(turns).draft.remarks[0]
    assert not ask(turns, SINGLE).draft.remarks
    whole = ask({"action": {"unit": "episode"}}, SINGLE)
    assert "action.unit: episode changes nothing here" in whole.draft.remarks[0]
    assert "The recipe does not carry" in shown(ask(turns))


def shown(advice):
    console = Console(file=io.StringIO(), width=200)
    console.print(view(advice))
    return console.file.getvalue()


def test_groups_without_contrast_are_not_compared():
    assert methods(ask(groups=CONTRAST)) == ["rloo"]
    assert methods(ask(groups=FLAT)) == ["ppo"]
    assert methods(ask(POOR, groups=FLAT)) == ["reinforce"]


def test_groups_that_are_all_right_say_nothing_against_comparing():
    assert methods(ask(groups=SOLVED)) == ["rloo"]


def test_where_nothing_succeeds_imitation_comes_first_or_nothing_does():
    nothing = {"success": number(0.0)}
    assert ask(**nothing).draft.tree is None
    few = {"feedback": {"demonstrations": "few"}}
    assert methods(ask(few, **nothing)) == ["sft", "rloo"]


def test_an_overflowing_context_is_compacted_once_that_runs():
    advice = ask({"action": {"overflow": True}, "credit": {"horizon": "long"}})
    runs = not METHODS["compactionrl"].missing
    assert methods(advice) == (["compactionrl"] if runs else ["rloo"])
    assert "overflow" in [shape.key for shape in advice.shapes]


def test_what_weighs_equally_is_the_denominator():
    tree = ask({"action": {"weight": "prompt"}}).draft.tree
    assert tree["action"] == {"denominator": "prompt", "inner": "episode"}
    assert "action" not in ask().draft.tree


def test_the_eight_steps_say_what_is_done():
    plain = ask()
    assert [item.number for item in plain.steps] == list(range(1, 9))
    assert [item.state for item in plain.steps] == ["done"] * 4 + ["open"] * 4
    measured = ask(STREAM, groups=CONTRAST, profile=GAIN)
    assert [item.state for item in measured.steps] == ["done"] * 6 + ["open"] * 2
    assert "the synchronous recipe" in measured.steps[6].because
    assert "the synchronous recipe" not in plain.steps[6].because
    assert ask({"feedback": {"agreement": FAILED}}).steps[1].state == "failed"
    assert ask({"feedback": {"agreement": FEW}}).steps[1].state == "open"
    assert ask(DANGER).steps[0].state == "open"
    nobody = ask({"feedback": {"outcome": "none", "agreement": None}})
    assert [item.state for item in nobody.steps[:2]] == ["open", "open"]


def test_the_task_is_taken_over_as_far_as_each_stage_can_hold_it():
    slow = {"kind": "constant", "mean": 0.1}
    task = {"task": {"environment": "calculator", "latency": slow, "selection": {"count": 50}}}
    first, second = (stage["recipe"] for stage in ask(RICH, task).draft.tree["stages"])
    assert "latency" not in first["task"] and second["task"]["latency"] == slow
    assert first["run"]["evaluation"] == second["run"]["evaluation"] == {"tasks": 50}


def test_a_mistake_in_the_task_section_is_the_users():
    with pytest.raises(UserError, match=r"task\.latency\.sigma"):
        ask({"task": {"latency": {"kind": "lognormal", "mean": 0.1}}})


def test_signs_are_those_of_the_shapes_and_starts_that_the_path_takes():
    keys = [trigger.key for trigger in ask({"feedback": {"process": "checkable"}}).triggers]
    assert keys == ["no-contrast", "heavy-barrier", "process-hacked", "verifier-hole"]
    assert "process-hacked" not in [trigger.key for trigger in ask().triggers]
