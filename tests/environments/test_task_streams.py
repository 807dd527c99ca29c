from collections import Counter

import pytest

from hexad.contract.digest import digest
from hexad.contract.faults import UserError
from hexad.contract.task import Split
from hexad.environments.calculator import CalculatorFamily
from hexad.environments.calculator_hard import HardCalculatorFamily
from hexad.environments.stream import SHARES, split_of

EVALUATION = [Split.SELECTION, Split.HIDDEN, Split.GATE]


@pytest.mark.parametrize("family", [CalculatorFamily, HardCalculatorFamily])
def test_splits_are_disjoint_and_evaluation_tasks_distinct(family):
    made = family()
    ids = {split: [t.task_id for t in made.tasks(split, 1500)] for split in Split}
    for split in EVALUATION:
        assert len(set(ids[split])) == 1500
    assert len(set().union(*ids.values())) == sum(len(set(v)) for v in ids.values())


def test_split_is_a_property_of_the_text_alone():
    narrow = CalculatorFamily({"high": 9, "seed": 3}, {"hidden": {"operations": {"2": 1}}})
    for split in Split:
        tasks = narrow.tasks(split, 50)
        assert {split_of(t.data["expression"]) for t in tasks} == {split}
        assert {t.split for t in tasks} == {split}
    shares = Counter(split_of(f"{a}*{b}-{c}") for a in range(30) for b in range(30) for c in (1, 2))
    for split, share in SHARES.items():
        assert shares[split] / 1800 == pytest.approx(share, abs=0.03)


def test_tasks_are_named_by_split_and_index():
    one, two = CalculatorFamily(), CalculatorFamily()
    late = list(two.tasks(Split.HIDDEN, 5, offset=95))
    assert list(one.tasks(Split.HIDDEN, 100))[95:] == late
    assert list(one.tasks(Split.HIDDEN, 5, offset=95)) == late
    assert one.tasks(Split.TRAIN, 0) == []


def test_the_streams_are_frozen():
    """Pinned from version 1: a change moves every published result, so bump the version."""

    def name(family):
        texts = [[t.data["expression"] for t in family().tasks(s, 200)] for s in Split]
        return digest(texts)[:16]

    assert name(CalculatorFamily) == "94cdffbed66fa601"
    assert name(HardCalculatorFamily) == "4af9df5edfe0607b"


def test_seed_orders_training_only_and_is_in_no_digest():
    one, two = CalculatorFamily({"seed": 1}), CalculatorFamily({"seed": 2})
    assert list(one.tasks(Split.TRAIN, 20)) != list(two.tasks(Split.TRAIN, 20))
    for split in EVALUATION:
        assert list(one.tasks(split, 20)) == list(two.tasks(split, 20))
    assert one.digest == two.digest


def test_shares_of_lengths_hold_and_splits_have_their_own():
    family = CalculatorFamily({}, {"train": {"operations": {1: 0.6, "2": 0.3, 3: 0.1}}})
    lengths = Counter(t.data["operations"] for t in family.tasks(Split.TRAIN, 3000))
    assert lengths[1] == pytest.approx(1800, abs=100)
    assert lengths[3] == pytest.approx(300, abs=60)
    hidden = Counter(t.data["operations"] for t in family.tasks(Split.HIDDEN, 400))
    assert hidden[1] < 0.3 * 400 < hidden[3]


def test_training_repeats_only_after_everything_was_used():
    family = CalculatorFamily({"high": 4, "operations": {1: 1}})
    ids = [t.task_id for t in family.tasks(Split.TRAIN, 500)]
    round_ = len(set(ids))
    assert 20 < round_ < 48
    for start in range(0, 500 - round_, round_):
        assert len(set(ids[start : start + round_])) == round_
    assert ids[:round_] != ids[round_ : 2 * round_]


def test_a_finite_split_says_what_it_holds():
    family = CalculatorFamily({"high": 4, "operations": {1: 1}})
    with pytest.raises(UserError, match="selection split holds only") as caught:
        family.tasks(Split.SELECTION, 200)
    held = int(caught.value.what.split()[-2])
    assert caught.value.where == "task.selection.count" and caught.value.fix
    assert len({t.task_id for t in family.tasks(Split.SELECTION, held)}) == held


def test_an_evaluation_split_goes_on_without_a_length_that_is_used_up():
    family = CalculatorFamily({"operations": {1: 0.5, 2: 0.5}})
    tasks = family.tasks(Split.HIDDEN, 600)
    lengths = Counter(t.data["operations"] for t in tasks)
    assert len({t.task_id for t in tasks}) == 600
    assert lengths[1] == 69 and lengths[2] == 531


def test_a_length_that_cannot_be_drawn_is_a_clear_error():
    family = CalculatorFamily({"low": 99999, "high": 99999, "operators": "*", "operations": {3: 1}})
    with pytest.raises(UserError, match="holds only 0 tasks"):
        family.tasks(Split.TRAIN, 1)
