"""Pages without a browser: escaping, paging, filters, growth, and what is missing."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from shown_run import HOSTILE, SCRIPT, batch, copied, run

from fixtures.episodes import STORE_V1
from hexad.contract.faults import UserError
from hexad.contract.reward import Gate
from hexad.contract.store import Store
from hexad.evidence.ledger import Ledger
from hexad.evidence.traces import write
from hexad.learner.assemble import assemble
from hexad.learner.report import Trace
from hexad.view.conversation import numbers
from hexad.view.facts import read
from hexad.view.index import PAGE, Index, Query
from hexad.view.pages import report
from hexad.view.site import Site
from hexad.view.words import Words, visible


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    return run(tmp_path_factory.mktemp("runs") / "shown")


@pytest.fixture(scope="module")
def site(shown):
    return Site([shown])


def body(site, address, status=200):
    answer = site.answer(address)
    assert answer.status == status, answer.body
    return answer.body


def test_hostile_tokens_evidence_and_reasons_are_text(site):
    pages = [body(site, f"/run/0/0/episode?id=v2-{number}") for number in (1, 2)]
    pages.append(body(site, "/run/0/0/episodes?text=task%3C1"))
    for page in pages:
        assert "<script>" not in page and "onerror=alert(1)>" not in page.replace("&gt;", ";")
        assert "<img" not in page and "\x1b" not in page and "\u202e" not in page
    assert "&lt;script&gt;document.title=" in pages[0]
    assert "␛[31mred␛[0m" in pages[0] and "\\u202eevil" in pages[0]
    assert pages[0].count("document.title=") == 2  # the token, and the verdict's evidence
    assert "style&lt;b&gt;" in pages[0] and "task&lt;1&gt;" in pages[2]
    assert pages[1].count("document.title=") == 2  # the token, and the reason of the ending


def test_a_report_is_one_file_that_loads_nothing(shown):
    page = report(shown, read(shown), 4)
    assert not re.search(r"(src|href)=\"(?!#)", page), "something would be loaded"
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert "default-src &#39;none&#39;" in policy and "unsafe" not in policy
    assert page.count('class="episode"') == 3, "one of each ending and verdict"
    assert "<script>document.title" not in page and "\x1b" not in page


def test_the_hashes_of_the_policy_are_those_of_the_page(shown):
    import base64
    import hashlib

    page = report(shown, read(shown), 0)
    for tag in ("style", "script"):
        text = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.S)[1]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src &#39;sha256-{digest}&#39;" in page


def test_rewards_stand_at_their_owners(site):
    page = body(site, "/run/0/0/episode?id=v2-1")
    turn = page.index("<h4>turn 0")
    assert "reward style&lt;b&gt; 0.25" in page[turn : page.index("</h4>", turn)]
    call = page.index('class="span tool_call"')
    assert "reward call -0.5" in page[call : page.index("<pre>", call)]
    assert "reward task 0 " in page[page.index('<div class="end">') :]


def test_what_is_not_stored_is_said(site):
    page = body(site, "/run/0/0/episode?id=v2-0")
    assert "Not stored for this episode: ratio, advantage, value" in page
    for name in ("ratio", "advantage", "value"):
        assert re.search(rf'<option value="{name}" title="[^"]+" disabled>{name}: not stored', page)


def test_a_traced_episode_has_ratio_advantage_and_value(tmp_path):
    folder = run(tmp_path / "traced")
    (found,) = [e for e in Store(folder / "episodes").read([2]) if e.episode_id == "v2-0"]
    batch = assemble([found])
    acted = batch.action
    ratio = torch.where(acted, 1.25, torch.nan).double()
    write(folder, 2, batch, Trace(ratio, torch.where(acted, -0.5, torch.nan).double()), None)
    page = body(Site([folder]), "/run/0/0/episode?id=v2-0")
    assert "Not stored for this episode: value" in page
    assert "no critic spoke of it" in page
    shown = json.loads(re.search(r'class="data">(.*?)</script>', page, re.S)[1])[0]
    told = [r for r, a in zip(shown["ratio"], acted.tolist(), strict=True) if a]
    assert set(told) == {1.25} and shown["advantage"].count(-0.5) == len(told)
    assert [r is None for r in shown["ratio"]] == [not a for a in acted.tolist()]


def test_numbers_of_tokens_are_those_of_the_store(shown):
    episode = Store(shown / "episodes").read([2])[1]
    row = json.loads(numbers(episode, {}))[0]
    assert row["mask"] == [0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1]
    assert row["logprob"][5:9] == [-0.5, -0.5, -0.5, None]
    assert row["version"][5] == 1 and row["version"][0] is None


def test_filters_orders_and_pages(tmp_path):
    folder = run(tmp_path / "long", batches=30)
    index = Index(folder, {})
    index.refresh()
    every = index.find(Query())
    assert (every.count, len(every.rows), every.pages) == (120, PAGE, 3)
    last = index.find(Query(page=3))
    assert len(last.rows) == 20 and last.rows[-1]["episode_id"] == "v0-3"
    ids = [r["episode_id"] for page in (1, 2, 3) for r in index.find(Query(page=page)).rows]
    assert len(set(ids)) == 120
    assert index.find(Query(status="wrong")).count == 30
    assert index.find(Query(ending="truncated_tokens")).count == 30
    assert index.find(Query(text="V7-")).count == 4
    assert index.find(Query(most_reward=0.5)).count == 30
    assert index.find(Query(least_reward=-0.25, most_reward=-0.25)).count == 30
    assert index.find(Query(least_lag=1)).count == 58, "every other one, the first batch apart"
    assert index.find(Query(text="'; DROP TABLE episodes --")).count == 0
    assert index.find(Query(order="lowest reward")).rows[0]["reward"] == -0.25
    assert index.find(Query(order="most lag")).rows[0]["lag"] == 1


def test_quadrants_come_from_the_audit(shown, tmp_path):
    folder = copied(shown, tmp_path / "audited")
    index = Index(folder, {})
    index.refresh()
    assert index.choices()["quadrant"] == []
    cells = {"high-hit": ["v0-0"], "high-miss": ["v1-3", "v2-3"], "low-hit": [], "low-miss": []}
    (folder / "audit.json").write_text(json.dumps({"episodes": cells}))
    index.refresh()
    found = index.find(Query(quadrant="high-miss"))
    assert {row["episode_id"] for row in found.rows} == {"v1-3", "v2-3"}
    assert index.find(Query()).count == 12, "an episode has one cell at most"


def test_a_growing_and_merging_run_is_followed(shown, tmp_path):
    folder = copied(shown, tmp_path / "growing")
    site = Site([folder])
    assert "<dd>3</dd>" in body(site, "/run/0/0")
    before = body(site, "/run/0/stamp")
    body(site, "/run/0/0/episodes")
    ledger, store = Ledger(folder), Store(folder / "episodes")
    batch(ledger, store, 3)
    assert body(site, "/run/0/stamp") != before
    assert "<dd>4</dd>" in body(site, "/run/0/0")
    assert "<b>16</b> episodes" in body(site, "/run/0/0/episodes")
    store.compact()
    assert "<b>16</b> episodes" in body(site, "/run/0/0/episodes")
    assert "v3-1" in body(site, "/run/0/0/episode?id=v3-1")


def test_a_gate_and_weights_decide_what_an_episode_is_paid(shown, tmp_path):
    """As training had it: the gate's reward in place of the components, or their weighted sum."""
    folder = copied(shown, tmp_path / "gated")
    store = Store(folder / "episodes")
    last = store.read([2])
    store.truncate(1)
    store.append(2, [replace(last[0], gate=Gate(-3.0, SCRIPT)), *last[1:]])
    index = Index(folder, {"style<b>": 4.0, "unused": 9.0})
    index.refresh()
    rewards = {row["episode_id"]: row["reward"] for row in index.find(Query()).rows}
    assert (rewards["v1-0"], rewards["v2-0"]) == (1.0, -3.0)
    assert rewards["v2-1"] == 0.0 + 4.0 * 0.25 - 0.5
    page = body(Site([folder]), "/run/0/0/episode?id=v2-0")
    assert "the episode is paid -3 whatever its components are: &lt;script&gt;" in page


def test_parts_of_a_schema_without_gates_are_listed(shown, tmp_path):
    folder = copied(shown, tmp_path / "old")
    shutil.rmtree(folder / "episodes")
    shutil.copytree(STORE_V1, folder / "episodes")
    index = Index(folder, {})
    index.refresh()
    assert index.find(Query()).count == len(Store(STORE_V1).read()) > 0


def test_several_runs_are_shown_side_by_side(shown, tmp_path):
    site = Site([shown, copied(shown, tmp_path / "other")])
    page = body(site, "/")
    assert "Runs side by side" in page and "75.0 % [70.5, 79.0] of 400" in page
    assert page.count('class="line run') == 2
    assert 'data-live="/compare/stamp"' in page
    before = body(site, "/compare/stamp")
    with (tmp_path / "other" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 3}) + "\n")
    assert body(site, "/compare/stamp") != before, "either of them grows"


@pytest.mark.parametrize(
    ("address", "status", "said"),
    [
        ("/nowhere", 404, "no such page"),
        ("/run/7/0", 404, "no such page"),
        ("/run/0/9", 404, "no such page"),
        (f"/run/{'9' * 5000}", 404, "no such page"),
        ("/assets/../server.py", 404, "no such page"),
        ("/run/0/0/episode?id=none", 400, "no stored episode"),
        ("/run/0/0/episodes?least_lag=many", 400, "not a number"),
        ("/run/0/0/episodes?order=step%3B", 400, "no order"),
        ("/run/0/0/episodes?colour=red", 400, "no filter"),
        (f"/run/0/0/episode?id={SCRIPT}", 400, "&lt;script&gt;"),
    ],
)
def test_wrong_addresses_get_a_clear_answer(site, address, status, said):
    assert said in body(site, address, status)


def test_what_is_no_run_is_the_users_mistake(tmp_path):
    with pytest.raises(UserError, match="holds no run"):
        Site([tmp_path]).check()


def test_a_run_without_episodes_batches_or_tokenizer_is_shown(shown, tmp_path):
    folder = tmp_path / "fresh"
    folder.mkdir()
    (folder / "recipe.yaml").write_text((shown / "recipe.yaml").read_text())
    site = Site([folder])
    assert "No batch has ended yet" in body(site, "/")
    assert "<b>0</b> episodes" in body(site, "/run/0/0/episodes")
    assert Words(folder).of([3]) == ["[3]"]


def test_a_torn_part_is_named(shown, tmp_path):
    folder = copied(shown, tmp_path / "torn")
    part = folder / "episodes" / "part-000001.parquet"
    part.write_bytes(part.read_bytes()[:-40])
    page = body(Site([folder]), "/run/0/0/episodes", 400)
    assert "episodes of step 1 cannot be read" in page


@pytest.mark.parametrize("text", HOSTILE)
def test_no_sign_acts_or_hides(text):
    assert all(sign.isprintable() for sign in visible(text + "\x00\x7f\x9b\u200b\u2066"))


def test_lights_follow_their_rules(shown):
    from hexad.view.lights import lights

    found = {light.axis: light for light in lights(read(shown)[0])}
    states = {axis: light.state for axis, light in found.items()}
    assert states["feedback"] == states["credit"] == "green" and states["critic"] == "off"
    assert states["action"] == "amber", "one of four episodes was cut: above a tenth"
    mixed = next(each for each in found["credit"].findings if "right and wrong" in each.name)
    assert (mixed.value, mixed.rule) == ("50.0%", "green at least 20.0%, red below 5.0%")


def test_every_rule_turns_at_its_bounds():
    from hexad.evidence.diagnosis.findings import SYMPTOMS
    from hexad.evidence.triggers import concerning
    from hexad.recipe.load import load
    from hexad.view import lights

    for rule in lights.RULES:
        sign = 1e-6 if rule.good > rule.bad else -1e-6
        assert (rule.state(rule.good), rule.state(rule.good - sign)) == ("green", "amber")
        assert (rule.state(rule.bad), rule.state(rule.bad - sign)) == ("amber", "red")
        assert rule.state(None) == "unknown" and rule.axis in lights.AXES
    folder = Path(__file__).parents[2] / "recipes"
    recipes = [load(folder / f"calculator-{name}.yaml") for name in ("grpo", "sao", "dpo")]
    recipes += [stage.recipe for stage in load(folder / "calculator.yaml").stages]
    keys = {trigger.key for recipe in recipes for trigger in concerning(recipe)}
    assert keys == set(lights._SIGNS), "every sign has its axis"
    assert {symptom.axis for symptom in SYMPTOMS.values()} <= set(lights.AXES)


def test_a_symptom_of_the_diagnosis_turns_its_axis(shown, tmp_path):
    from hexad.view.lights import lights

    folder = copied(shown, tmp_path / "sick")
    path = folder / "metrics.jsonl"
    rows = [json.loads(line) | {"mismatch/engine/max": 0.5} for line in path.open()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = next(light for light in lights(read(folder)[0]) if light.axis == "data")
    assert data.state == "red" and "engine-mismatch" in data.findings[-1].name


def test_the_diagnosis_is_a_page_with_what_was_seen_and_what_to_try(shown, tmp_path):
    folder = copied(shown, tmp_path / "sick")
    path = folder / "metrics.jsonl"
    rows = [json.loads(line) | {"mismatch/engine/max": 0.5} for line in path.open()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    shutil.rmtree(folder / "episodes")
    page = body(Site([folder]), "/run/0/0/diagnosis")
    assert "data: the engine&#39;s log-probs are not the learner&#39;s, since batch 0 (95%" in page
    assert "<li>|log learner / behaviour| reaches 0.5; rounding is " in page
    assert "<ol><li>the same precision in engine and learner" in page
    assert "Not checked: masks, clock, reductions and quadrants: no stored episodes" in page
    assert "is seen in" not in page, "something was found"


def test_a_diagnosis_of_episodes_that_cannot_be_judged_says_so(site, shown, tmp_path):
    page = body(site, "/run/0/0/diagnosis")
    assert "Not checked: quadrants: no checkpoint is whole" in page
    assert "<th>ending terminal</th>" in page, "what needs no verifier is shown all the same"
    assert "of the 10 symptoms, none that could be checked" in report(shown, read(shown), 0).lower()
    folder = copied(shown, tmp_path / "torn")
    part = folder / "episodes" / "part-000001.parquet"
    part.write_bytes(part.read_bytes()[:-40])
    assert "Not diagnosed: " in body(Site([folder]), "/run/0/0/diagnosis")


def test_the_flow_says_where_everything_went(shown):
    from hexad.view.flow import flows

    episodes, tokens, seconds = flows(read(shown)[0])
    assert [stage.amount for stage in episodes.stages] == [12, 12, 12, 12, 12, 12]
    assert [(s.name, s.amount) for s in tokens.stages][2:] == [("trained", 60), ("in the loss", 60)]
    assert [s.amount for s in seconds.stages] == [3.75, 3.75, 2.25, 2.25]
    assert seconds.stages[2].lost == (("rollout", 1.5),)


def test_a_curve_keeps_its_ends_and_never_averages():
    from hexad.view.charts import Line, Scale, number

    thin = Line("l", "main", range(1000), range(1000)).thinned()
    assert len(thin.x) <= 240 and thin.x[-1] == 999 and set(thin.y) <= set(range(1000))
    scale = Scale.over([0.0, 97.0], (0, 100))
    assert list(scale.ticks(4)) == [0, 50] and scale(97.0) == 100
    assert [number(v) for v in (8898, 45_120, 0.0341, 3e-6)] == [
        "8,898",
        "45.1k",
        "0.0341",
        "3e-06",
    ]
