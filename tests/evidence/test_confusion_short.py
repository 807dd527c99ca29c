"""The confusion benchmark in short form: real runs of an untrained policy, a few of its cases."""

import json
import shutil
from dataclasses import replace

import confusion
import numpy as np
import pytest
from injections import HEALTHY, INJECTIONS

from builders import episode
from hexad.contract.faults import ContractViolation
from hexad.contract.reward import Reward
from hexad.contract.segment import SpanKind
from hexad.evidence.diagnosis import stored
from hexad.evidence.diagnosis.diagnose import diagnose
from hexad.evidence.folder import parts
from hexad.rollout.recorder import Recorder

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


@pytest.mark.parametrize("strength", ["discount of .998 a place", "discount of .98 a place"])
def test_a_discount_by_place_reads_what_tools_said(strength):
    """An untrained policy calls no tool, so this mistake is shown on episodes made by hand."""
    recipe = confusion.recipe_of(confusion.Job(case("observations-count", strength), 1), BED)
    given = tuple(episode(n, rewards=(Reward("task", float(n)),)) for n in (0, 1))
    (finding,) = stored.stored_rules(stored.Stored(recipe, 0, given))
    assert finding.symptom.key == "observations-count" and "2 times as long" in finding.evidence[0]
    usual = confusion.recipe_of(confusion.Job(case(None, "grpo lr 8e-4"), 1), BED)
    assert stored.stored_rules(stored.Stored(usual, 0, given)) == []


def test_the_books_refuse_what_a_broken_recorder_calls_actions(tmp_path, monkeypatch):
    """Why no such bug is among the injections: the first batch of the run stops it."""
    whole = Recorder.finish

    def finish(self):
        """The token before the policy's first one is its own, too, by every word of the record."""
        segment = whole(self)
        place = int(segment.action.argmax()) - 1
        more = np.arange(len(segment)) == place
        number = next(n for n, span in enumerate(segment.spans) if span.end == place + 1)
        before = segment.spans[number]
        split = (replace(before, end=place), replace(before, start=place, kind=SpanKind.TEXT))
        return replace(
            segment,
            spans=(*segment.spans[:number], *split, *segment.spans[number + 1 :]),
            action=segment.action | more,
            weight=np.where(more, np.float32(1.0), segment.weight),
            logprob=np.where(more, np.float32(-1.0), segment.logprob),
            version=np.where(more, segment.version.max(), segment.version),
        )

    monkeypatch.setattr(Recorder, "finish", finish)
    job = confusion.Job(case(None, "grpo lr 8e-4"), 1)
    with pytest.raises(ContractViolation, match="the books hold"):
        confusion.run(job, BED, tmp_path / "run", DENSE)


def test_a_lack_of_contrast_is_tried_again_hotter_and_needs_no_checkpoint_to_be_seen(tmp_path):
    job, folder = confusion.Job(case("no-contrast", "three digits"), 1), tmp_path / "run"
    confusion.run(job, BED, folder)
    (part,) = parts(folder)
    cold, hot = diagnose(part, sample=True)["facts"]["temperatures"]
    assert (cold["temperature"], hot["temperature"]) == (1.0, 1.5)
    assert cold["groups"] == hot["groups"] == 8 and cold["contrast"] == hot["contrast"] == 0
    assert "temperatures" not in diagnose(part)["facts"]
    shutil.rmtree(folder / "checkpoints")
    blind = diagnose(part, sample=True)
    assert [f["key"] for f in blind["findings"]] == ["no-contrast"]
    assert "quadrants: this run has no whole checkpoint" in blind["not_checked"]


def test_patches_leave_nothing_behind():
    from hexad.policy.local import LocalEngine

    before = LocalEngine.sample, Recorder.finish
    for each in INJECTIONS:
        with pytest.raises(KeyError), each.patch():
            raise KeyError
    assert (LocalEngine.sample, Recorder.finish) == before


def test_a_case_may_start_from_what_another_run_taught_the_policy(tmp_path):
    taught = case("no-contrast", "three digits")
    job = confusion.Job(replace(taught, before=("name=taught", "budget.episodes=12")), 1)
    policy = confusion.start(job, BED, tmp_path, "builtin:tiny")
    (part,) = parts(tmp_path / "before-no-contrast-1")
    assert policy == str(part.folder) and len(part.metrics) == 2
    confusion.run(job, BED, tmp_path / "run", [f"policy.model={policy}", "budget.episodes=6"])
    (run,) = parts(tmp_path / "run")
    assert run.recipe.policy.model == policy
    written = (part.folder / "seconds.json").stat().st_mtime_ns
    assert confusion.start(job, BED, tmp_path, "builtin:tiny") == policy
    assert (part.folder / "seconds.json").stat().st_mtime_ns == written, "trained once"
    plain = confusion.Job(taught, 1)
    assert confusion.start(plain, BED, tmp_path, "builtin:tiny") == "builtin:tiny"


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
