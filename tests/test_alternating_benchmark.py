"""The comparison of two source trees measures the named operations, and refuses a folder that is not a source
tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import alternating


def test_every_measure_is_taken(tmp_path: Path) -> None:
    spent = alternating.measure(40, tmp_path)
    assert [*spent] == [*alternating.MEASURES]
    assert all(seconds > 0 for seconds in spent.values())


def test_each_round_compares_this_tree_with_the_other_and_that_one_with_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loom" / "index").mkdir(parents=True)
    (tmp_path / "loom" / "__init__.py").touch()
    if (Path(alternating.__file__).parents[1] / "src" / "loom" / "index" / "_kernels.so").is_file():
        (tmp_path / "loom" / "index" / "_kernels.so").touch()
    asked: list[bool] = []

    def run(tree: Path, records: int) -> dict[str, float]:
        assert [*(tree / "loom" / "__pycache__").glob("__init__.*.pyc")]  # no tree compiles while it is measured
        asked.append(tree == tmp_path)
        return dict.fromkeys(alternating.MEASURES, 2.0 if tree == tmp_path else 3.0)

    monkeypatch.setattr(alternating, "run_tree", run)
    assert alternating.main(["--other", str(tmp_path), "--rounds", "3"]) == 0
    assert len(asked) == 9
    assert asked.count(True) == 6
    assert not all(asked[::3])  # another tree is first each time
    shown = capsys.readouterr().out
    assert shown.count(" 1.500 (1.500 to 1.500)") == shown.count(" 1.000 (1.000 to 1.000)") == 8


def test_a_folder_without_the_package_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        alternating.main(["--other", str(tmp_path)])
    assert "which holds `loom`" in capsys.readouterr().err
