import signal
import subprocess
import sys

import pytest

from hexad.cli.interrupt import Interrupts


def test_the_first_ctrl_c_asks_and_the_second_stops(capsys):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts:
        assert not interrupts.requested()
        signal.raise_signal(signal.SIGINT)
        assert interrupts.requested() and "again" in capsys.readouterr().err
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_real_process_stops_cleanly_then_at_once():
    code = (
        "import time\nfrom hexad.cli.interrupt import Interrupts\n"
        "from hexad.cli.report import conclude\n"
        "def action():\n"
        "    with Interrupts() as i:\n"
        "        print('ready', flush=True)\n"
        "        while not i.requested(): time.sleep(0.01)\n"
        "        print('asked', flush=True)\n"
        "        time.sleep(30)\n"
        "raise SystemExit(conclude(action, as_json=False))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "asked\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 130 and "at once" in err and "Traceback" not in err
