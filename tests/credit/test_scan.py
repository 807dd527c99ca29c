import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hexad.credit import scan as module
from hexad.credit.scan import Steady, chunks, positions, scan


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def direct(x, a):
    """The recurrence as it is written."""
    y, behind = [0.0] * len(x), 0.0
    for t in reversed(range(len(x))):
        behind = y[t] = float(x[t]) + float(a[t]) * behind
    return tensor(y)


def steady(x, last, factor):
    """The same by :class:`Steady`: ``a`` is the factor, and 0 where ``last``."""
    y, sweep = torch.full_like(x, math.nan), Steady(factor)
    for part in chunks(len(x)):
        sweep(x[part], positions(last[part]), y[part])
    return y


def test_by_hand():
    assert scan(tensor([1, 2, 4]), tensor([0.5, 0.25, 9])).tolist() == [2.5, 3.0, 4.0]
    assert scan(tensor([3]), tensor([0.5])).tolist() == [3.0]
    assert scan(tensor([]), tensor([])).tolist() == []


@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 127, 128, 129, 1000, 4097])
@pytest.mark.parametrize("blocks", [1, 2, 3, 4096])
def test_every_block_and_chunk_border(size, blocks, monkeypatch):
    monkeypatch.setattr(module, "BLOCKS", blocks)
    generator = torch.Generator().manual_seed(size)
    x = torch.randn(size, generator=generator, dtype=torch.float64)
    a = torch.rand(size, generator=generator, dtype=torch.float64) ** 0.01  # reaches over blocks
    a[torch.rand(size, generator=generator) < 0.002] = 0.0
    a[torch.rand(size, generator=generator) < 0.3] = 1.0
    assert scan(x, a) == pytest.approx(direct(x, a), abs=1e-12)


def test_more_than_one_real_chunk():
    size = module.BLOCK * module.BLOCKS + 77
    x = torch.zeros(size, dtype=torch.float64)
    x[-1] = 1.0
    assert scan(x, torch.ones_like(x)).tolist() == [1.0] * size
    a = torch.full_like(x, 0.9999)
    assert float(scan(x, a)[0]) == pytest.approx(0.9999 ** (size - 1), rel=1e-9)


def test_rows_are_kept_apart_exactly():
    """Whatever stands in another row, not even the last bit moves."""
    a = torch.full((300,), 0.9, dtype=torch.float64)
    a[149] = 0.0
    x = torch.randn(300, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    other = x.clone()
    other[150:] = 1e300
    assert torch.equal(scan(x, a)[:150], scan(other, a)[:150])


def test_the_last_factor_has_nothing_to_multiply():
    assert scan(tensor([1.0, 2.0]), tensor([0.5, 1e308])).tolist() == [2.0, 2.0]


def test_long_decays_underflow_quietly():
    size = 100_000
    x, a = torch.ones(size, dtype=torch.float64), torch.full((size,), 0.5, dtype=torch.float64)
    assert scan(x, a)[0].item() == pytest.approx(2.0, abs=1e-15)


@pytest.mark.parametrize("size", [2, 64, 500])
def test_only_out_is_written(size):
    x, a = torch.randn(size, dtype=torch.float64), torch.rand(size, dtype=torch.float64)
    kept = x.clone(), a.clone()
    expected = scan(x, a)
    assert torch.equal(x, kept[0])
    assert torch.equal(a, kept[1])
    assert scan(x, a, out=x) is x
    assert torch.equal(x, expected)
    assert torch.equal(a, kept[1])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused(bad):
    for x, a in ([[1.0, bad, 1.0], [0.5] * 3], [[1.0] * 3, [0.5, bad, 0.5]]):
        with pytest.raises(ValueError, match="finite"):
            scan(tensor(x), tensor(a))
    with pytest.raises(ValueError, match="overflows"):
        scan(torch.ones(4000, dtype=torch.float64), torch.full((4000,), 2.0, dtype=torch.float64))


def test_shapes_and_types_are_checked():
    good = tensor([1.0, 2.0])
    with pytest.raises(ValueError, match="must be"):
        scan(good, tensor([1.0]))
    with pytest.raises(ValueError, match="must be"):
        scan(good.view(1, 2), good.view(1, 2))
    with pytest.raises(ValueError, match="must be"):
        scan(good, good, out=tensor([1.0]))
    with pytest.raises(ValueError, match="float64"):
        scan(good.float(), good.float())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(-1e6, 1e6), st.sampled_from([0.0, 0.5, 0.9, 0.999, 1.0])),
        min_size=1,
        max_size=300,
    )
)
def test_equals_the_recurrence(rows):
    x, a = tensor([r[0] for r in rows]), tensor([r[1] for r in rows])
    assert torch.allclose(scan(x, a), direct(x, a), rtol=1e-12, atol=1e-8)


# -- one factor ------------------------------------------------------------------------------------


def test_steady_by_hand():
    last = torch.tensor([False, False, True, False, True])
    assert steady(tensor([1, 2, 4, 8, 16]), last, 0.5).tolist() == [3.0, 4.0, 4.0, 16.0, 16.0]
    assert steady(tensor([1, 2, 4, 8, 16]), last, 0.0).tolist() == [1, 2, 4, 8, 16]
    assert steady(tensor([1, 2, 4, 8, 16]), last, 1.0).tolist() == [7, 6, 4, 24, 16]
    assert steady(tensor([3]), torch.tensor([False]), 0.5).tolist() == [3.0]
    assert steady(tensor([]), torch.tensor([], dtype=torch.bool), 0.5).tolist() == []


@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 127, 128, 129, 1000, 4097])
@pytest.mark.parametrize("blocks", [1, 2, 3, 4096])
@pytest.mark.parametrize("share", [0.0, 0.002, 0.05, 1.0])
def test_steady_at_every_block_and_chunk_border(size, blocks, share, monkeypatch):
    monkeypatch.setattr(module, "BLOCKS", blocks)
    generator = torch.Generator().manual_seed(size)
    x = torch.randn(size, generator=generator, dtype=torch.float64)
    last = torch.rand(size, generator=generator) < share
    for factor in (0.0, 0.9405, 0.9999, 1.0):
        found = steady(x, last, factor)
        assert found == pytest.approx(direct(x, factor * (~last).double()), abs=1e-11)


@pytest.mark.parametrize("size", [192, 200])
def test_a_row_may_end_anywhere_and_neighbours_do_not_show(size):
    """An end at every position of a block: exactly what it is without what stands behind it."""
    x = torch.randn(size, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for end in range(63, 129):
        last = torch.zeros(size, dtype=torch.bool)
        last[end] = True
        other = x.clone()
        other[end + 1 :] = 1e300
        found = steady(x, last, 0.99)
        assert torch.equal(found[: end + 1], steady(other, last, 0.99)[: end + 1])
        assert found == pytest.approx(direct(x, 0.99 * (~last).double()), abs=1e-12)


def test_steady_over_more_than_one_real_chunk():
    size = module.BLOCK * module.BLOCKS + 77
    x, last = torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.bool)
    x[-1] = 1.0
    assert steady(x, last, 1.0).tolist() == [1.0] * size
    assert float(steady(x, last, 0.9999)[0]) == pytest.approx(0.9999 ** (size - 1), rel=1e-9)
    last[5] = True
    assert steady(x, last, 1.0).tolist() == [0.0] * 6 + [1.0] * (size - 6)


@pytest.mark.parametrize("size", [3, 64, 500])
def test_steady_writes_its_result_only(size):
    x, last = torch.randn(size, dtype=torch.float64), torch.rand(size) < 0.1
    kept = x.clone(), last.clone()
    steady(x, last, 0.9)
    assert torch.equal(x, kept[0])
    assert torch.equal(last, kept[1])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 70, 100, 130, 199])
def test_steady_refuses_what_is_not_finite(bad, place):
    x, last = torch.ones(200, dtype=torch.float64), torch.zeros(200, dtype=torch.bool)
    x[place] = bad
    for ends in ([], [100], [99, 130, 199]):
        last[ends] = True
        with pytest.raises(ValueError, match="finite"):
            steady(x, last, 0.9)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 100])
def test_positions_are_where_it_is_true(size):
    generator = torch.Generator().manual_seed(size)
    for share in (0.0, 0.1, 0.7, 1.0):
        rare = torch.rand(size + 3, generator=generator) < share
        for part in (rare[3:], rare[1 : size + 1]):  # wherever it lies in memory
            assert torch.equal(positions(part), part.nonzero().squeeze(1))
