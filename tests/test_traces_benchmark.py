"""The recorded traces and their replay: no text in them, no tier above its budget, and the figures of
docs/tiers.md."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.traces.recording import FOLDER, Trace, TraceStep, load, save
from benchmarks.traces.replay import Helpers, replay
from loom.tiers.tuning import HoltPredictor

TRACES = sorted(FOLDER.glob("*.jsonl"))


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_a_trace_holds_numbers_and_no_text(path: Path) -> None:
    written = 0
    last = 0.0
    for line in path.read_text(encoding="utf-8").splitlines():
        at, session, used, tokens = json.loads(line)
        assert at >= last
        assert re.fullmatch(r"[a-z_0-9]{1,40}", session)
        assert all(0 <= one < written for one in used)
        assert isinstance(tokens, int)
        last, written = at, written + (tokens > 0)
    assert written > 100


def test_a_trace_is_read_as_it_was_saved(tmp_path: Path) -> None:
    trace = Trace("small", (TraceStep(0.5, "s0", (), 12), TraceStep(1.5, "s0", (0,), 0)))
    assert load(save(trace, tmp_path)) == trace


def steady(records: int, tokens: int = 10) -> Trace:
    """Each turn uses the record before it and the first one."""
    steps = (
        TraceStep(10.0 * number, "s", tuple({0, number - 1}) if number else (), tokens) for number in range(records)
    )
    return Trace("steady", tuple(steps))


def test_what_is_used_again_and_again_is_at_hand_and_what_must_leave_is_counted() -> None:
    found = replay(steady(500), 1_000, Helpers())
    assert found.hit_rate == 1.0
    assert (found.uses, found.writes) == (798, 399)
    assert found.moved_in == 0
    assert found.moved_out == found.tokens_in_stalls == pytest.approx(10 * 399, abs=20)


def test_a_forecast_takes_the_stalls_out_of_steady_work() -> None:
    off, on = (replay(steady(500), 1_000, Helpers(predictor=predictor)) for predictor in (None, HoltPredictor))
    assert off.stalls > 100
    assert on.stalls == 0
    assert on.moved_out == pytest.approx(off.moved_out, abs=40)


def test_on_a_recorded_trace_the_forecast_saves_stalls_and_the_preload_misses() -> None:
    trace = load(FOLDER / "import.jsonl")
    budget = trace.tokens // 4
    off = replay(trace, budget, Helpers())
    ahead, preloaded = (
        replay(trace, budget, helpers) for helpers in (Helpers(predictor=HoltPredictor), Helpers(preload=0.15))
    )
    assert ahead.stalls < 0.8 * off.stalls
    assert preloaded.hits > off.hits
    assert preloaded.preloads_used > 0.3 * preloaded.preloaded > 0
    assert off.preloaded == off.tuned == 0
