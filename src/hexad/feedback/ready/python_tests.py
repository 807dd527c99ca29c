"""``python``: the final answer is a program that gives the stored results, run in the sandbox."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hexad.contract.digest import code_digest
from hexad.contract.episode import Episode
from hexad.contract.faults import VerifierFault
from hexad.contract.messages import Message
from hexad.contract.task import Task
from hexad.contract.verdict import Verdict, VerdictStatus
from hexad.feedback import sandbox, seccomp
from hexad.feedback.cards import Card
from hexad.feedback.ready import common, json_answer
from hexad.feedback.sandbox import PROGRAM, Limits

_FENCE = re.compile(r"^```(?:python|py)?[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
_DRIVER = """
import json, os, sys
work = json.load(sys.stdin)
pipe = os.fdopen(os.dup(1), "w")
null = os.open(os.devnull, os.O_RDWR)
os.dup2(null, 0); os.dup2(null, 1)
def say(what):
    pipe.write(what + chr(10)); pipe.flush()
names = {"__name__": "solution"}
try:
    exec(compile(work["source"], "solution.py", "exec"), names)
except BaseException as error:
    say(json.dumps({"broken": type(error).__name__})); os._exit(0)
for call in work["calls"]:
    try:
        found = names[call["call"]](*call["args"], **call["kwargs"])
        line = json.dumps({"value": found}, allow_nan=False)
    except BaseException as error:
        line = json.dumps({"error": type(error).__name__})
    say(line)
os._exit(0)
"""
"""Runs inside. It is told the calls and never what they should return."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the solution and what it should return, as JSON."""

    call: str
    expected: Any
    args: Sequence[Any] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def told(self) -> dict[str, Any]:
        """What the sandbox is told: not what is expected."""
        return {"call": self.call, "args": list(self.args), "kwargs": self.kwargs}


@dataclass(frozen=True, slots=True)
class Script:
    """What the whole program reads, and what it should print."""

    stdin: str
    stdout: str


class PythonVerifier:
    """Runs the final answer (a program, in one fence or bare) against ``task.data["tests"]``.

    A test is ``assert f(1, x=2) == 3`` with literals, or ``{call, args, kwargs, expected}``, or
    ``{stdin, stdout}`` for a whole program. Results cross as JSON and are compared outside: what is
    expected never enters the sandbox, so a program cannot read it, print "passed" or exit early to
    success. Tuples count as lists. All tests of calls share one process and ``seconds``; a whole
    program has them for every test. What is no text without NUL is no program: invalid.
    """

    version = "1"
    memory = common.MEMORY

    def __init__(self, family: object, seconds: float = 5.0, memory: float = 256) -> None:
        seconds = common.option("seconds", seconds, 0.1, 600.0)
        self._limits = Limits(seconds, int(common.option("memory", memory, 64, 65536)))
        sandbox.require_sandbox(self._limits)
        self.card = Card(
            "python",
            checks="the program in the last message returns or prints what the task's tests expect "
            f"within {memory:g} MB a process and {seconds:g} s: all calls together, a whole "
            "program for each of its tests",
            blind="inputs that no test has: a program may answer the tested ones by a table; style "
            "and safety of the code; the sandbox shares the kernel with its host",
            task="tests: list of asserts, {call, args, kwargs, expected} or {stdin, stdout}",
        )

    def timeout(self, task: Task) -> float:
        """Seconds of a whole judgement: each program may take all of its own, and be started."""
        tests = task.data.get("tests")
        known = tests if isinstance(tests, list | tuple) else ()
        scripts = sum(isinstance(test, Mapping) and "stdin" in test for test in known)
        runs = scripts + (scripts < len(known))
        return common.SECONDS + runs * (sandbox.START + self._limits.seconds)

    @property
    def digest(self) -> str:
        """Digest of version, limits, the Python that runs, and source."""
        limits = self._limits
        config = {
            "seconds": limits.seconds,
            "memory": limits.memory,
            "processes": limits.processes,
            "files": limits.files,
            "output": limits.output,
            "python": sys.version.split()[0],
        }
        sources = (sys.modules[__name__], sandbox, seccomp, common, json_answer)
        return code_digest("python", self.version, config, *sources)

    def verify(self, task: Task, episode: Episode, transcript: tuple[Message, ...]) -> Verdict:
        """The verdict; its score is the share of tests passed. Raises ``VerifierFault``."""
        tests = [read(test, task) for test in common.stored(task, "tests", (list, tuple))]
        if not tests:
            raise VerifierFault(f"task {task.task_id} stores no test")
        text = common.final_text(episode, transcript)
        if text is None:
            return common.no_answer()
        fenced = _FENCE.findall(text)
        if len(fenced) > 1:
            return common.invalid("several programs", text)
        source = fenced[0] if fenced else text
        if "\0" in source:
            return common.invalid("a NUL in the program", text)
        try:
            program = source.encode()
        except UnicodeEncodeError:
            return common.invalid("a program that is no Unicode", text)
        return self._judge(source, program, tests)

    def _judge(self, source: str, program: bytes, tests: Sequence[Call | Script]) -> Verdict:
        calls = [test for test in tests if isinstance(test, Call)]
        passed = 0
        if calls:
            found = self._call(source, calls)
            if isinstance(found, Verdict):
                return found
            passed += found
        for test in tests:
            if isinstance(test, Script):
                ran = sandbox.run((PROGRAM,), test.stdin.encode(), self._limits, program)
                if ran.over is not None:
                    return _over(ran.over, self._limits)
                printed = ran.output.decode("utf-8", "replace")
                passed += ran.code == 0 and _lines(printed) == _lines(test.stdout)
        status = VerdictStatus.CORRECT if passed == len(tests) else VerdictStatus.WRONG
        return common.verdict(status, score=passed / len(tests), passed=passed, tests=len(tests))

    def _call(self, source: str, calls: Sequence[Call]) -> int | Verdict:
        """How many calls returned what they should, or a verdict on the program as a whole."""
        work = {"source": source, "calls": [call.told() for call in calls]}
        ran = sandbox.run(("-c", _DRIVER), json.dumps(work).encode(), self._limits)
        if ran.over is not None:
            return _over(ran.over, self._limits)
        replies = [_reply(line) for line in ran.output.split(b"\n")]
        if "broken" in replies[0]:
            problem = common.shown(str(replies[0]["broken"]))
            if problem in ("SyntaxError", "IndentationError", "TabError"):
                return common.invalid(problem, source)
            return common.right(False, problem=problem)
        return sum(
            "value" in reply and json_answer.same(reply["value"], call.expected)
            for reply, call in zip(replies, calls, strict=False)
        )


def read(test: Any, task: Task) -> Call | Script:
    """One test of a task. Raises ``VerifierFault`` for what is none."""
    try:
        if isinstance(test, str):
            return _asserted(test)
        if "stdin" in test:
            return Script(**test)
        return Call(**test)
    except (TypeError, ValueError, SyntaxError) as error:
        text = f"test {common.shown(test)} of task {task.task_id}: {error}"
        raise VerifierFault(text) from None


def _asserted(text: str) -> Call:
    """``assert f(literals) == literal``."""
    body = ast.parse(text.strip()).body
    test = body[0].test if len(body) == 1 and isinstance(body[0], ast.Assert) else None
    if not isinstance(test, ast.Compare) or not isinstance(test.left, ast.Call):
        raise ValueError("it is not `assert f(...) == ...`")
    call, function = test.left, test.left.func
    if not isinstance(function, ast.Name) or not isinstance(test.ops[0], ast.Eq):
        raise ValueError("it is not `assert f(...) == ...`")
    expected = _plain(ast.literal_eval(test.comparators[0]))
    args = [_plain(ast.literal_eval(argument)) for argument in call.args]
    kwargs = {str(word.arg): _plain(ast.literal_eval(word.value)) for word in call.keywords}
    return Call(function.id, expected, args, kwargs)


def _plain(value: Any) -> Any:
    """``value`` as it is after crossing as JSON. Raises ``TypeError`` for what cannot cross."""
    return json.loads(json.dumps(value, allow_nan=False))


def _reply(line: bytes) -> dict[str, Any]:
    try:
        reply = json_answer.strict(line.decode())
    except (ValueError, RecursionError):
        return {}
    return reply if isinstance(reply, dict) else {}


def _over(what: str, limits: Limits) -> Verdict:
    allowed = {"seconds": limits.seconds, "output": limits.output}[what]
    return common.verdict(VerdictStatus.TIMEOUT, limit=what, allowed=allowed)


def _lines(text: str) -> list[str]:
    """Lines without trailing white space; trailing empty lines do not count."""
    return [line.rstrip() for line in text.rstrip().split("\n")]
