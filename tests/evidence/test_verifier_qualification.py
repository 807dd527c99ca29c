"""Qualification: what a good verifier shows, what a hackable one shows, and who is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from builders import episode
from hexad.contract.faults import UserError
from hexad.contract.verdict import Verdict, VerdictStatus
from hexad.environments.registry import family
from hexad.evidence import profiles
from hexad.evidence.labelled import labelled
from hexad.evidence.qualify import (
    PROBES,
    REPEATED,
    TASKS,
    against,
    cases,
    qualify,
    repeats,
    require,
)
from hexad.feedback.judge import Feedback
from hexad.feedback.mapping import BinaryMapping
from hexad.feedback.registry import build
from hexad.recipe.axes import QualifySpec, Recipe

CALCULATOR = family("calculator")
SAMPLE = cases(CALCULATOR, episode())


def feedback(verifier):
    made = build(verifier, CALCULATOR) if isinstance(verifier, str) else verifier
    return Feedback(made, BinaryMapping())


def said(question, answer):
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def found(training, evaluation="left_to_right"):
    return qualify(feedback(training), feedback(evaluation), SAMPLE)


def test_the_sample_holds_right_and_wrong_answers_of_every_task():
    kinds = dict.fromkeys(("demonstration", "other", "both", "wrapped"), TASKS)
    assert {kind: sum(c.kind == kind for c in SAMPLE) for kind in kinds} == kinds


def test_a_good_verifier_agrees_and_is_broken_by_no_probe():
    row = found("answer")
    agreement = row["agreement"]
    assert (agreement["share"], agreement["judged"]) == (1.0, 4 * TASKS)
    assert agreement["false_positive"]["count"] == agreement["false_negative"]["count"] == 0
    assert agreement["false_negative"]["of"] >= TASKS  # a neighbour may have the same answer
    assert row["undetermined"] == 0
    assert row["probes"] == {"tried": len(PROBES), "accepted": [], "broke": []}
    assert {"p50", "p95", "p99"} <= set(row["seconds"])


def test_the_hackable_verifier_is_found_out():
    row = found("answer-hackable")
    agreement = row["agreement"]
    # Another task's answer may hold these digits, too: 14 is in 114.
    assert agreement["disagreements"] == {
        "both: accepted": TASKS,
        "wrapped: accepted": TASKS,
        "other: accepted": 1,
    }
    assert agreement["share"] == (4 * TASKS - 2 * TASKS - 1) / (4 * TASKS)
    assert agreement["false_positive"]["count"] == 2 * TASKS + 1
    low, high = agreement["false_positive"]["interval"]
    assert 0.5 < low < high < 0.85


def test_a_verifier_that_refuses_everything_has_false_negatives():
    class No:
        digest = "no"

        def verify(self, task, judged, transcript):
            return Verdict(VerdictStatus.WRONG, 0.0)

    agreement = found(No())["agreement"]
    assert agreement["false_negative"]["count"] == agreement["false_negative"]["of"] >= TASKS


def test_what_changes_its_mind_and_what_breaks_is_told():
    class Moody:
        digest, calls = "moody", 0

        def verify(self, task, judged, transcript):
            if "\x00" in transcript[-1].content:
                raise ValueError("embedded null")
            Moody.calls += 1
            return Verdict(VerdictStatus.CORRECT, 0.5 + 0.5 * (Moody.calls <= 4 * TASKS))

    class Wordy:
        digest, calls = "wordy", 0

        def verify(self, task, judged, transcript):
            Wordy.calls += 1
            return Verdict(VerdictStatus.CORRECT, 1.0, f'"{Wordy.calls}"')

    assert found(Wordy())["undetermined"] == 0, "other words of evidence are no other judgement"
    row = found(Moody())
    assert row["undetermined"] == 4 * TASKS
    assert row["probes"]["broke"] == ["null"]
    assert set(row["probes"]["accepted"]) == set(PROBES) - {"null"}


def test_an_environment_that_answers_otherwise_the_second_time_is_told():
    assert repeats(CALCULATOR, SAMPLE) == {"episodes": REPEATED, "differ": 0}

    class Drifting:
        """Every other environment of it lies in another place."""

        made = 0

        def __getattr__(self, name):
            return getattr(CALCULATOR, name)

        def make(self):
            Drifting.made += 1
            environment, number = CALCULATOR.make(), Drifting.made
            plain = environment.state_digest
            environment.state_digest = lambda: f"{plain()}{number % 2}"
            return environment

    assert repeats(Drifting(), SAMPLE)["differ"] == REPEATED


def test_a_verifier_does_not_vouch_for_itself():
    assert "agreement" not in found("answer", "answer")


def test_measured_and_below_is_refused_not_measured_is_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plain = Recipe()
    recipe = plain.model_copy(
        update={
            "feedback": plain.feedback.model_copy(update={"qualify": QualifySpec(agreement=0.95)})
        }
    )
    require(recipe, Path("run"), "d")
    document = {
        "verifiers": {"training": {"digest": "d"}},
        "qualification": {"agreement": {"share": 0.5}},
    }
    Path("run").mkdir()
    (Path("run") / profiles.FILE).write_text(json.dumps(document))
    with pytest.raises(UserError, match=r"on 50.0% of the cases, and 95.0% is asked"):
        require(recipe, Path("run"), "d")
    require(recipe, Path("run"), "another")
    require(plain, Path("run"), "d")
    document["qualification"]["agreement"]["share"] = 0.96
    (Path("run") / profiles.FILE).write_text(json.dumps(document))
    require(recipe, Path("run"), "d")
    for fact, said in (
        ({"undetermined": 3}, "judged 3 cases otherwise"),
        ({"repeats": {"episodes": 8, "differ": 2}}, "answered 2 of 8 demonstrations otherwise"),
    ):
        unsteady = {**document, "qualification": {**document["qualification"], **fact}}
        (Path("run") / profiles.FILE).write_text(json.dumps(unsteady))
        with pytest.raises(UserError, match=said):
            require(recipe, Path("run"), "d")
        require(plain, Path("run"), "d")
    document["qualification"]["labelled"] = {"share": 0.4}
    (Path("run") / profiles.FILE).write_text(json.dumps(document))
    with pytest.raises(UserError, match=r"on 40.0% of the cases"):
        require(recipe, Path("run"), "d")


def test_a_family_without_an_expert_gives_no_cases():
    class Mute:
        def __getattr__(self, name):
            return getattr(CALCULATOR, name)

        def demonstration(self, task):
            raise UserError("there is no expert")

    assert cases(Mute(), episode()) == []
    assert qualify(feedback("answer"), feedback("left_to_right"), [])["probes"] == {}
    assert replace(SAMPLE[0], kind="x").task == SAMPLE[0].task


ROWS = [
    {"data": {"answer": 14}, "messages": said("3 + 4 * 2", "14"), "success": True},
    {"data": {"answer": 14}, "messages": said("3 + 4 * 2", "11"), "success": False},
    {"data": {"answer": 14}, "messages": said("3 + 4 * 2", "11 or 14"), "success": False},
    {"data": {"answer": 5}, "messages": said("2 + 3", "five"), "success": True},
]


def written(folder, rows):
    path = folder / "labels.jsonl"
    path.write_text(
        "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    )
    return path


@pytest.mark.parametrize(
    ("verifier", "share", "disagreements"),
    [
        ("answer", 0.75, {"labelled: refused": 1}),
        ("answer-hackable", 0.5, {"labelled: accepted": 1, "labelled: refused": 1}),
    ],
)
def test_a_stated_sample_of_judged_conversations_is_the_outcome(
    tmp_path, verifier, share, disagreements
):
    told = labelled(written(tmp_path, ROWS), episode())
    row = against(feedback(verifier), told.cases, told.success)
    assert (row["share"], row["judged"], row["disagreements"]) == (share, 4, disagreements)
    assert row["false_negative"]["of"] == row["false_positive"]["of"] == 2


def test_every_bad_row_of_a_sample_is_named(tmp_path):
    rows = [
        ROWS[0],
        "{not json",
        {**ROWS[0], "success": 1},
        {**ROWS[0], "data": [14]},
        {**ROWS[0], "messages": ROWS[0]["messages"][:1]},
    ]
    with pytest.raises(UserError, match="4 of 5 rows are bad") as caught:
        labelled(written(tmp_path, rows), episode())
    assert all(f"row {number}:" in caught.value.what for number in (2, 3, 4, 5))
