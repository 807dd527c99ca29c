"""Every episode is in one account, and none of its exits can hold the run up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexad.contract.faults import ContractViolation
from hexad.contract.reasons import Reason
from hexad.schedule.governor import Exit, Governor, gate


def test_room_by_hand():
    governor = Governor(batch=4, eta=1)
    assert governor.room(0) == 8  # (0 + 1 + 1) * 4
    governor.dispatch(8)
    assert governor.room(0) == 0
    for _ in range(5):
        governor.finish()
    assert governor.room(0) == 0  # 3 in flight, 5 queued
    for _ in range(4):
        governor.exit(Exit.TRAINED)
    assert governor.room(0) == 0 and governor.room(1) == 4  # 3 + 1 + 4 of (1 + 2) * 4
    governor.exit(Exit.STALE)
    assert governor.room(1) == 5  # its slot came back
    assert governor.dispatched == 8


def test_a_batch_that_gates_thinned_does_not_let_sampling_run_ahead():
    governor = Governor(batch=4, eta=1)
    governor.dispatch(8)
    for _ in range(4):
        governor.finish()
    for how in (Exit.TRAINED, Exit.TRAINED, Exit.FAULT, Exit.UNSCORED):
        governor.exit(how)
    assert governor.room(1) == 4  # 4 in flight; 2 batches ahead are 8, whoever was trained


def test_a_lag_limit_of_zero_lets_one_batch_run():
    governor = Governor(batch=3, eta=0)
    governor.dispatch(governor.room(0))
    assert (governor.in_flight, governor.room(0)) == (3, 0)


@pytest.mark.parametrize(
    ("reasons", "exit_"),
    [
        ((Reason.STALE_VERSION,), Exit.STALE),
        ((Reason.STALE_VERSION, Reason.UNSCORED), Exit.UNSCORED),
        ((Reason.UNSCORED, Reason.ENVIRONMENT_FAULT), Exit.FAULT),
        ((Reason.UNSCORED, Reason.USER_CANCEL), Exit.CANCELLED),
        ((Reason.ORPHAN_VERSION, Reason.STALE_VERSION), Exit.ORPHAN),
        ((Reason.MASK_MISMATCH, Reason.STALE_VERSION), Exit.UNREPLAYABLE),
    ],
)
def test_one_gate_stops_an_episode(reasons, exit_):
    assert gate(reasons) is exit_


def test_counts_below_zero_are_a_bug():
    with pytest.raises(ContractViolation):
        Governor(2, 0).finish()
    with pytest.raises(ContractViolation):
        Governor(2, 0).exit(Exit.FAULT)


@given(
    batch=st.integers(1, 6),
    eta=st.integers(0, 4),
    luck=st.lists(st.sampled_from(list(Exit)), max_size=200),
)
def test_the_run_never_stops_whatever_exits_befall_it(batch, eta, luck):
    """With any fates, the next batch can be filled as long as some episodes are trained on."""
    governor, version, fates = Governor(batch, eta), 0, iter(luck)
    for _ in range(8):
        trained = 0
        while trained < batch:
            governor.dispatch(governor.room(version))
            assert governor.in_flight + governor.queued > 0
            held = governor.in_flight + governor.queued + governor.trained
            assert held <= (version + eta + 1) * batch
            if governor.in_flight:
                governor.finish()
            fate = next(fates, Exit.TRAINED)
            governor.exit(fate)
            trained += fate is Exit.TRAINED
        version += 1
        again = Governor(batch, eta)
        again.restore(governor.state())
        assert again.state() == governor.state() and again.room(version) == governor.room(version)
        assert governor.dispatched == governor.in_flight + governor.queued + sum(
            governor.exits.values()
        )
