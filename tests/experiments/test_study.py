import re
from dataclasses import replace
from pathlib import Path

import pytest

from fada.data.formats.parquet import write_parquet
from fada.data.source import read_lines
from fada.data.synthetic.set import make_synthetic
from fada.data.write import convert
from fada.errors import FadaError
from fada.experiments.study import split_by_page
from tests.support.commands import run_fada


@pytest.fixture(scope="module")
def demo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study") / "demo"
    done = run_fada("demo", "--paper", "--quick", "--out", folder, "--jobs", 1)
    assert "FADA-TR-GD" in done.output
    return folder


def test_the_demo_leaves_models_weights_predictions_and_report(demo_folder: Path) -> None:
    for name in ("standard", "fada-tr"):
        assert (demo_folder / name / "model" / "config.json").exists()
        assert (demo_folder / name / "tuned.json").exists()
    assert (demo_folder / "predictions.parquet").exists()
    assert (demo_folder / "report.html").stat().st_size > 10_000


def test_console_and_report_tell_the_same_figures(demo_folder: Path) -> None:
    done = run_fada("demo", "--paper", "--quick", "--out", demo_folder, "--jobs", 1)
    page = (demo_folder / "report.html").read_text(encoding="utf-8")
    table = page[page.index('aria-label="Results table"') :]
    told = re.findall(r"(\d+\.\d\d) \((\d+\.\d\d) to (\d+\.\d\d)\)", done.output)[-4:]  # the last row is "all"
    assert len(told) == 4
    for cer, low, high in told:
        assert re.search(rf">{cer}</td>\s*<td[^>]*><span class=\"interval\">\[{low}, {high}\]", table), (cer, low, high)
    assert "The model does not read yet" in done.output  # after one epoch of 120 lines
    assert "The model does not read yet" in page


def test_what_is_not_as_printed_in_the_paper_is_named(demo_folder: Path) -> None:
    output = run_fada("demo", "--paper", "--quick", "--out", demo_folder, "--jobs", 1).output
    assert "aligned_w2 ×20" in re.sub(r"\s+", " ", output)


def test_a_finished_study_is_not_trained_again(demo_folder: Path) -> None:
    model = demo_folder / "standard" / "model" / "model.safetensors"
    before = model.stat().st_mtime_ns
    run_fada("demo", "--paper", "--quick", "--out", demo_folder, "--jobs", 1)
    assert model.stat().st_mtime_ns == before


def test_a_study_of_own_lines_without_splits_divides_them_by_page(demo_folder: Path, tmp_path: Path) -> None:
    lines = [
        replace(line, extra={"page": line.extra["page"]})
        for line in read_lines(demo_folder / "lines" / "train.parquet")
    ]
    write_parquet(lines, tmp_path / "own.parquet")
    run_fada(
        "study", tmp_path / "own.parquet", "--domain-column", "domain", "--model", "crnn:tiny", "--epochs", 1,
        "--jobs", 1, "--out", tmp_path / "study",
    )  # fmt: skip
    pages = {
        split: {line.extra["page"] for line in read_lines(tmp_path / "study" / "lines" / f"{split}.parquet")}
        for split in ("train", "validation", "test")
    }
    assert all(pages.values())
    assert not pages["train"] & pages["test"]


def test_the_guided_row_is_guided_even_where_plain_decoding_is_best(demo_folder: Path) -> None:
    from fada.experiments.study import _guided_weights
    from fada.tuning.tuned import Tuned

    for name in ("standard", "fada-tr"):
        assert _guided_weights(Tuned.load(demo_folder / name / "tuned.json")).guided


def test_pages_of_one_name_in_two_folders_are_two_pages_and_other_data_are_refused(tmp_path: Path) -> None:
    for name, seed in (("A", 0), ("B", 1)):
        made = make_synthetic(lines=24, domains=2, height=32, seed=seed).save(tmp_path / name)
        convert(read_lines(tmp_path / name), tmp_path / "ms" / name, "page")
    out = tmp_path / "lines"
    split_by_page([tmp_path / "ms"], out, {"domain_from": "folder"})
    for split in ("train", "validation", "test"):
        assert {line.domain for line in read_lines(out / f"{split}.parquet")} == {"A", "B"}, made
    with pytest.raises(FadaError, match="the lines of another study"):
        split_by_page([tmp_path / "A"], out, {"domain_from": "folder"})


def test_lines_that_name_no_page_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = list(read_lines(make_synthetic(lines=24, domains=2, height=32).save(tmp_path / "made") / "train.parquet"))
    for named in (True, False):
        lines = [replace(line, extra={"page": line.id} if named else {}) for line in made]
        write_parquet(lines, tmp_path / f"{named}.parquet")
        caplog.clear()
        split_by_page([tmp_path / f"{named}.parquet"], tmp_path / f"lines-{named}", {})
        assert (f"{len(made)} lines name no page" in caplog.text) == (not named)


def test_domains_without_a_second_page_are_refused_before_training(tmp_path: Path) -> None:
    make_synthetic(lines=24, domains=2, height=32).save(tmp_path / "lines")
    lines = [replace(line, extra={"page": line.domain}) for line in read_lines(tmp_path / "lines" / "train.parquet")]
    write_parquet(lines, tmp_path / "own.parquet")
    with pytest.raises(FadaError, match="no domain has more than one page"):
        run_fada("study", tmp_path / "own.parquet", "--out", tmp_path / "study")
    assert not (tmp_path / "study" / "standard").exists()
