"""The confusion benchmark in short form: real runs of an untrained policy, a few of its cases."""

import json
from dataclasses import replace

import confusion
import injections
import pytest
from injections import HEALTHY, INJECTIONS

from builders import episode
from hexad.contract.admission import Needs, admit
from hexad.evidence.diagnosis import stored

BED = confusion.Bed(
    (
        "policy.model=builtin:tiny",
        "task.limits={turns: 2, turn_tokens: 5, context_tokens: 200}",
        "data={groups: 2, group_size: 3}",
        "budget.episodes=66",
        "run.evaluation={every: null, final: none}",
    ),
    (1,),
)
DENSE = ("feedback.mapping=dense:DenseMapping",)
"""An untrained policy is right in nothing: this pays it for something all the same."""


def case(symptom, strength):
    found = (c for c in (*INJECTIONS, *HEALTHY) if (c.symptom, c.strength) == (symptom, strength))
    return next(found)


@pytest.mark.parametrize(
    ("symptom", "strength", "more"),
    [
        ("engine-mismatch", "3e-4 nats", DENSE),
        ("no-contrast", "three digits", ()),
        (None, "grpo lr 8e-4", DENSE),
    ],
)
def test_what_is_injected_is_named_first(tmp_path, symptom, strength, more):
    job = confusion.Job(case(symptom, strength), 1)
    confusion.run(job, BED, tmp_path / "run", more)
    row = confusion.named(tmp_path / "run", job)
    assert row["batches"] == 11 and row["injected"] == symptom
    assert row["named"][:1] == ([symptom] if symptom else [])


def test_what_tools_said_becomes_what_the_policy_said():
    """An untrained policy calls no tool, so this bug is shown on an episode made by hand."""
    honest = episode()
    given = replace(honest, segments=tuple(injections._swallowed(s) for s in honest.segments))
    assert given.action_count == honest.action_count + honest.costs.observation_tokens
    assert not list(admit(given, Needs(max_lag=0, learner_version=0)))
    recipe = confusion.recipe_of(confusion.Job(case(None, "grpo lr 8e-4"), 1), BED)
    (finding,) = stored.stored_rules(stored.Stored(recipe, 0, (given,)))
    assert finding.symptom.key == "observations-count" and "+2 in all" in finding.evidence[0]


def test_patches_leave_nothing_behind():
    from hexad.policy.local import LocalEngine
    from hexad.schedule.synchronous import SynchronousSource

    before = LocalEngine.sample, SynchronousSource.next
    for each in INJECTIONS:
        with pytest.raises(KeyError), each.patch():
            raise KeyError
    assert (LocalEngine.sample, SynchronousSource.next) == before


def test_every_case_is_a_recipe_and_a_run_of_its_own():
    for bed in confusion.BEDS.values():
        names = [job.name for job in confusion.jobs(bed)]
        assert len(names) == len(set(names))
    assert not set(confusion.BEDS["tune"].seeds) & set(confusion.BEDS["score"].seeds)
    bed = confusion.BEDS["score"]
    for job in confusion.jobs(replace(bed, seeds=bed.seeds[:1])):
        assert confusion.recipe_of(job, bed).name == job.name


def test_the_matrix_counts_what_is_named_first(tmp_path):
    def row(run, injected, named):
        return {"run": run, "injected": injected, "strength": "last digit", "named": named}

    rows = [
        row("a", "verifier-hole", ["verifier-hole", "drift"]),
        row("b", "verifier-hole", ["drift", "verifier-hole"]),
        row("c", "verifier-hole", []),
        row("d", None, []),
        row("e", None, ["stale"]),
    ]
    (head, _, hole, healthy) = confusion.matrix(rows).splitlines()
    names = [cell.strip() for cell in head.split("|")]
    cells = dict(zip(names, (cell.strip() for cell in hole.split("|")), strict=True))
    assert (cells["verifier-hole"], cells["drift"], cells["nothing"]) == ("1", "1", "1")
    assert cells["right first"].startswith("1/3 [6, 79]")
    assert cells["named at all"].startswith("2/3") and "1/2" in healthy
    assert "| verifier-hole | last digit | 1/3 | drift 1, nothing 1 |" in confusion.by_strength(
        rows
    )
    told = confusion.summary(rows)
    assert "named first: 1/3" in told and "false alarms: 1/2" in told and "e: stale" in told
    path = tmp_path / "rows.jsonl"
    assert confusion.known(path) == {}
    path.write_text("".join(json.dumps(r) + "\n" for r in (rows[1], {**rows[1], "named": []})))
    assert confusion.known(path)["b"]["named"] == []
