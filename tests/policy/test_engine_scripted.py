"""The scripted engine keeps the protocol."""

from __future__ import annotations

import asyncio

import pytest
from engine_bench import request, run

from hexad.contract.faults import EngineFault
from hexad.policy.engine import Engine, Stop
from hexad.policy.scripted import Reply, ScriptedEngine


def test_replies_follow_sessions_calls_or_a_function() -> None:
    a, b = request([1], "a", stop_ids=(9,)), request([1], "b", stop_ids=(9,))
    by_session = ScriptedEngine({"a": [Reply([5, 9]), Reply([6, 9])], "b": [Reply([7, 9])]})
    assert [each.ids.tolist() for each in run(by_session, [a, b, a])] == [[5, 9], [7, 9], [6, 9]]
    by_call = ScriptedEngine([Reply([5, 9]), Reply([6, 9])])
    assert [each.ids.tolist() for each in run(by_call, [a, b])] == [[5, 9], [6, 9]]
    by_function = ScriptedEngine(lambda asked: Reply([int(asked.ids[0]), 9]))
    assert run(by_function, [a])[0].ids.tolist() == [1, 9]
    assert isinstance(by_call, Engine)
    assert by_call.requests == [a, b]


def test_replies_end_as_a_model_would_end_them() -> None:
    stop = request([1], stop_ids=(8, 9), max_tokens=3)
    (done,) = run(ScriptedEngine([Reply([5, 8, 9], [-0.1, -0.2, -0.3])]), [stop])
    assert done.ids.tolist() == [5, 8] and done.stop is Stop.TOKEN
    assert done.logprobs.tolist() == pytest.approx([-0.1, -0.2])
    (done,) = run(ScriptedEngine([Reply([5, 6, 7, 8])]), [stop])
    assert done.ids.tolist() == [5, 6, 7] and done.stop is Stop.LENGTH
    with pytest.raises(ValueError, match="neither"):
        run(ScriptedEngine([Reply([5])]), [stop])
    with pytest.raises(ValueError, match="log-probs"):
        run(ScriptedEngine([Reply([5, 8], [-1.0])]), [stop])
    with pytest.raises(LookupError, match="no reply"):
        run(ScriptedEngine([]), [stop])


def test_faults_delays_and_aborts_come_by_script() -> None:
    with pytest.raises(EngineFault, match="on cue"):
        run(ScriptedEngine([Reply(fault=EngineFault("on cue"))]), [request([1])])
    engine = ScriptedEngine({"slow": [Reply([9], seconds=60)], "fast": [Reply([9])]})

    async def scene() -> list[object]:
        slow = asyncio.create_task(engine.sample(request([1], "slow", stop_ids=(9,))))
        fast = await engine.sample(request([1], "fast", stop_ids=(9,)))
        assert not slow.done()
        await engine.abort("slow")
        return [fast, await slow]

    fast, slow = asyncio.run(scene())
    assert fast.stop is Stop.TOKEN and slow.stop is Stop.ABORT and len(slow.ids) == 0


def test_versions_move_after_open_requests() -> None:
    engine = ScriptedEngine(lambda asked: Reply([9], seconds=0.01))

    async def scene() -> list[object]:
        early = asyncio.create_task(engine.sample(request([1], stop_ids=(9,))))
        await asyncio.sleep(0)
        publish = asyncio.create_task(engine.publish(None, 3))
        await asyncio.sleep(0)
        late = await engine.sample(request([1], stop_ids=(9,)))
        await publish
        return [await early, late]

    early, late = asyncio.run(scene())
    assert early.versions.tolist() == [0] and late.versions.tolist() == [3]
    asyncio.run(engine.close())
    assert not engine.health().ok
    with pytest.raises(EngineFault, match="closed"):
        run(engine, [request([1])])
