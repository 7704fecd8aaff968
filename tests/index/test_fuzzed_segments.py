"""Whatever happens to the bytes of a segment, a store gives the same answers as without the damage, or raises a
`LoomError`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CASES = int(os.environ.get("FUZZ_CASES", "20"))

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="measures the child by /proc")


def fuzzer(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.index.segment_fuzzer", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzzed")
    prepared = fuzzer(str(folder))
    assert prepared.returncode == 0, prepared.stderr
    return folder


@pytest.mark.parametrize("mode", ["read", "mapped", "decayed"])
def test_damaged_segments_are_rebuilt_and_never_end_a_process(base: Path, mode: str) -> None:
    done = fuzzer(str(base), mode, "0", str(CASES))
    lines = [line for line in done.stdout.splitlines() if not line.startswith("  ")]
    assert done.returncode == 0, f"{lines[-1]} ended with {done.returncode}\n{done.stderr[-4000:]}"
    outcomes = dict(zip(lines[::2], lines[1::2], strict=True))
    assert {case: outcome for case, outcome in outcomes.items() if outcome != "right"} == {}
    assert len(outcomes) == CASES
