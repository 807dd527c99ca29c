"""``hexad advise``: files in, advice and a recipe out."""

import contextlib
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from hexad.advice.questions import Questionnaire
from hexad.cli import advise_evidence as evidence
from hexad.cli import advise_fit as fit
from hexad.cli import ask as asking
from hexad.cli import check_verifier
from hexad.cli import main as entry
from hexad.evidence import audit, journal, profiles
from hexad.recipe.load import build, load
from hexad.recipe.read import Document

TASK = """
name: sums
feedback:
  protocol: learned
  outcome: exact
  agreement: {right: 60, right_accepted: 60, wrong: 60, wrong_accepted: 1}
data: {collection: continuous}
"""
RECIPE = "name: x\nmethod: grpo\nbudget: {episodes: 64}\n"
SCHEDULES = {
    "synchronous": {"speedup": 1.0, "stale_share": 0.0},
    "without ticks": {"speedup": 1.5, "stale_share": 0.0},
    "max_lag 2": {"speedup": 3.0, "stale_share": 0.02},
}


def hexad(*words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        with pytest.raises(SystemExit) as caught:
            entry.main([str(word) for word in words])
    return caught.value.code, out.getvalue(), err.getvalue()


@pytest.fixture
def task(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "task.yaml"
    path.write_text(TASK)
    return path


def counts(accepted):
    return {
        "false_positive": {"count": accepted, "of": 64},
        "false_negative": {"count": 0, "of": 60},
    }


def qualification(accepted=None, labelled=None):
    """How many of 64 wrong ones were accepted, by the second verifier and by labels."""
    found = {"probes": {"tried": 13, "accepted": ["praise"] if accepted else [], "broke": []}}
    found |= {} if accepted is None else {"agreement": counts(accepted)}
    return found | (
        {} if labelled is None else {"labelled": {**counts(labelled), "file": "labels.jsonl"}}
    )


def made_of(folder, *overrides):
    """What `hexad check` writes down of the recipe that it measured."""
    (folder / "checked.yaml").write_text(RECIPE)
    recipe = load(folder / "checked.yaml", list(overrides))
    of, cards = profiles.subject(recipe), check_verifier.cards(recipe)
    return {"key": profiles.key(recipe), "of": of, "verifiers": cards}


OF = fit.subject(Questionnaire(), Document(Path("answers"), {}, {}))


def profile(path, qualified=None, of=(), **batch):
    measured = {
        "episode_seconds": {"p50": 1.0, "p99": 4.0},
        "learner_use": 0.2,
        "groups_by_verdict": {"all_correct": 2, "all_wrong": 1, "mixed": 5},
        "signal": 0.625,
    }
    here = {"batch": {"groups": 8, "group_size": 4, **batch}, "schedules": SCHEDULES}
    document = {"measured": measured, "here": here, "qualification": qualified}
    document |= made_of(path.parent, *of)
    path.write_text(json.dumps(document))
    return path


def test_the_example_gives_a_recipe_that_passes_a_dry_run(tmp_path, request):
    example = request.config.rootpath / "examples" / "advise.yaml"
    out = tmp_path / "recipe.yaml"
    code, shown, err = hexad("advise", example, "--out", out)
    assert code == 0, err
    assert "Staged path: sft -> rloo" in shown
    code, shown, err = hexad("train", out, "--dry-run")
    assert code == 0 and "rloo" in shown, err
    assert [stage.name for stage in load(out).stages] == ["sft", "rloo"]


def test_json_is_one_document(task):
    code, out, _ = hexad("advise", task, "--json")
    document = json.loads(out)
    assert code == 0 and document["recipe"]["method"] == "rloo"
    assert len(document["steps"]) == 8 and document["switch"] and document["alternatives"]
    assert document["answers"]["critic"]["candidates"] == "cheap"


def test_a_recipe_is_never_written_over_another(task, tmp_path):
    out = tmp_path / "recipe.yaml"
    out.write_text("mine")
    code, _, err = hexad("advise", task, "--out", out)
    assert code == 2 and "exists already" in err and out.read_text() == "mine"


def test_no_recipe_is_written_where_there_is_none(task, tmp_path):
    task.write_text(TASK.replace("wrong_accepted: 1", "wrong_accepted: 40"))
    code, _, err = hexad("advise", task, "--out", tmp_path / "recipe.yaml")
    assert code == 2 and "40 of 60" in err
    assert not (tmp_path / "recipe.yaml").exists()
    code, out, _ = hexad("advise", task)
    assert code == 0 and "No recipe" in out


@pytest.mark.parametrize(
    ("line", "wrong", "said"),
    [
        ("feedback:", "feedbak:", "did you mean feedback?"),
        ("outcome: exact", "outcome: exakt", "task.yaml:5"),
        ("right_accepted: 60", "right_accepted: 61", "more were accepted than judged"),
        ("name: sums", "task: {limits: {turns: 0}}", "task.yaml:2"),
        ("name: sums", "task: {environment: calculator, selection: {count: null}}", "task.yaml:2"),
        ("name: sums", "name: ../sums", "name"),
    ],
)
def test_a_mistake_is_named_with_its_line(task, line, wrong, said):
    task.write_text(TASK.replace(line, wrong))
    code, _, err = hexad("advise", task)
    assert code == 2 and said in err


def test_missing_files_are_the_users_mistake(task, tmp_path):
    for words in (
        (tmp_path / "nothing.yaml",),
        (task, "--run", tmp_path / "nothing"),
        (task, "--check", tmp_path / "nothing.json"),
        (task, "--check", task),
    ):
        code, _, err = hexad("advise", *words)
        assert code == 2 and "fix:" in err


def test_a_profile_that_gains_makes_it_asynchronous(task, tmp_path):
    code, out, _ = hexad("advise", task, "--check", profile(tmp_path / "check.json"), "--json")
    document = json.loads(out)
    assert code == 0 and document["recipe"]["method"] == "sao"
    assert document["recipe"]["timing"] == {"max_lag": 2}
    assert [each["key"] for each in document["differences"]] == [
        "timing.durations",
        "timing.learner",
    ]


def test_what_check_wrote_for_the_advised_recipe_is_found(task, tmp_path):
    _, out, _ = hexad("advise", task, "--json")
    recipe = build(Document(task, json.loads(out)["recipe"], {}))
    path = profiles.place(recipe, None)
    path.parent.mkdir(parents=True)
    profile(path)
    _, out, _ = hexad("advise", task, "--json")
    assert json.loads(out)["recipe"]["method"] == "sao"


def test_verdicts_of_a_profile_are_counts_of_its_groups(tmp_path):
    groups = evidence.of_check(profile(tmp_path / "check.json"), OF).groups
    assert (groups.count, groups.contrast, groups.right, groups.wrong) == (8, 5, 2, 1)
    assert evidence.of_check(profile(tmp_path / "check.json", group_size=1), OF).groups is None


def test_a_verifier_that_check_has_compared_counts_as_measured(task, tmp_path):
    nobody = TASK.split("  agreement")[0] + "data: {collection: rounds}\n"
    task.write_text(nobody)
    _, out, _ = hexad("advise", task, "--check", profile(tmp_path / "c"), "--json")
    assert json.loads(out)["recipe"] is None
    good = profile(tmp_path / "c", qualification(accepted=0))
    (compared,) = evidence.of_check(good, OF).qualified
    found = compared.agreement
    assert (found.right, found.right_accepted, found.wrong, found.wrong_accepted) == (60, 60, 64, 0)
    _, out, _ = hexad("advise", task, "--check", good, "--json")
    assert json.loads(out)["recipe"]["method"] == "rloo"
    assert json.loads(out)["differences"][0]["stated"] == "unmeasured"


def test_a_hole_that_check_has_found_beats_what_was_stated(task, tmp_path):
    bad = profile(tmp_path / "c", qualification(accepted=30))
    _, out, _ = hexad("advise", task, "--check", bad, "--json")
    document = json.loads(out)
    assert document["recipe"] is None and "30 of 64" in document["refusals"][0]
    assert any("praise" in text for text in document["companions"])


@pytest.mark.parametrize(
    ("accepted", "labelled", "start"),
    [(None, 0, "rloo"), (None, 60, None), (0, 60, None), (60, 0, None), (0, 0, "rloo")],
)
def test_labels_count_as_the_second_verifier_does(task, tmp_path, accepted, labelled, start):
    for text in (TASK, TASK.split("  agreement")[0] + "data: {collection: rounds}\n"):
        task.write_text(text.replace("continuous", "rounds"))
        found = profile(tmp_path / "c", qualification(accepted, labelled))
        _, out, _ = hexad("advise", task, "--check", found, "--json")
        document = json.loads(out)
        assert (document["recipe"] or {}).get("method") == start
        denied = [each for each in document["differences"] if each["key"] == "feedback.agreement"]
        if start is None:
            assert "60 of 64" in document["refusals"][0] and "60 of 64" in denied[0]["measured"]
            assert ("labels.jsonl" in denied[0]["source"]) == (labelled == 60)


@pytest.mark.parametrize(
    ("answers", "checked", "why"),
    [
        ("task: {environment: calculator-hard}", (), "of another task: task.environment is calc"),
        ("task: {limits: {turns: 3}}", (), "limits.turns is 8 there and 3 here"),
        ("", ("task.latency={kind: constant, mean: 0.1}",), "of another task: task.latency"),
        ("", ("policy.model=builtin:small",), "of another policy: builtin:small"),
        ("", ("policy.sampling.temperature=0.5",), "policy.sampling.temperature is 0.5 there"),
        ("", ("feedback.verifier=answer-hackable",), "of another verifier: answer-hackable"),
    ],
)
def test_a_profile_of_something_else_is_refused_with_the_reason(
    task, tmp_path, answers, checked, why
):
    task.write_text(TASK.replace("name: sums", f"name: sums\n{answers}"))
    given = profile(tmp_path / "check.json", qualification(0), checked)
    code, out, err = hexad("advise", task, "--check", given)
    assert code == 2 and why in err and not out


def test_a_profile_of_a_verifier_counts_where_the_answers_name_it(task, tmp_path):
    named = TASK.replace("feedback:", "feedback:\n  verifier: answer-hackable")
    task.write_text(named.replace("continuous", "rounds"))
    checked = ("feedback.verifier=answer-hackable",)
    given = profile(tmp_path / "check.json", qualification(0), checked)
    code, out, _ = hexad("advise", task, "--check", given, "--json")
    assert code == 0
    assert json.loads(out)["recipe"]["feedback"] == {"verifier": "answer-hackable"}
    code, _, err = hexad("advise", task, "--check", profile(tmp_path / "c", qualification(0)))
    assert code == 2 and "another verifier: the environment's own" in err


def test_a_profile_that_changed_its_verifier_or_is_from_before_says_nothing(task, tmp_path):
    given = profile(tmp_path / "check.json", qualification(0))
    document = json.loads(given.read_text())
    document["verifiers"]["training"]["verifier"] = "an earlier state"
    given.write_text(json.dumps(document))
    code, _, err = hexad("advise", task, "--check", given)
    assert code == 2 and "another verifier" in err
    del document["of"]
    given.write_text(json.dumps(document))
    code, _, err = hexad("advise", task, "--check", given)
    assert code == 2 and "does not say what it is of" in err


def test_check_with_another_verifier_leaves_the_recipes_own_profile_alone(task, tmp_path):
    _, out, _ = hexad("advise", task, "--json")
    recipe = build(Document(task, json.loads(out)["recipe"], {}))
    other = recipe.model_copy(
        update={"feedback": recipe.feedback.model_copy(update={"verifier": "answer-hackable"})}
    )
    assert profiles.place(recipe, None) != profiles.place(other, None)


def test_a_profile_that_was_found_and_is_of_something_else_is_named(task, tmp_path):
    _, out, _ = hexad("advise", task, "--json")
    recipe = build(Document(task, json.loads(out)["recipe"], {}))
    path = profiles.place(recipe, None)
    path.parent.mkdir(parents=True)
    profile(path, of=("feedback.verifier=answer-hackable",))
    _, out, _ = hexad("advise", task, "--json")
    document = json.loads(out)
    assert document["recipe"]["method"] == "rloo"
    assert path.name in document["not_used"][0] and "another verifier" in document["not_used"][0]
    _, out, _ = hexad("advise", task)
    assert "Not used: runs/checks" in out


IMITATED = "  demonstrations: rich\n  protocol: unlearned\n"


@pytest.mark.parametrize(("protocol", "code"), [("  protocol: learned\n", 2), (IMITATED, 0)])
def test_a_policy_that_was_trained_from_this_one_speaks_for_a_later_stage(
    task, tmp_path, protocol, code
):
    start = tmp_path / "runs" / "imitated"
    start.mkdir(parents=True)
    (start / "recipe.yaml").write_text("name: x\nmethod: sft\nbudget: {episodes: 64}\n")
    task.write_text(TASK.replace("  protocol: learned\n", protocol))
    given = profile(tmp_path / "c", qualification(0), ("policy.model=runs/imitated",))
    found, _, err = hexad("advise", task, "--check", given)
    assert found == code and ("another policy: runs/imitated" in err) == bool(code)


def run_folder(folder, recipe=RECIPE, batches=12):
    """Twelve batches of ten groups: all mixed in the first two, then one of ten; hidden is 0."""
    folder.mkdir()
    (folder / "recipe.yaml").write_text(recipe)
    total = {"mixed": 0, "signal": 0, "all_wrong": 0, "all_correct": 0}
    for batch in range(batches):
        mixed = 10 if batch < 2 else 1
        total["mixed"] += mixed
        total["signal"] += mixed
        total["all_wrong"] += 10 - mixed
        groups = {kind: {"groups": count, "tokens": 0} for kind, count in total.items()}
        failed = {"failed": batch + 1} if batch else {}
        ended = {"count": 20 * (batch + 1), **failed}
        journal.append(folder / journal.LEDGER, {"groups": groups, "funnel": {"ended": ended}})
        row = {"step": batch, "reward/success": 0.3, "critic/explained_variance": batch / 100}
        journal.append(folder / journal.METRICS, row)
    for split, success in (("selection", 0.25), ("hidden", 0.0)):
        row = {"step": batches, "split": split, "success": success, "scored": 200}
        journal.append(folder / journal.EVALUATIONS, row)
    return folder


def test_only_the_newest_batches_of_a_run_count(tmp_path):
    found = evidence.of_run(run_folder(tmp_path / "run"), OF)
    assert (found.groups.count, found.groups.contrast, found.groups.wrong) == (100, 10, 90)
    assert found.faulted.value == pytest.approx(10 / 200)
    assert found.explained_variance.value == pytest.approx(0.065)  # of .02 to .11
    assert found.success.value == 0.25  # selection: hidden tasks choose nothing


def audited(folder, cells, recipe=RECIPE):
    run_folder(folder, recipe)
    names = dict(zip(audit.CELLS, cells, strict=True))
    (folder / "audit.json").write_text(json.dumps({"high": 0.5, "cells": names, "episodes": {}}))
    return folder


HACKABLE = f"{RECIPE}feedback: {{verifier: answer-hackable}}\n"
HOLE, SOUND = (12329, 4446, 0, 3705), (900, 5, 0, 900)


def test_the_audit_of_a_run_is_measured_agreement(tmp_path):
    (found,) = evidence.of_run(audited(tmp_path / "run", HOLE), OF).qualified
    counts = found.agreement
    assert (counts.right, counts.right_accepted) == (12329, 12329)
    assert (counts.wrong, counts.wrong_accepted) == (4446 + 3705, 4446)
    assert evidence.of_run(audited(tmp_path / "none", (0, 0, 0, 0)), OF).qualified == ()


@pytest.mark.parametrize("recipe", [RECIPE, HACKABLE])
def test_online_learning_is_not_advised_on_what_an_audit_has_denied(task, tmp_path, recipe):
    """Also where the answers do not name the verifier, and the run trained on another one."""
    folder = audited(tmp_path / "run", HOLE, recipe)
    code, out, _ = hexad("advise", task, "--run", folder, "--json")
    document = json.loads(out)
    assert code == 0 and document["recipe"] is None and "4446 of 8151" in document["refusals"][0]
    (denied,) = [d for d in document["differences"] if d["key"] == "feedback.agreement"]
    assert denied["stated"] == "passed" and "audit.json" in denied["source"]


def test_an_audit_of_another_verifier_confirms_nothing(task, tmp_path):
    unmeasured = TASK.split("  agreement")[0]
    task.write_text(unmeasured)
    sound = audited(tmp_path / "own", SOUND)
    _, out, _ = hexad("advise", task, "--run", sound, "--json")
    assert json.loads(out)["recipe"] is not None
    other = audited(tmp_path / "other", SOUND, HACKABLE)
    _, out, _ = hexad("advise", task, "--run", other, "--json")
    assert json.loads(out)["recipe"] is None and "answer-hackable" in json.loads(out)["not_used"][0]
    # the environment's own by its name: then the audit of another one denies nothing, either
    task.write_text(TASK.replace("feedback:", "feedback:\n  verifier: answer"))
    _, out, _ = hexad("advise", task, "--run", audited(tmp_path / "h", HOLE, HACKABLE), "--json")
    assert json.loads(out)["recipe"]["feedback"] == {"verifier": "answer"}
    _, out, _ = hexad("advise", task, "--run", audited(tmp_path / "o", HOLE), "--json")
    assert json.loads(out)["recipe"] is None


def test_a_run_of_another_task_is_refused(task, tmp_path):
    hard = RECIPE.replace("method", "task: {environment: calculator-hard}\nmethod")
    code, _, err = hexad("advise", task, "--run", run_folder(tmp_path / "run", hard))
    assert code == 2 and "task.environment is calculator-hard there" in err


def test_single_attempts_say_nothing_about_groups(tmp_path):
    single = "name: x\nmethod: ppo\ndata: {group_size: 1}\nbudget: {episodes: 64}\n"
    assert evidence.of_run(run_folder(tmp_path / "run", single), OF).groups is None


def test_a_run_without_contrast_changes_the_baseline(task, tmp_path):
    folder = run_folder(tmp_path / "run")
    code, out, _ = hexad("advise", task, "--run", folder, "--json")
    document = json.loads(out)
    assert code == 0 and document["recipe"]["method"] == "ppo"
    rloo = next(each for each in document["alternatives"] if each["key"] == "rloo")
    assert rloo["verdict"] == "rejected" and "10 of 100 groups" in rloo["because"]


def test_without_a_terminal_nobody_is_asked(task):
    code, _, err = hexad("advise")
    assert code == 2 and "nobody to ask" in err


def test_leaving_the_questions_is_no_crash(task, monkeypatch):
    def leave(*words, **options):
        raise asking.typer.Abort

    monkeypatch.setattr(asking.typer, "prompt", leave)
    monkeypatch.setattr("hexad.cli.advise._terminal", lambda: True)
    code, _, err = hexad("advise")
    assert code == 130 and "questions were left" in err and "Traceback" not in err


def test_on_a_terminal_every_axis_is_asked(task, monkeypatch):
    asked = []

    def prompt(question, default=None, type=None):
        asked.append(question)
        wrong = "outcome (" in question and asked.count(question) == 1
        return "exakt" if wrong else 60 if type is int else default

    monkeypatch.setattr(asking.typer, "prompt", prompt)
    monkeypatch.setattr(asking.typer, "confirm", lambda question, default: default)
    tree = asking.ask(Console(file=io.StringIO()))
    assert set(tree) == {
        "name", "task", "policy", "feedback", "data", "action", "credit", "critic", "timing",
    }  # fmt: skip
    assert tree["feedback"]["outcome"] == "none" and "agreement" not in tree["feedback"]
    assert tree["data"]["irreversible"] is False
    assert any("none | judge | exact" in question for question in asked)
    monkeypatch.setattr("hexad.cli.advise._terminal", lambda: True)
    code, out, _ = hexad("advise")
    assert code == 0 and "to be kept as a task file" in out and "No recipe" in out
    monkeypatch.setattr(asking.typer, "confirm", lambda question, default: True)
    assert asking.ask(Console(file=io.StringIO()))["feedback"]["agreement"]["right"] == 60


def test_differences_and_contradictions_are_shown_to_people(task, tmp_path):
    task.write_text(TASK + "action: {overflow: true}\n")
    _, out, _ = hexad("advise", task, "--check", profile(tmp_path / "c"))
    assert "Contradiction: action.overflow: True with credit.horizon: short" in out
    assert "Measured, not as stated: timing.durations: similar" in out


def test_of_run_and_profile_the_groups_of_the_run_are_newer(tmp_path):
    run = evidence.of_run(run_folder(tmp_path / "run"), OF)
    both = evidence.join(run, evidence.of_check(profile(tmp_path / "c"), OF))
    assert both.groups == run.groups and both.profile is not None
