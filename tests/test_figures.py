"""Figures in the documents equal the saved results of the benchmarks."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

from benchmarks import figures

RESULTS = sorted((figures.ROOT / "benchmarks" / "results").glob("*.json"))


@pytest.mark.parametrize("document", figures.documents(), ids=lambda path: path.name)
def test_a_document_says_what_was_measured(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    assert figures.rendered(text) == text, "run python -m benchmarks.figures"


# Targets and limits are whole numbers of per cent, seconds and megabytes. What has decimals there is measured, and so
# are times below a second, rates, multiples and points.
MEASURED = re.compile(
    r"\d[\d,]*\.\d+ ?(?:%|s\b|seconds\b|minutes\b|[KMG]B\b)|\d\.\d+:1"
    r"|\d[\d,]*(?:\.\d+)? ?(?:ms\b|us\b|µs\b|[MG]B/s|x\b|points\b)"
)
# A line with three of these cells, of a table or of an output, is a row of measurements.
CELL = re.compile(r"(?:^|\||\s{2})\s*[-+]?\d[\d,]*\.\d+(?=\s*(?:\||\s{2}|$))")
CODE = re.compile(r"^```(?!text).*?^```$", re.MULTILINE | re.DOTALL)
# What looks like a measurement and is a target, a constant or computed (655 / 2,000 x 80 %), page by page.
OTHERS = {
    "acceptance.md": {"26.2 %", "500 MB/s", "1 ms", "10 ms", "50 ms", "100 ms", "200 ms", "300 ms", "500 ms"},
    "fractal.md": {"250 ms"},
    "performance.md": {"1.5 x", "5 ms"},
    "postgres.md": {"0.3 GB", "0.7 KB", "0.8 KB", "2.5 GB", "2.5 KB", "3 ms"},  # an estimate, which the page calls so
    "requirements.md": {"26.2 %", "1 ms"},
}


def by_hand(text: str) -> list[str]:
    """The measurements in a page that come from no saved result: figures with a unit, and rows of figures."""
    text = CODE.sub("", figures.without_saved(text))
    rows = [line for line in text.splitlines() if len(CELL.findall(line)) > 2]
    return [*MEASURED.findall(text), *rows]


@pytest.mark.parametrize(
    "page", [*figures.documents(), figures.ROOT / "CHANGELOG.md"], ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_every_measured_figure_of_a_page_comes_from_a_saved_result(page: Path) -> None:
    found = {*by_hand(page.read_text(encoding="utf-8"))} - OTHERS.get(page.name, set())
    assert not found, "mark these figures with the saved result that they come from: see benchmarks/figures.py"


def test_a_figure_that_is_copied_by_hand_is_found() -> None:
    marked = "Kept 75.9 %<!--=summaries:kept .1%--> of them.\n\n<!-- from traces:table -->\n| 4.2 % |\n<!-- end -->\n"
    assert by_hand(marked) == []
    for line, figure in (
        ("It takes 3.4 ms.", "3.4 ms"),
        ("It reads 26.5 MB.", "26.5 MB"),
        ("Writing takes 4 x as long.", "4 x"),
        ("16 processes           129.9       132.3      1665.5         1.0",) * 2,
        ("| recall | 95.8 | 97.2 | 97.9 |", "| recall | 95.8 | 97.2 | 97.9 |"),
    ):
        assert by_hand(marked + line) == [figure]
    assert by_hand("```python\nmemory.recall(min_score=0.5)  # after 3.5 s\n```\n") == []


@pytest.mark.parametrize("result", RESULTS, ids=lambda path: path.stem)
def test_a_result_names_the_command_that_measured_it(result: Path) -> None:
    words = json.loads(result.read_text(encoding="utf-8"))["command"].split()
    assert words[:2] == ["python", "-m"]
    place = figures.ROOT / words[2].replace(".", "/")
    assert place.with_suffix(".py").exists() or place.is_dir()
    assert not any("/" in word for word in words)


@pytest.mark.parametrize("result", RESULTS, ids=lambda path: path.stem)
def test_a_result_is_in_a_document(result: Path) -> None:
    pages = (document.read_text(encoding="utf-8") for document in figures.documents())
    assert any(f"{result.stem}:" in page for page in pages)


def test_figures_tables_and_outputs_are_rewritten_from_the_saved_results(tmp_path: Path) -> None:
    figures.save(
        "tiers-x",
        ["--data", "/somewhere/talk.json", "--save"],
        {"share": 0.7512, "count": 12345, "table": [["a", "b"], [1, "x"]], "said": "one\ntwo\n", "a side": 1},
        folder=tmp_path,
    )
    page = """Kept 1 %<!--=tiers-x:share .1%--> of 9<!--=tiers-x:count ,-->,
and -0.30<!--=tiers-x:share .2f-->.

<!-- from tiers-x:table -->
old
<!-- end -->
<!-- from tiers-x:said -->
<!-- end -->
<!-- from tiers-x:command -->
<!-- end -->
"""
    after = figures.rendered(page, folder=tmp_path)
    assert (
        after
        == """Kept 75.1 %<!--=tiers-x:share .1%--> of 12,345<!--=tiers-x:count ,-->,
and 0.75<!--=tiers-x:share .2f-->.

<!-- from tiers-x:table -->
| a | b |
|---|---|
| 1 | x |
<!-- end -->
<!-- from tiers-x:said -->
```text
one
two
```
<!-- end -->
<!-- from tiers-x:command -->
```text
python -m benchmarks.tiers --data talk.json
```
<!-- end -->
"""
    )
    assert figures.rendered(after, folder=tmp_path) == after


@pytest.mark.parametrize("mark", ["1<!--=nothing:share-->", "1<!--=tiers:absent-->"])
def test_a_mark_without_a_result_is_an_error_that_names_it(tmp_path: Path, mark: str) -> None:
    figures.save("tiers", [], {"share": 1}, folder=tmp_path)
    with pytest.raises(KeyError, match=r"nothing:share|tiers:absent"):
        figures.rendered(mark, folder=tmp_path)


def test_what_a_benchmark_prints_is_saved_beside_its_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for is_wanted in (False, True):
        with figures.saving_output("rooms", ["--save"], is_wanted=is_wanted, folder=tmp_path) as kept:
            print("  recall 3 ms")
            kept["recall"] = {"p50": 3.0}
        assert capsys.readouterr().out == "  recall 3 ms\n"
        assert (tmp_path / "rooms.json").exists() == is_wanted
    page = "3.0<!--=rooms:recall.p50 .1f-->\n<!-- from rooms:output -->\n<!-- end -->"
    assert figures.rendered(page, folder=tmp_path).endswith("```text\n  recall 3 ms\n```\n<!-- end -->")


def test_the_picture_of_the_evidence_shows_the_saved_figures() -> None:
    picture = (figures.ROOT / "docs" / "evidence.svg").read_text(encoding="utf-8")
    shown = json.loads(html.unescape(re.search(r"<dc:description>(.*?)</dc:description>", picture, re.DOTALL)[1]))  # type: ignore[index]
    saved = json.loads((figures.ROOT / "benchmarks" / "results" / "evidence.json").read_text(encoding="utf-8"))
    assert shown == {name: saved["figures"][name] for name in ("budgets", "sets")}, (
        "run python -m benchmarks.evidence --draw docs/evidence.svg"
    )
