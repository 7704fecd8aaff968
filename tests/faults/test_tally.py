"""The figures of a long run are counted across processes, and are written into the document automatically."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tally

XML = '<testsuites><testsuite tests="7" failures="1" errors="1" skipped="0" time="7260.0"/></testsuites>'


def test_counts_of_several_processes_are_summed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOAK_TALLY", str(tmp_path / "soak.jsonl"))
    tally.count(kills=2, written=1000)
    tally.count(lost=0)
    code = "from tests.tally import count; count(kills=3, faults=1)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tally.DOCUMENT.parent.parent)
    (tmp_path / "soak.xml").write_text(XML)
    figures = tally.summed(tmp_path)
    assert {name: figures[name] for name in tally.COUNTED} == {
        "kills": 5,
        "faults": 1,
        "cases": 0,
        "processes": 0,
        "written": 1000,
        "lost": 0,
    }
    assert (figures["tests"], figures["failed"], figures["minutes"]) == (7, 2, 121)


def test_nothing_is_counted_outside_a_long_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOAK_TALLY", raising=False)
    monkeypatch.chdir(tmp_path)
    tally.count(kills=1)
    assert list(tmp_path.iterdir()) == []


def test_the_figures_come_into_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "soak.jsonl").write_text(json.dumps({"kills": 3251, "faults": 40_000}) + "\n")
    (tmp_path / "soak.xml").write_text(XML)
    document = tmp_path / "reliability.md"
    document.write_text(tally.DOCUMENT.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(tally, "DOCUMENT", document)
    monkeypatch.setenv("SOAK_SCALE", "0.3")
    assert tally.main([str(tmp_path)]) == 0
    assert "3,251 processes killed by SIGKILL, 40,000 faults injected" in capsys.readouterr().out
    for _ in range(2):
        assert tally.main([str(tmp_path), "--update"]) == 0
        text = document.read_text(encoding="utf-8")
        assert text.count("| processes killed by SIGKILL | 3,251 |") == 1
        assert text.count("| tests passed | 5 of 7 |") == 1
        assert text.count("| scale (`SCALE`) | 0.3 |") == 1
