import sample_tools

from hexad.environments import guard
from hexad.environments.process import PASSED, WorkerProcess
from hexad.environments.registry import Origin
from hexad.environments.tools import Effect


class Family:
    name = "mine"

    def __init__(self, **effects):
        self.effects = effects


class Silent:
    name = "silent"


def test_irreversible_tools_are_named():
    assert guard.irreversible(Silent()) == guard.irreversible(Origin("calculator").make()) == []
    lasting = Family(a=Effect.READ_ONLY, b=Effect.REVERSIBLE, c=Effect.EXTERNAL)
    assert guard.irreversible(lasting) == []
    family = Family(pay=Effect.IRREVERSIBLE, look=Effect.READ_ONLY, mail=Effect.IRREVERSIBLE)
    assert guard.irreversible(family) == ["mail", "pay"]


def test_an_origin_makes_equal_families():
    origin = Origin("calculator", {"high": 5}, {"train": {"high": 4}}, 2)
    assert origin.make().digest == origin.make().digest != Origin("calculator").make().digest


def test_a_worker_sees_a_short_list_of_variables(monkeypatch):
    monkeypatch.setenv("HEXAD_TEST_SECRET", "key")
    monkeypatch.setenv("TZ", "UTC")
    worker = WorkerProcess(sample_tools.variables.target)
    try:
        seen = set(worker.call({}, 20)["content"].split())
    finally:
        worker.close()
    assert "HEXAD_TEST_SECRET" not in seen and {"PATH", "TZ", "PYTHONPATH"} <= seen
    assert seen <= {*PASSED, "PYTHONPATH", "LC_CTYPE", "PWD", "SHLVL", "_"}
