"""The seed's tables as data: typed here a second time, from the text."""

import pytest
from advice_world import ask

from hexad.advice.checklist import WORK
from hexad.advice.critics import CHECKS, CONDITIONS
from hexad.advice.measured import FAULTED, SIGNAL
from hexad.advice.requirements import ONLINE, REQUIREMENTS
from hexad.advice.shapes import SHAPES
from hexad.advice.starts import STARTS
from hexad.advice.triggers import TRIGGERS
from hexad.evidence.metrics import METRICS, describe
from hexad.evidence.triggers import RULES
from hexad.recipe.methods import METHODS

MATRIX = {
    "experts": (("sft",), ("mask", "failed", "closed-loop"), ("closed-loop-errors",)),
    "subjective": (("dpo",), ("pairs", "reference", "length"), ("outside-the-data",)),
    "verifiable": (
        ("rloo", "grpo"),
        ("share of groups", "tokens"),
        ("no-contrast", "heavy-barrier"),
    ),
    "single-attempt": (("ppo",), ("pretrained", "GAE", "bootstrap"), ("critic-off",)),
    "long-tail": (("critic-async",), ("log-probs", "lag", "dropped"), ("barrier-is-not-the-cost",)),
    "checkable-steps": ((), ("independent", "audited"), ("process-hacked",)),
    "overflow": ((), ("actions", "weight", "loses"), ("single-window-stronger",)),
    "irreversible": ((), ("permissions", "approves"), ()),
}
"""First version, words of the companions, and the sign to change direction, row by row."""
TABLE = {
    "sft": ("no", "no"),
    "dpo": ("not within a round", "no"),
    "ppo": ("usually", "usually"),
    "rloo": ("yes", "no"),
    "grpo": ("yes", "no"),
    "critic-async": ("yes", "yes"),
}
"""New rollouts and a learned critic, starting point by starting point."""
SHAPED = {
    "experts": {"feedback": {"demonstrations": "rich", "protocol": "unlearned"}},
    "subjective": {"feedback": {"goal": "subjective"}, "data": {"trials": "costly"}},
    "verifiable": {},
    "single-attempt": {"critic": {"candidates": "single"}},
    "long-tail": {"timing": {"durations": "heavy_tailed", "learner": "idle"}},
    "checkable-steps": {"feedback": {"process": "checkable"}},
    "overflow": {"action": {"overflow": True}, "credit": {"horizon": "long"}},
    "irreversible": {"data": {"irreversible": True, "trials": "costly", "collection": "fixed"}},
}


def test_the_matrix_has_the_eight_rows_in_order():
    assert [shape.key for shape in SHAPES] == list(MATRIX)
    for number, shape in enumerate(SHAPES, start=1):
        first, words, triggers = MATRIX[shape.key]
        assert shape.first == first and shape.triggers[: len(triggers)] == triggers
        assert bool(shape.triggers) == bool(triggers)
        assert len(shape.companions) == len(words)
        assert all(w in text for w, text in zip(words, shape.companions, strict=True))
        assert shape.source == f"长程 Agent 的选择矩阵, row {number}"


@pytest.mark.parametrize("key", MATRIX)
def test_a_task_of_one_shape_is_recognised_and_a_plain_one_is_not(key):
    assert key in [shape.key for shape in ask(SHAPED[key]).shapes]
    plain = [shape.key for shape in ask().shapes]
    assert plain == ["verifiable"]


def test_only_irreversible_risk_has_no_way_out():
    assert [shape.key for shape in SHAPES if not shape.triggers] == ["irreversible"]


def test_the_six_starting_points_say_what_the_table_says():
    assert {start.key: (start.rollouts, start.critic) for start in STARTS} == TABLE
    for start in STARTS:
        sampled = start.rollouts in ("yes", "usually")
        assert (set(ONLINE) <= set(start.assumes)) == sampled
        assert ("critic" in start.assumes) == (start.critic != "no")
        assert set(start.assumes) <= set(REQUIREMENTS) and set(start.triggers) <= set(TRIGGERS)


def test_starting_points_agree_with_the_records_of_their_methods():
    known = [
        (start, METHODS[name]) for start in STARTS for name in start.methods if name in METHODS
    ]
    assert len(known) >= 6
    for start, record in known:
        assert record.assumptions.critic == ("critic" in start.assumes)
        assert (record.assumptions.min_group_size > 1) == ("candidates" in start.assumes)
        stale = record.values().get("timing.mode") == "asynchronous"
        assert stale == ("barrier" in start.assumes)


def test_both_tables_about_critics():
    assert [row.condition.split()[0] for row in CONDITIONS] == [
        "candidates", "reward", "horizon", "system", "main",
    ]  # fmt: skip
    assert len(CHECKS) == 5
    assert all(describe(check.metric) is not None for check in CHECKS)


def test_every_metric_that_fires_is_a_column():
    keys = {metric.key for metric in METRICS}
    for trigger in TRIGGERS.values():
        assert sum(map(bool, (trigger.signs, trigger.reads, trigger.unmeasured))) == 1
        assert all(sign.metric in keys for sign in trigger.signs)


def test_what_is_read_beside_the_columns_has_a_rule():
    assert {key for key, trigger in TRIGGERS.items() if trigger.reads} == set(RULES)


def test_thresholds_are_those_of_the_table_of_metrics():
    healthy = {metric.key: metric.healthy for metric in METRICS}
    assert healthy["group/signal"] == f"above {SIGNAL}"
    assert healthy["episode/faulted"] == healthy["episode/stale"] == f"below {FAULTED}"
    assert TRIGGERS["no-contrast"].signs[0].threshold == SIGNAL
    assert TRIGGERS["stale-dropped"].signs[0].threshold == FAULTED


def test_every_row_names_a_section_of_the_seed():
    rows = (*SHAPES, *STARTS, *CONDITIONS, *CHECKS, *WORK, *TRIGGERS.values())
    assert all(row.source for row in rows)
    assert [work.source for work in WORK] == [f"一套可执行的选择顺序, {n}" for n in range(1, 9)]
