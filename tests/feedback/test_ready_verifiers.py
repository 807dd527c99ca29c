"""What each ready verifier says, in this process; limits are tested apart."""

import json

import pytest

from builders import episode
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.faults import UserError, VerifierFault
from hexad.contract.messages import AssistantTurn, Message, Role, ToolCall
from hexad.contract.task import Split, Task
from hexad.environments.registry import family
from hexad.environments.replay import replay
from hexad.feedback.registry import VERIFIERS, build

CALCULATOR = family("calculator")
ENDED = episode(ending=Ending.of(EndingKind.TERMINAL), verdict=None, rewards=(), states=())


def said(name, text, options=None, **data):
    """Status and score of the final answer ``text``."""
    verdict = build(name, CALCULATOR, options).verify(
        Task("t", Split.TRAIN, data), ENDED, (Message(Role.ASSISTANT, text),)
    )
    json.loads(verdict.evidence)
    return f"{verdict.status} {verdict.score:g}"


@pytest.mark.parametrize(
    ("text", "options", "status"),
    [
        (" Paris\n", {}, "correct 1"),
        ("paris", {}, "wrong 0"),
        ("paris", {"ignore_case": True}, "correct 1"),
        ("Pa\u0301ris", {}, "wrong 0"),
        ("It is Paris", {}, "wrong 0"),
        ("", {}, "wrong 0"),
    ],
)
def test_exact(text, options, status):
    assert said("exact", text, options, answer="Paris") == status


def test_exact_may_collapse_white_space():
    assert said("exact", "a \t b", {"collapse_space": True}, answer="a b") == "correct 1"
    assert said("exact", "a \t b", {}, answer="a b") == "wrong 0"


@pytest.mark.parametrize(
    ("text", "options", "status"),
    [
        ("0.25", {}, "correct 1"),
        ("1/4", {}, "correct 1"),
        ("2.5e-1", {}, "correct 1"),
        ("0.2500001", {}, "wrong 0"),
        ("0.2500001", {"absolute": 1e-6}, "correct 1"),
        ("0.252", {"relative": 0.01}, "correct 1"),  # 0.008 of 0.25
        ("0.253", {"relative": 0.01}, "wrong 0"),  # 0.012
        ("nan", {"absolute": 1e9}, "invalid 0"),
        ("inf", {"absolute": 1e9}, "invalid 0"),
        ("1e9999", {"absolute": 1e9}, "invalid 0"),
        ("1/0", {}, "invalid 0"),
        ("0.25 0.25", {}, "invalid 0"),
        ("\u0660.25", {}, "invalid 0"),
        ("9" * 10**6, {}, "invalid 0"),
    ],
)
def test_numeric(text, options, status):
    assert said("numeric", text, options, answer=0.25) == status


def test_numeric_reads_a_stored_quotient_and_refuses_senseless_options_and_tasks():
    assert said("numeric", "0.5", answer="1/2") == "correct 1"
    with pytest.raises(VerifierFault, match="stores no number: about"):
        said("numeric", "1", answer="about 1")
    for junk in (-1, True, "1", float("nan")):
        with pytest.raises(UserError, match="relative is"):
            build("numeric", CALCULATOR, {"relative": junk})


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (r"\frac{1}{3}", "correct 1"),
        (r"The answer is $\boxed{\frac{2}{6}}$.", "correct 1"),
        (r"$0.3$", "wrong 0"),
        ("no idea", "wrong 0"),
        ("", "invalid 0"),
        (r"$\binom{20000}{9000}$", "wrong 0"),  # more digits than Python writes
    ],
)
def test_math_reads_latex(text, status):
    assert said("math", text, answer="1/3") == status


def test_math_refuses_a_stored_answer_that_it_cannot_read():
    with pytest.raises(VerifierFault, match="cannot read"):
        said("math", "1", answer="")


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ('{"a": 1}', "correct 1"),
        ('{"a": true}', "wrong 0"),
        ('{"b": 1}', "wrong 0"),
        ('{"a": 1, "a": 2}', "invalid 0"),
        ('{"a": NaN}', "invalid 0"),
        ('Here: {"a": 1}', "invalid 0"),
        ("[" * 100_000, "invalid 0"),
    ],
)
def test_json_schema(text, status):
    assert said("json", text, schema=SCHEMA) == status


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("0.07", "correct 1"),  # 0.07 / 0.01 is 7.000000000000001
        ("0.075", "wrong 0"),
        ("1e300", "correct 1"),
        ("9" * 400, "correct 1"),  # every integer is a multiple of a hundredth
        ("9" * 400 + ".001", "invalid 0"),  # no double
        ("1e400", "invalid 0"),
        ("-1e400", "invalid 0"),
        ("9" * 5000, "invalid 0"),  # more digits than Python reads
    ],
)
def test_json_multiples_are_exact_and_numbers_without_a_double_are_none(text, status):
    assert said("json", text, schema={"type": "number", "multipleOf": 0.01}) == status


LISTS = {"type": "array", "items": {"$ref": "#"}}
LAYERED = {
    "$defs": {
        "node": {"anyOf": [{"$ref": "#/$defs/leaf"}, {"$ref": "#/$defs/list"}]},
        "leaf": {"type": "integer"},
        "list": {"allOf": [{"type": "array"}, {"items": {"$ref": "#/$defs/node"}}]},
    },
    "$ref": "#/$defs/node",
}


@pytest.mark.parametrize("schema", [LISTS, LAYERED])
@pytest.mark.parametrize(("deep", "status"), [(64, "correct 1"), (65, "invalid 0")])
def test_json_is_judged_to_a_declared_depth(schema, deep, status):
    assert said("json", "[" * deep + "]" * deep, schema=schema) == status
    assert said("json", "[" * 250 + "]" * 250, schema=schema) == "invalid 0"


def test_a_schema_without_end_is_the_tasks_fault_whatever_the_answer():
    with pytest.raises(VerifierFault, match="refers to itself without end"):
        said("json", "1", schema={"$ref": "#"})


def test_json_compares_with_a_stored_answer_strictly():
    assert said("json", '{"a": 1}', schema={}, answer={"a": 1.0}) == "correct 1"
    assert said("json", '{"a": true}', schema={}, answer={"a": 1}) == "wrong 0"
    assert said("json", "null", schema={}, answer=None) == "correct 1"
    assert said("json", "0", schema={}, answer=None) == "wrong 0"
    with pytest.raises(VerifierFault, match="schema of task t"):
        said("json", "1", schema={"type": "nothing"})


SETUP = "CREATE TABLE t(a INTEGER, b TEXT); INSERT INTO t VALUES (1,'x'),(2,'y'),(2,'y');"
OTHER = "CREATE TABLE t(a INTEGER, b TEXT); INSERT INTO t VALUES (5,'z');"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("SELECT b FROM t", "correct 1"),
        ("SELECT b FROM t ORDER BY b DESC", "correct 1"),
        ("SELECT DISTINCT b FROM t", "wrong 0"),  # a multiset, not a set
        ("SELECT 'x' UNION ALL SELECT 'y' UNION ALL SELECT 'y'", "wrong 0"),  # the other database
        ("SELECT b FROM t UNION ALL SELECT b FROM t", "wrong 0"),
        ("SELECT nothing FROM t", "invalid 0"),
        ("", "invalid 0"),
        ("DELETE FROM t", "invalid 0"),
        ("DELETE FROM t RETURNING b", "invalid 0"),  # it returns the right rows
        ("SELECT 1; DROP TABLE t", "invalid 0"),
        ("ATTACH DATABASE '/tmp/x.db' AS x", "invalid 0"),
        ("PRAGMA writable_schema=ON", "invalid 0"),
        ("SELECT load_extension('/tmp/x.so')", "invalid 0"),
        ("SELECT zeroblob(1000000000)", "invalid 0"),
    ],
)
def test_sql(text, status):
    assert said("sql", text, setup=[SETUP, OTHER], answer="SELECT b FROM t") == status


def test_sql_order_counts_where_the_task_says_so():
    data = {"setup": SETUP, "answer": "SELECT a FROM t ORDER BY a", "ordered": True}
    assert said("sql", "SELECT a FROM t ORDER BY a", **data) == "correct 1"
    assert said("sql", "SELECT a FROM t ORDER BY a DESC", **data) == "wrong 0"
    with pytest.raises(VerifierFault, match="database 0 of task t"):
        said("sql", "SELECT 1", setup=SETUP, answer="SELECT missing FROM t")


@pytest.mark.parametrize("name", ["exact", "json", "math", "numeric", "sql"])
def test_a_cut_or_unfinished_episode_gave_no_answer(name):
    data = {"answer": "1", "schema": {}, "setup": "CREATE TABLE t(a)"}
    if name == "sql":
        data["answer"] = "SELECT 1"
    task, verifier = Task("t", Split.TRAIN, data), build(name, CALCULATOR)
    cut = episode(ending=Ending.of(EndingKind.TRUNCATED_TURNS), verdict=None)
    call = Message(Role.ASSISTANT, "1", tool_calls=(ToolCall("f", {}),))
    heard = Message(Role.TOOL, "1")
    for one, transcript in ((cut, (Message(Role.ASSISTANT, "1"),)), (ENDED, (call,)), (ENDED, ())):
        verdict = verifier.verify(task, one, transcript)
        assert (str(verdict.status), verdict.score) == ("wrong", 0.0)
    assert str(verifier.verify(task, ENDED, (heard,)).status) == "wrong"


@pytest.mark.parametrize("name", sorted(VERIFIERS.keys() - {"reward_model"}))  # needs a run
def test_every_verifier_carries_a_card_and_a_digest_of_its_own(name):
    options = {"model": "judge"} if name == "llm_judge" else {}
    made = build(name, CALCULATOR, options)
    assert made.card.checks and made.card.blind and made.card.name == name
    assert len(made.digest) == 64 and made.digest == build(name, CALCULATOR, options).digest


def test_options_change_the_digest():
    plain, near = build("numeric", CALCULATOR), build("numeric", CALCULATOR, {"absolute": 1e-6})
    assert plain.digest != near.digest


(TASK,) = CALCULATOR.tasks(Split.TRAIN, 1)
DEMONSTRATION = CALCULATOR.demonstration(TASK)


def played(turns, **changes):
    """Episode, transcript and end of the calculator on ``turns``."""
    again, _ = replay(CALCULATOR, TASK, 7, turns)
    made = episode(
        task_id=TASK.task_id,
        ending=changes.pop("ending", Ending.of(EndingKind.TERMINAL)),
        states=again.states[:-1],
        seed=7,
    )
    return made, tuple(turn.message() for turn in turns), again


def test_the_end_state_is_reached_by_executing_the_actions_again():
    made, transcript, again = played(DEMONSTRATION.turns)
    verifier = build("end_state", CALCULATOR)
    for digest, status in ((again.states[-1], "correct"), (again.states[-2], "wrong")):
        task = Task(TASK.task_id, TASK.split, {**TASK.data, "end_state": digest})
        assert str(verifier.verify(task, made, transcript).status) == status


def test_an_end_state_of_other_recorded_states_is_the_verifiers_failure():
    made, transcript, again = played(DEMONSTRATION.turns)
    task = Task(TASK.task_id, TASK.split, {**TASK.data, "end_state": again.states[-1]})
    other = (AssistantTurn("", (ToolCall("calculate", {"a": 8, "op": "*", "b": 8}),)).message(),)
    with pytest.raises(VerifierFault, match="turn 2 begins in another state"):
        build("end_state", CALCULATOR).verify(task, made, (*other, *transcript[1:]))


def test_a_turn_that_was_cut_is_not_executed_again():
    turns = DEMONSTRATION.turns
    made, _, again = played(turns[:-1], ending=Ending.of(EndingKind.TRUNCATED_TOKENS))
    task = Task(TASK.task_id, TASK.split, {**TASK.data, "end_state": again.states[-1]})
    cut = tuple(turn.message() for turn in turns)
    assert str(build("end_state", CALCULATOR).verify(task, made, cut).status) == "correct"


def test_actions_that_a_reset_does_not_undo_are_never_executed_again():
    class Sends:
        """A family with one tool of which nothing is declared."""

        name, tools = "sends", CALCULATOR.tools

    with pytest.raises(UserError, match="a reset does not undo calculate"):
        build("end_state", Sends())
