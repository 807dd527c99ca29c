"""``python``: programs against tests that they never see the results of."""

import json
import shutil

import pytest

from builders import episode
from hexad.contract.ending import Ending, EndingKind
from hexad.contract.faults import VerifierFault
from hexad.contract.messages import Message, Role
from hexad.contract.task import Split, Task
from hexad.feedback.registry import build

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None,
    reason="bubblewrap is not installed: apt-get install bubblewrap",
)
ENDED = episode(ending=Ending.of(EndingKind.TERMINAL), verdict=None, rewards=())
TESTS = ("assert f(2) == 4", {"call": "f", "args": [-3], "expected": 9}, "assert f(x=0) == 0")
SQUARE = "def f(x):\n    return x * x\n"


@pytest.fixture(scope="module")
def judge():
    made = build("python", None, {"seconds": 3.0})

    def said(text, tests=TESTS):
        transcript = (Message(Role.ASSISTANT, text),)
        verdict = made.verify(Task("t", Split.TRAIN, {"tests": tests}), ENDED, transcript)
        return str(verdict.status), round(verdict.score, 3), json.loads(verdict.evidence)

    return said


@pytest.mark.parametrize(
    ("text", "status", "score"),
    [
        (SQUARE, "correct", 1.0),
        (f"Here it is:\n```python\n{SQUARE}```\n", "correct", 1.0),
        (f"```\n{SQUARE}```\nor\n```\n{SQUARE}```", "invalid", 0.0),
        ("def f(x): return abs(x) ** 2 if x < 0 else 4", "wrong", 0.667),
        ("def f(x): return x * x if x else False", "wrong", 0.667),  # False is not 0
        ("def f(x) return", "invalid", 0.0),
        ("def g(x): return x * x", "wrong", 0.0),
        ("raise SystemExit(0)", "wrong", 0.0),
        ("", "wrong", 0.0),
        ("def f(x): return float('nan')", "wrong", 0.0),
        ("def f(x): return {x}", "wrong", 0.0),
        ("def f(x):\n    l = []\n    l.append(l)\n    return l", "wrong", 0.0),
    ],
)
def test_a_program_is_judged_by_what_it_returns(judge, text, status, score):
    assert judge(text)[:2] == (status, score)


@pytest.mark.parametrize(
    "attack",
    [
        "import os; os._exit(0)",
        "print('passed 3 of 3')\ndef f(x): raise SystemExit(0)",
        "class Any:\n    def __eq__(self, other): return True\ndef f(x): return Any()",
        "class Any(int):\n    def __eq__(self, other): return True\ndef f(x): return Any(7)",
        "import json\njson.dumps = lambda *a, **k: '{\"value\": true}'\ndef f(x): return 1",
        "import sys\ndef f(x): return sys._getframe(1).f_globals['work']['calls'][0]['expected']",
        "import gc\ndef f(x): return [o for o in gc.get_objects() if 'expected' in str(o)][0]",
        "import os\nfor n in range(3, 20):\n    try: os.write(n, b'{\"value\": 4}\\n' * 3)\n"
        "    except OSError: pass\nos._exit(0)",
        "def f(x): return open('/proc/1/cmdline').read()",
    ],
)
def test_the_results_cannot_be_read_or_forged(judge, attack):
    status, score, _ = judge(attack)
    assert status == "wrong" and score < 0.5


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("while True: pass", "seconds"),
        ("import time\ndef f(x): time.sleep(600)", "seconds"),
        ("def f(x): return 'x' * (1 << 22)", "output"),
    ],
)
def test_a_program_beyond_a_limit_is_a_timeout(judge, text, limit):
    status, score, evidence = judge(text)
    assert (status, score, evidence["limit"]) == ("timeout", 0.0, limit)


def test_whole_programs_read_and_print(judge):
    tests = [{"stdin": "1 2", "stdout": "3\n"}, {"stdin": "5 5", "stdout": "10"}]
    assert judge("print(sum(map(int, input().split())), '')", tests)[:2] == ("correct", 1.0)
    assert judge("print(3)", tests)[:2] == ("wrong", 0.5)
    assert judge("print(sum(map(int, input().split()))); raise OSError", tests)[1] == 0.0


@pytest.mark.parametrize("tests", [TESTS, [{"stdin": "", "stdout": "1"}]])
@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("print(1)  # \x00", "invalid"),
        ("print(1)  # \ud800", "invalid"),
        ("#" * 200_000 + "\nprint(1)\ndef f(x): return x * x", "correct"),  # no argument so long
        ("(" * 100_000, None),
    ],
)
def test_no_text_is_too_strange_to_be_judged(judge, tests, text, status):
    assert judge(text, tests)[0] in ({status} if status else {"wrong", "invalid"})


def test_a_whole_program_is_a_main_file(judge):
    program = "if __name__ == '__main__': print(open(__file__).read().count('main'))"
    assert judge(program, [{"stdin": "", "stdout": "2"}])[:2] == ("correct", 1.0)


@pytest.mark.parametrize(
    "test", ["assert f(1)", "f(1) == 1", "assert f(a) == 1", {"call": "f"}, {"stdin": "1"}, 7]
)
def test_a_test_that_cannot_be_read_is_the_verifiers_failure(judge, test):
    with pytest.raises(VerifierFault, match="of task t"):
        judge(SQUARE, [test])
