"""The demo climbs the ladder on the manuscript of the package, and its report begins with what was gained."""

import re
from pathlib import Path

import pytest

from fada.data.source import read_lines
from fada.experiments.demo import MOST, RUNGS, SAMPLE, demo
from fada.models.looks import USUAL

pytestmark = pytest.mark.slow


def test_the_sample_is_small_and_its_pages_are_corrected_or_tested() -> None:
    lines = list(read_lines(SAMPLE / "lines.parquet"))
    pages = {split: {line.extra["page"] for line in lines if line.split == split} for split in ("train", "test")}
    assert pages["train"].isdisjoint(pages["test"])
    assert sum(line.split == "train" for line in lines) >= MOST
    assert sum(line.split == "test" for line in lines) >= 50
    assert sum(path.stat().st_size for path in SAMPLE.iterdir()) < 1_000_000
    assert "CC BY 4.0" in (SAMPLE / "CREDITS.md").read_text("utf-8")


def test_the_demo_tells_every_rung_and_goes_on_where_it_was(tmp_path: Path) -> None:
    done = demo(tmp_path, quick=True)
    rows = done.rows()
    assert [row["what the reader has"] for row in rows] == [rung.title for rung in RUNGS]
    assert [rung.looks for rung in RUNGS] == [1, *[USUAL] * 3]  # as `fada transcribe` reads
    page = done.report.read_text("utf-8")
    assert "latin 17901" in page
    assert "Glaise" in page
    assert re.search("character errors", str(done.view.verdict))
    record = tmp_path / f"with-{MOST}-lines" / "adapt.json"
    made = record.stat().st_mtime_ns
    again = demo(tmp_path, quick=True)
    assert record.stat().st_mtime_ns == made
    assert [row["CER %"] for row in again.rows()] == [row["CER %"] for row in rows]
