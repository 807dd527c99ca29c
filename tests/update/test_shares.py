import pytest
import torch

from hexad.contract.tally import Tally
from hexad.update.shares import LAGS, LENGTHS, shares

FLAG = torch.tensor([True, False, True, True, False])
ADVANTAGE = torch.tensor([1.0, 1.0, -1.0, 0.0, -2.0])
LENGTH = torch.tensor([63, 64, 255, 256, 5000])
LAG = torch.tensor([0, 1, 2, 3, 40])


def found():
    return shares("clip/above", FLAG, ADVANTAGE, LENGTH, LAG)


def test_by_sign():
    values = found()
    assert values["clip/above"].tolist() == FLAG.tolist()
    assert values["clip/above_positive"].tolist() == [True, False]
    assert values["clip/above_negative"].tolist() == [True, False]


def test_by_length_and_lag():
    values = {name.split("/")[-1]: flag.tolist() for name, flag in found().items()}
    assert [values[f"length_{low}"] for low in LENGTHS] == [
        [True],
        [False, True],
        [True],
        [],
        [False],
    ]
    assert [values[f"lag_{low}"] for low in LAGS] == [[True], [False], [True, True], [], [False]]


@pytest.mark.parametrize("kind", ["length", "lag"])
def test_buckets_are_a_partition(kind):
    total = sum(
        (Tally.of(flag.numpy()) for name, flag in found().items() if f"/{kind}_" in name), Tally()
    )
    assert (total.count, total.sum) == (5, 3.0)


def test_every_name_is_always_there():
    empty = shares("clip/above", FLAG[:0], ADVANTAGE[:0], LENGTH[:0], LAG[:0])
    assert empty.keys() == found().keys()


def test_impossible_ages_are_refused():
    with pytest.raises(ValueError):
        shares("gate", FLAG, ADVANTAGE, LENGTH, LAG - 1)
    with pytest.raises(ValueError):
        shares("gate", FLAG, ADVANTAGE, LENGTH - 64, LAG)
