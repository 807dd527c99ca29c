"""Continuous batching: company, order, stops, aborts and faults."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import torch
from engine_bench import (
    VOCABULARY,
    alone,
    bits,
    forward,
    policy_of,
    qwen,
    ragged,
    request,
    run,
    worst,
)

from hexad.contract.faults import ContractViolation, EngineFault, UserError
from hexad.contract.sampling import Sampling
from hexad.policy.decode import compiled, decode
from hexad.policy.engine import DrawKey, Engine, Stop
from hexad.policy.lean import Lean
from hexad.policy.local import LocalEngine
from hexad.policy.qwen import _map


@pytest.mark.parametrize("count", [1, 2, 33, 100])
def test_a_request_gets_the_same_bits_alone_and_in_company(count: int) -> None:
    policy = policy_of(qwen())
    requests = ragged(count)
    done = run(LocalEngine(policy, rows=128), requests)
    picked = range(0, count, max(1, count // 6))
    assert bits([done[i] for i in picked]) == bits([alone(policy, requests[i]) for i in picked])


def test_heads_that_share_no_keys_keep_their_bits_in_company_and_when_continued() -> None:
    """With one query row an item, the products of a step are as small as they can be."""
    policy = policy_of(qwen(num_key_value_heads=4))
    requests = ragged(20)
    done = run(LocalEngine(policy, rows=32), requests)
    assert bits(done[::4]) == bits([alone(policy, each) for each in requests[::4]])
    for each, whole in list(zip(requests, done, strict=True))[::4]:
        half = len(whole.ids) // 2
        if half:
            ids = np.concatenate((each.ids, whole.ids[:half]))
            rest = alone(policy, replace(each, ids=ids, max_tokens=each.max_tokens - half))
            assert rest.logprobs.tobytes() == whole.logprobs[half:].tobytes()


@pytest.mark.parametrize("count", [1, 5, 33])
def test_large_weights_are_read_where_they_lie_with_the_same_bits_in_company(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hexad.policy.qwen._SMALL", 0)
    model = qwen()
    policy, requests = policy_of(model), ragged(count)
    done = run(LocalEngine(policy, rows=64), requests)
    picked = range(0, count, max(1, count // 4))
    assert bits([done[i] for i in picked]) == bits([alone(policy, requests[i]) for i in picked])
    assert worst(model, requests, done) < 1e-4


@pytest.mark.parametrize(
    ("least", "sizes"),
    [
        (4, {1: 4, 4: 4, 5: 8, 9: 12, 16: 16, 17: 24, 25: 32, 33: 48, 65: 96, 99: 99}),
        (16, {1: 16, 16: 16, 17: 32, 33: 48, 49: 64, 65: 96, 99: 99}),
    ],
)
def test_batches_have_few_sizes(least: int, sizes: dict[int, int]) -> None:
    backend = Lean(qwen(), 99)
    backend._net.rows = least
    backend._kv.reserve(99, 64, 99)
    assert {rows: backend._bucket(rows) for rows in sizes} == sizes


def test_only_small_weights_are_copied() -> None:
    small, large = torch.zeros(256, 512), torch.zeros(256, 513)
    assert _map(large, None).weight.data_ptr() == large.data_ptr()
    assert _map(small, None).weight.data_ptr() != small.data_ptr()
    assert _map(small, None).weight.is_contiguous()


def test_the_compiled_step_has_the_bits_of_the_plain_one() -> None:
    """Other devices take the plain one."""
    policy, requests = policy_of(qwen(attention_bias=True)), ragged(20)
    plain = LocalEngine(policy, rows=16)
    assert plain._backend._decode is compiled()
    plain._backend._decode = decode
    assert bits(run(plain, requests)) == bits(run(LocalEngine(policy, rows=16), requests))


def test_fewer_rows_than_requests_only_queue() -> None:
    policy, requests = policy_of(qwen()), ragged(40)
    assert bits(run(LocalEngine(policy, rows=3), requests)) == bits(
        run(LocalEngine(policy, rows=40), requests)
    )


def test_two_runs_are_equal_bit_for_bit() -> None:
    policy = policy_of(qwen())
    runs = [run(LocalEngine(policy, rows=16), ragged(60)) for _ in range(2)]
    assert bits(runs[0]) == bits(runs[1])


def test_the_draw_follows_the_key_not_the_session() -> None:
    policy = policy_of(qwen())
    base = request([5, 6, 7], "a", session="x")
    twin = request([5, 6, 7], "a", session="y")
    other = request([5, 6, 7], "b", session="x")
    done = run(LocalEngine(policy, rows=4), [base, twin, other])
    assert bits(done[:1]) == bits(done[1:2]) != bits(done[2:])


def test_a_continued_context_draws_as_if_it_had_never_paused() -> None:
    """The token at position p uses the number of (key, p): splitting a request changes nothing."""
    policy = policy_of(qwen())
    engine = LocalEngine(policy, rows=2)
    whole = alone(policy, request([4, 5, 6, 7], max_tokens=12))
    (head,) = run(engine, [request([4, 5, 6, 7], max_tokens=5)])
    rest = request(np.concatenate(([4, 5, 6, 7], head.ids)), max_tokens=7)
    (tail,) = run(engine, [rest])
    assert np.concatenate((head.ids, tail.ids)).tolist() == whole.ids.tolist()
    assert np.concatenate((head.logprobs, tail.logprobs)).tobytes() == whole.logprobs.tobytes()


def test_each_stop_id_of_a_request_ends_it() -> None:
    policy = policy_of(qwen())
    free = alone(policy, request([9, 9], max_tokens=12))
    ids = free.ids.tolist()
    for place in (0, 3, 11):
        stops = (ids[place], VOCABULARY - 1)
        first = min(ids.index(stop) for stop in stops if stop in ids)
        done = alone(policy, request([9, 9], max_tokens=12, stop_ids=stops))
        assert done.ids.tolist() == ids[: first + 1]
        assert done.stop is Stop.TOKEN
        assert done.logprobs.tobytes() == free.logprobs[: first + 1].tobytes()
    assert free.stop is Stop.LENGTH


def test_completions_are_read_only_and_typed() -> None:
    done = alone(policy_of(qwen()), request([3]))
    arrays = (done.ids, done.logprobs, done.versions)
    assert [array.dtype for array in arrays] == [np.int32, np.float32, np.int32]
    assert not any(array.flags.writeable for array in arrays)
    assert {len(array) for array in arrays} == {12}


def test_an_abort_returns_what_was_sampled_and_spares_the_others() -> None:
    policy = policy_of(qwen())
    engine = LocalEngine(policy, rows=2)
    long = [request([3, i], str(i), max_tokens=100) for i in range(3)]

    async def scene() -> list[object]:
        tasks = [asyncio.create_task(engine.sample(each)) for each in long]
        for _ in range(10):
            await asyncio.sleep(0)
        await engine.abort("1")
        await engine.abort("2")
        return await asyncio.gather(*tasks)

    whole, cut, queued = asyncio.run(scene())
    assert whole.stop is Stop.LENGTH and len(whole.ids) == 100
    assert cut.stop is Stop.ABORT and 0 < len(cut.ids) < 100
    assert queued.stop is Stop.ABORT and len(queued.ids) == 0
    expected = alone(policy, long[1])
    assert expected.ids[: len(cut.ids)].tolist() == cut.ids.tolist()
    # The aborted context is a cache like any other.
    again = request(np.concatenate((long[1].ids, cut.ids)), "1")
    assert np.abs(forward(policy.model, again, run(engine, [again])[0])).max() > 0


def test_a_cancelled_caller_frees_its_row_and_lease() -> None:
    policy = policy_of(qwen())
    engine = LocalEngine(policy, rows=1)

    async def scene() -> object:
        task = asyncio.create_task(engine.sample(request([3], max_tokens=200)))
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return await engine.sample(request([4, 5], "b"))

    done = asyncio.run(scene())
    assert bits([done]) == bits([alone(policy, request([4, 5], "b"))])
    with engine.lease().writer():
        pass


def test_the_engine_outlives_event_loops_even_interrupted_ones() -> None:
    policy = policy_of(qwen())
    engine = LocalEngine(policy, rows=2)

    async def interrupted() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.gather(
                *[engine.sample(request([i], str(i), max_tokens=250)) for i in range(4)]
            )

    with pytest.raises(TimeoutError):
        asyncio.run(interrupted())
    assert bits(run(engine, ragged(3))) == bits(run(LocalEngine(policy, rows=2), ragged(3)))


def test_other_tasks_progress_while_the_engine_decodes() -> None:
    engine = LocalEngine(policy_of(qwen()), rows=1)
    turns = 0

    async def scene() -> None:
        nonlocal turns
        task = asyncio.create_task(engine.sample(request([3], max_tokens=50)))
        while not task.done():
            await asyncio.sleep(0)
            turns += 1

    asyncio.run(scene())
    assert turns >= 49


def test_drain_waits_and_close_ends_service() -> None:
    engine = LocalEngine(policy_of(qwen()), rows=2)

    async def scene() -> object:
        task = asyncio.create_task(engine.sample(request([3])))
        await asyncio.sleep(0)
        await engine.drain()
        assert task.done() or engine.stats.sampled_tokens == 12
        assert engine.health().ok
        open_one = asyncio.create_task(engine.sample(request([3], max_tokens=200)))
        for _ in range(4):
            await asyncio.sleep(0)
        await engine.close()
        return await open_one

    assert asyncio.run(scene()).stop is Stop.ABORT
    assert not engine.health().ok
    with pytest.raises(EngineFault, match="closed"):
        run(engine, [request([3])])


def test_non_finite_logits_fault_that_request_only() -> None:
    model = qwen()
    poison = 77
    with torch.no_grad():
        model.model.embed_tokens.weight[poison] = float("nan")
    untied = qwen(tie_word_embeddings=False)
    untied.model.load_state_dict(model.model.state_dict())
    engine = LocalEngine(policy_of(untied), rows=8)
    healthy = [request([2, 3, i], str(i), max_tokens=6, stop_ids=(poison,)) for i in range(4)]

    async def scene(sick: object) -> list[object]:
        jobs = [engine.sample(each) for each in [*healthy, sick]]
        return await asyncio.gather(*jobs, return_exceptions=True)

    expected = run(LocalEngine(policy_of(untied), rows=8), healthy)
    for _ in range(2):  # the second time, slots that held NaN are used again
        *done, fault = asyncio.run(scene(request([2, poison, 4], "sick")))
        assert bits(done) == bits(expected)
        assert isinstance(fault, EngineFault)
        assert "'sick'" in str(fault) and "version 0" in str(fault)
    fresh = [
        request(
            [2, 3, i], f"fresh {i}", key=DrawKey(0, str(i), 0), max_tokens=6, stop_ids=(poison,)
        )
        for i in range(4)
    ] * 4
    done = run(engine, fresh)
    assert bits(done[:4]) == bits(expected)


@pytest.mark.parametrize(
    "sampling",
    [Sampling(0.0), Sampling(top_k=1), Sampling(top_p=0.0), Sampling(grammar="no grammar")],
)
def test_what_cannot_be_replayed_is_refused(sampling: Sampling) -> None:
    with pytest.raises(UserError):
        run(LocalEngine(policy_of(qwen()), rows=2), [request([3], sampling=sampling)])


@pytest.mark.parametrize(
    "bad",
    [
        request([]),
        request([3] * 256),
        request([3], max_tokens=0),
        request([VOCABULARY]),
        request([-1]),
        request([3], stop_ids=(VOCABULARY,)),
    ],
)
def test_a_request_that_makes_no_sense_is_our_own_bug(bad: object) -> None:
    with pytest.raises(ValueError, match=r"cannot sample|vocabulary"):
        run(LocalEngine(policy_of(qwen()), rows=2), [bad])


def test_lease_a_step_and_an_open_request_exclude_each_other() -> None:
    engine = LocalEngine(policy_of(qwen()), rows=2)

    async def step_during_request() -> None:
        task = asyncio.create_task(engine.sample(request([3])))
        await asyncio.sleep(0)
        with pytest.raises(ContractViolation, match="1 open requests"), engine.lease().writer():
            pass
        await task

    async def request_during_step() -> None:
        with engine.lease().writer():
            await engine.sample(request([3]))

    asyncio.run(step_during_request())
    with pytest.raises(ContractViolation, match="learner"):
        asyncio.run(request_during_step())
    with pytest.raises(ContractViolation, match="moved after version 0"):
        run(engine, [request([3])])
    asyncio.run(engine.publish(None, 1))
    assert run(engine, [request([3])])[0].versions.tolist() == [1] * 12


def test_a_copying_engine_never_blocks_the_learner() -> None:
    engine = LocalEngine(policy_of(qwen()), rows=2, bind=False)

    async def scene() -> None:
        task = asyncio.create_task(engine.sample(request([3])))
        await asyncio.sleep(0)
        with engine.lease().writer():
            pass
        await task
        await engine.sample(request([3]))

    asyncio.run(scene())


def test_weights_are_published_exactly_where_they_are_needed() -> None:
    model = qwen()
    with pytest.raises(ContractViolation, match="bound"):
        asyncio.run(LocalEngine(policy_of(model), rows=2).publish(model.state_dict(), 1))
    with pytest.raises(ContractViolation, match="copying"):
        asyncio.run(LocalEngine(policy_of(model), rows=2, bind=False).publish(None, 1))


def test_the_digest_names_the_implementation_not_the_weights() -> None:
    engines = [LocalEngine(policy_of(qwen(seed)), rows=2 + seed) for seed in range(2)]
    half = LocalEngine(policy_of(qwen().bfloat16()), rows=2)
    assert engines[0].digest == engines[1].digest != half.digest
    assert isinstance(engines[0], Engine)


def test_stats_count_the_work() -> None:
    engine = LocalEngine(policy_of(qwen()), rows=4)
    done = run(engine, [request([3, i], str(i), max_tokens=4 + i) for i in range(3)])
    stats = engine.stats
    assert stats.requests == 3 and stats.prompt_tokens == 6
    assert stats.sampled_tokens == sum(len(each.ids) for each in done) == 15
    assert stats.decode_steps == 5 and stats.decode_rows == 12
