"""The end of ``hexad train``: ten lines, and none that a page would contradict."""

import io
import json

import pytest
from rich.console import Console
from shown_run import copied, run

from hexad.cli.view import write as written
from hexad.evidence.summary import summarize
from hexad.recipe.dump import write
from hexad.recipe.load import load
from hexad.view.brief import brief, states
from hexad.view.facts import read
from hexad.view.lights import AXES, decisive, lights

REASON = "budget episodes is used up (12 of 12)"
SIGN = {
    "key": "no-contrast",
    "step": 1,
    "what": "groups agree",
    "fires_when": "",
    "then": "mix tasks",
    "holds": True,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return run(tmp_path_factory.mktemp("brief") / "one run")


def told(folder, **changes):
    """The lines by their first word."""
    return {line.split()[0]: line for line in brief(document(folder, **changes))[1:]}


def document(folder, **changes):
    found = {**summarize(folder), "reason": REASON, "axes": states(read(folder))}
    found["stages"][0] |= changes
    return found


def rebooked(folder, change):
    """Write the last row of the books anew."""
    path = folder / "ledger.jsonl"
    *rows, last = [json.loads(line) for line in path.read_text().splitlines()]
    change(last)
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, last]))
    return folder


def test_the_lines_say_what_was_reached_and_what_it_cost(trained):
    first, *_ = brief(document(trained))
    assert first == f"{trained}: {REASON}, after 3 batches"
    lines = told(trained)
    assert lines["hidden"].split("success ")[1] == (
        "25.0 % [21.0, 29.5] of 400 -> 75.0 % [70.5, 79.0] of 400, used twice"
    )
    assert lines["selection"].endswith("25.0 % [19.5, 31.4] of 200 -> 75.0 % [68.6, 80.5] of 200")
    assert lines["spent"].split("spent")[1].strip() == (
        "12 of 12 episodes, 60 rollout tokens, 30 train tokens, 3 optimiser steps, 4 s"
    )
    assert lines["lost"].endswith("episodes dropped: none; tokens dropped: 0; faults: none")
    assert lines["next"].count(f"'{trained}'") == 3  # it holds a space


def test_colours_and_rules_are_those_of_the_page(trained):
    (facts,) = read(trained)
    seen = {light.axis: light for light in lights(facts)}
    parts = dict(part.split(": ") for part in told(trained)["axes"].split(None, 1)[1].split("; "))
    assert {a: s for s, names in parts.items() for a in names.split(", ")} == {
        axis: seen[axis].state for axis in AXES
    }
    why = told(trained)["because"]
    for axis, light in seen.items():
        worst = decisive(light)
        rule = f"{axis}: {worst.name} {worst.value} ({worst.rule})"
        assert (rule in why) == (light.state in ("red", "amber"))
    assert "action: episodes that a limit cut 25.0% (green at most 10.0%, red above 50.0%)" in why


def test_losses_and_faults_are_counted_by_kind(trained, tmp_path):
    def change(row):
        funnel = row["funnel"]
        funnel["ended"]["kinds"] |= {"environment_error": 2, "infrastructure_error": 1}
        # Verdicts of faulted endings repeat them; a failed verifier is the only other fault.
        unscored = {"environment_failure": 2, "verifier_error": 4, "not_judged": 9}
        funnel["rewarded"]["lost"] = unscored
        funnel["valid"]["lost"] = {"empty_action": 1}
        funnel["accepted"]["lost"] = {"stale_version": 3}
        row["books"]["dropped"] = {"stale_version": 30, "run_ended": 7}
        row["rows"] = {"data": "d", "read": 9, "dropped": {"no_prompt": 2}}
        cells = {"unauthorised-success": 2, "unauthorised-failure": 3}
        row["conduct"] = {
            "episodes": 12,
            "violating": 5,
            "refused": {},
            "cells": cells,
            "gated": {},
        }

    folder = rebooked(copied(trained, tmp_path / "run"), change)
    assert told(folder)["lost"].split(None, 1)[1] == (
        "episodes dropped: 3 stale_version, 1 empty_action; tokens dropped: 37; "
        "rows dropped: 2 no_prompt; episodes with a violation: 5, 2 of them successful; "
        "faults: 4 verifier_error, 2 environment_error, 1 infrastructure_error"
    )


def test_ten_lines_are_enough_for_everything(trained):
    found = document(trained, signs=[SIGN], unprofiled=True)
    lines = brief(found)
    assert len(lines) == 10 and not any("\n" in line for line in lines)
    assert "since batch 1: groups agree: mix tasks" in lines[7]
    assert "barrier profile (shown is asynchronous)" in lines[8]


def test_stages_are_named_and_summed(trained, tmp_path):
    for name in ("first", "second"):
        copied(trained, tmp_path / "path" / name)
    (tmp_path / "one.yaml").write_text((trained / "recipe.yaml").read_text())
    stages = "name: path\nstages:\n" + "".join(
        f"  - {{name: {name}, recipe: one.yaml{gate}}}\n"
        for name, gate in (("first", ", gate: {split: selection, success: 0.1}"), ("second", ""))
    )
    (tmp_path / "path.yaml").write_text(stages)
    write(load(tmp_path / "path.yaml"), tmp_path / "path" / "recipe.yaml")
    lines = told(tmp_path / "path")
    assert " -> first 75.0 % [70.5, 79.0] of 400 -> second 75.0 %" in lines["hidden"]
    assert lines["hidden"].endswith("used 4 times")
    assert lines["spent"].split(None, 1)[1].startswith("24 episodes, 120 rollout tokens")
    assert lines["axes"].split(None, 1)[1].startswith("first (") and "), second (" in lines["axes"]
    assert "first action: episodes" in lines["because"]
    assert "second action: episodes" in lines["because"]


def test_the_tables_are_in_the_report(trained, tmp_path):
    shown = io.StringIO()
    written(trained, tmp_path / "page.html", 0, Console(file=shown, width=200))
    assert "Summary of" in shown.getvalue() and "tasks > started > ended" in shown.getvalue()


def test_a_run_that_only_began_has_few_lines(trained, tmp_path):
    folder = tmp_path / "begun"
    folder.mkdir()
    write(load(trained / "recipe.yaml"), folder / "recipe.yaml")
    lines = brief(document(folder))
    assert [line.split()[0] for line in lines[1:]] == [
        "spent",
        "lost",
        "axes",
        "unmeasured",
        "next",
    ]
    assert "0 optimiser steps" in lines[1]
