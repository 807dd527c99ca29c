import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_world import episode, random_episodes, segment

from hexad.contract.faults import ContractViolation
from hexad.learner.assemble import assemble
from hexad.learner.pack import layouts, pack, share


def test_the_shift_happens_exactly_once():
    """Row 5 6 7 8 with actions 6 and 8: states at 0 and 2 predict them; 8 is never an input."""
    batch = assemble([episode("a", [segment([5, 6, 7, 8], [0, 1, 0, 1])])])
    (micro,) = pack(batch, layouts(batch, batch.action), 100)
    assert micro.ids.tolist() == [[5, 6, 7]]
    assert micro.select.tolist() == [0, 2]
    assert micro.targets.tolist() == [6, 8]
    assert micro.tokens.tolist() == [1, 3]


def test_a_row_is_read_only_up_to_its_last_target():
    rows = [segment([5, 6, 7, 8, 9], [0, 1, 0, 0, 0]), segment([1, 2, 3], [0, 1, 1])]
    batch = assemble([episode("a", rows)])
    (micro,) = pack(batch, layouts(batch, batch.action), 100)
    assert micro.ids.tolist() == [[1, 2], [5, 0]]
    assert micro.select.tolist() == [0, 1, 2]
    assert micro.targets.tolist() == [2, 3, 6]
    assert micro.tokens.tolist() == [6, 7, 1]


def test_a_value_reads_the_state_at_the_token_itself():
    """Values of the prefixes ending at 0, 3 and, in the longer row, at its very last token."""
    rows = [segment([5, 6, 7, 8], [0, 1, 0, 1]), segment([1, 2, 3, 4, 9], [0, 1, 0, 0, 0])]
    batch = assemble([episode("a", rows)])
    wanted = torch.tensor([1, 0, 0, 1, 0, 0, 0, 0, 1], dtype=torch.bool)
    (micro,) = pack(batch, layouts(batch, wanted, ahead=0), 100, ahead=0)
    assert micro.ids.tolist() == [[1, 2, 3, 4, 9], [5, 6, 7, 8, 0]]
    assert micro.select.tolist() == [4, 5, 8]
    assert micro.tokens.tolist() == [8, 0, 3]


def test_an_unpredicted_action_is_a_broken_contract():
    batch = assemble([episode("a", [segment([5, 6], [1, 0])])])
    with pytest.raises(ContractViolation, match="row 0"):
        layouts(batch, batch.action)


@pytest.mark.parametrize("limit", [1, 20, 64, 10_000])
def test_micro_batches_hold_the_limit_and_every_target_once(limit):
    batch = assemble(random_episodes(3))
    rows = layouts(batch, batch.action)
    micros = list(pack(batch, rows, limit))
    assert all(m.ids.numel() <= limit or len(m.ids) == 1 for m in micros)
    tokens = torch.cat([m.tokens for m in micros])
    assert sorted(tokens.tolist()) == batch.action.nonzero().squeeze(1).tolist()
    for micro in micros:
        assert torch.equal(batch.ids[micro.tokens], micro.targets)
        assert torch.equal(batch.ids[micro.tokens - 1], micro.ids.reshape(-1)[micro.select])


def test_masks_come_from_positions_not_from_values():
    """O03: an id that equals the padding, in prompt or as the last sampled token, is kept."""
    row = segment([0, 10, 0, 11, 0, 0], [0, 0, 0, 1, 1, 1])
    longer = segment([1] * 9, [0] * 8 + [1])
    batch = assemble([episode("a", [row, longer])])
    (micro,) = pack(batch, layouts(batch, batch.action), 100)
    assert micro.targets.tolist() == [1, 11, 0, 0]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 200), min_size=1, max_size=40), st.integers(1, 5))
def test_ranks_share_every_row_once_and_evenly(lengths, size):
    parts = [share(lengths, size, rank) for rank in range(size)]
    assert sorted(i for part in parts for i in part) == list(range(len(lengths)))
    loads = [sum(np.take(lengths, part)) if part else 0 for part in parts]
    assert max(loads) - min(loads) <= max(lengths)
