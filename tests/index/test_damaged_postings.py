"""A segment with inner damage that its header does not show."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import loom
from loom.index.segments import open_segment, write_segment
from loom.storage.sqlite.projections import index_folder

pytestmark = pytest.mark.usefixtures("both_ways")


@pytest.mark.parametrize("read_only", [False, True])
def test_postings_that_point_nowhere_are_made_again_from_the_records(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "agent.loom"
    with loom.open(path, embedder="none", index_tail_records=10) as memory:
        memory.remember([f"note {number} about herons" for number in range(40)])
        memory.flush()
    folder = index_folder(path)
    assert folder is not None
    for file in folder.glob("text-*.seg"):
        segment = open_segment(file)
        arrays = {name: np.array(array) for name, array in segment.arrays.items()}
        arrays["documents"] = arrays["documents"] + 1_000_000
        write_segment(file, segment.header, arrays)
    with loom.open(path, embedder="none", index_tail_records=10, read_only=read_only) as memory:
        assert len(memory.recall("herons", limit=40)) == 40
        assert memory.recall("note 7")[0].content == "note 7 about herons"
        assert memory.check().ok is not read_only  # a reader reports what it may not repair
