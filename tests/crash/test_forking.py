"""Child processes are the same whether they are forked from a prepared process or started as new interpreters."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.crash import forking
from tests.crash.processes import Child, point


@pytest.fixture(params=["forked", "started"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "started":
        monkeypatch.setattr(forking, "subreaper", lambda: None)
    elif forking.subreaper() is None:
        pytest.skip("this system has no subreaper")
    return str(request.param)


def test_a_program_gets_its_arguments_and_the_environment_and_gives_its_output_errors_and_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOOM_TEST_FORKING", "环境")
    program = (
        "import os, sys\n"
        "print(sys.argv[1:], os.environ['LOOM_TEST_FORKING'], __name__, sys.stdin.read())\n"
        "print('said', file=sys.stderr)\n"
        "sys.exit(3)\n"
    )
    done = forking.run(program, "a", "乙")
    assert done.stdout.split() == ["['a',", "'乙']", "环境", "__main__"]
    assert (done.stderr, done.returncode) == ("said\n", 3)


def test_an_error_ends_a_program_with_its_traceback() -> None:
    done = forking.run("def fail():\n    raise ValueError('of the program')\nfail()\n")
    assert done.returncode == 1
    assert "ValueError: of the program" in done.stderr


def test_a_child_speaks_and_is_killed_at_its_step_or_by_its_parent(tmp_path: Path) -> None:
    path = str(tmp_path / "a.loom")
    with Child("write_one_by_one", path=path, first=0, count=3, derive=False) as child:
        assert child.finish() == ["0", "1", "2"]
    with Child("serve", path=path, derive=False) as child:
        assert child.line() == "open"
        child.kill()
        assert child.process.returncode == -signal.SIGKILL
    armed = point("transaction.append", "after")
    with Child("write_batches", path=path, first=0, count=1, size=2, derive=False, armed=armed) as child:
        assert child.wait_for_death() == []
