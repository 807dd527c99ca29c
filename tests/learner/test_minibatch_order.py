import pytest
import torch
from learner_world import episode, random_episodes, segment

from hexad.contract.faults import ContractViolation
from hexad.learner.assemble import assemble
from hexad.learner.minibatch import Order, index_of, minibatches


def split(batch, valid=None, **options):
    order = Order(**{"seed": 0, "version": 0, "epochs": 1, "minibatches": 3, **options})
    index = index_of(batch, batch.action if valid is None else valid)
    return [part for part in minibatches(index, order)], index


def test_every_epoch_sees_every_token_once_in_whole_groups():
    batch = assemble(random_episodes(1, groups=8))
    parts, index = split(batch, epochs=2)
    assert len(parts) == 6
    for epoch in (parts[:3], parts[3:]):
        assert torch.equal(sum(p.int() for p in epoch), batch.action.int())
        groups = [set(index.group[p].tolist()) for p in epoch]
        assert sorted(map(len, groups)) == [2, 3, 3]
        assert sum(map(len, groups)) == 8


def test_the_order_is_seeded_by_run_version_and_epoch():
    batch = assemble(random_episodes(1, groups=12))

    def key(**options):
        return [p.tolist() for p in split(batch, **options)[0]]

    assert key() == key()
    assert key() != key(seed=1)
    assert key() != key(version=1)
    two = key(epochs=2)
    assert two[:3] == key() and two[3:] != two[:3]


def test_few_groups_make_few_steps_and_empty_ones_none():
    rows = [segment([1, 2], [0, 1])]
    batch = assemble([episode(g, rows, group=g) for g in "abc"])
    valid = batch.action & (batch.token_episode != 1)
    parts, index = split(batch, valid, minibatches=5)
    assert [index.episode[p].tolist() for p in parts] in ([[0], [2]], [[2], [0]])


def test_nothing_valid_raises():
    batch = assemble(random_episodes(1))
    with pytest.raises(ContractViolation, match="no unit"):
        split(batch, torch.zeros_like(batch.action))
