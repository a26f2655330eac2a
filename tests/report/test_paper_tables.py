"""The paper's tables: numbers equal those of the evaluation, text survives every format."""

import csv
import io
import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fada import FadaError, evaluate
from fada.evaluation.predictions import is_guided
from fada.evaluation.scores import Scoring
from fada.evaluation.significance import MeanSem
from fada.evaluation.table import FORMATS, Cell, Table, escape_latex, write_tables
from fada.report.paper_tables import main_table, paper_tables
from fada.runs.groups import experiments, load_runs
from fada.runs.run import Run
from tests.support.run_folders import MakeRun


@pytest.fixture(scope="module")
def folders(make_run: MakeRun, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three seeds each of standard training, domain tokens and FADA, two systems each."""
    base = tmp_path_factory.mktemp("runs")
    made = []
    for seed in range(3):
        for name, options in (("standard", {}), ("token", {"domain_token": True}), ("fada", {"lam": 0.5})):
            made.append(make_run(base / f"{name}-{seed}", lines=24, seed=seed, systems=("beam5", "fada"), **options))
    return made


@pytest.fixture(scope="module")
def runs(folders: list[Path]) -> list[Run]:
    return load_runs(folders)


def table_named(runs: list[Run], name: str) -> Table:
    return next(table for table in paper_tables(runs) if table.name == name)


def cer(run: Run, system: str) -> float:
    lines = run.predictions[system]
    return evaluate(lines.references, lines.hypotheses, bootstrap=0).cer


def test_main_table_holds_mean_and_sem_over_seeds_of_each_method(runs: list[Run]) -> None:
    table = table_named(runs, "main")
    assert table.heads == (("", 2), ("Standard", 2), ("TR-TT", 2), ("FADA-TR-GD", 2))
    (row,) = table.rows
    assert row[:2] == ("Codices", "C-RNN")
    for place, (name, system) in enumerate((("standard", "beam5"), ("token", "beam5"), ("fada", "fada"))):
        values = np.array([cer(run, system) for run in runs if run.name.startswith(name)])
        cell = row[2 + 2 * place]
        assert isinstance(cell, Cell)
        assert cell.value.mean == pytest.approx(values.mean())
        assert cell.value.sem == pytest.approx(values.std(ddof=1) / np.sqrt(3))


def test_ablation_is_relative_to_the_standard_mean(runs: list[Run]) -> None:
    table = table_named(runs, "ablation")
    assert table.columns == ("Data", "Model", "FADA-GD", "FADA-TR", "FADA-TR-GD")
    standard = np.mean([cer(run, "beam5") for run in runs if run.name.startswith("standard")])
    both = np.mean([cer(run, "fada") for run in runs if run.name.startswith("fada")])
    cell = table.rows[0][-1]
    assert isinstance(cell, Cell)
    assert cell.value.mean == pytest.approx(100 * (both - standard) / standard)
    assert cell.best
    assert cell.number.startswith("−")


def test_domain_table_has_every_domain_in_natural_order_and_all(runs: list[Run]) -> None:
    table = table_named(runs, "domains")
    assert table.columns == ("Model", "Method", "10", "11", "12", "13", "14", "15", "16", "Andalus", "Latin", "all")
    assert [row[1] for row in table.rows] == ["Standard", "TR-TT", "FADA-GD", "FADA-TR", "FADA-TR-GD"]


def test_beam_table_compares_beam_sizes(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", lines=12, systems=("greedy", "beam 5", "beam 7", "fada beam 5", "fada beam 7"))
    table = table_named(load_runs([run]), "beam")
    assert table.columns == ("Data", "Model", "Method", "1", "5", "7")
    assert [row[2] for row in table.rows] == ["Standard", "FADA-GD"]
    assert table.rows[1][3] is None


def test_runs_that_differ_in_more_than_the_seed_are_not_averaged(make_run: MakeRun, tmp_path: Path) -> None:
    standard = make_run(tmp_path / "s", lines=12, systems=("beam", "fada"))
    fada = [make_run(tmp_path / f"f{lam}", lines=12, lam=lam, systems=("beam", "fada")) for lam in (0.3, 0.5)]
    table = main_table(load_runs([standard, *fada]))
    assert table is not None
    assert [row[1] for row in table.rows] == ["C-RNN (lam 0.3)", "C-RNN (lam 0.5)"]
    assert all(isinstance(row[2], Cell) for row in table.rows), "each value of λ stands beside the same baseline"


def test_seeds_of_one_setting_are_one_experiment(runs: list[Run]) -> None:
    found = experiments(runs)
    assert [(e.training, len(e.runs)) for e in found] == [("standard", 3), ("TR-TT", 3), ("FADA", 3)]


def test_every_format_of_every_table_is_written(runs: list[Run], tmp_path: Path) -> None:
    tables = paper_tables(runs)
    paths = write_tables(tables, tmp_path / "tables")
    assert len(paths) == len(tables) * len(FORMATS)
    assert all(path.stat().st_size > 100 for path in paths)
    latex = (tmp_path / "tables" / "main.tex").read_text(encoding="utf-8")
    assert latex.count("\\begin{") == latex.count("\\end{")
    body = [line for line in latex.splitlines() if line.startswith("Codices")]
    assert all(line.count("&") == 7 for line in body)


def test_csv_has_full_precision_and_a_column_for_the_sem(runs: list[Run]) -> None:
    table = table_named(runs, "main")
    (row,) = csv.DictReader(io.StringIO(table.to_csv()))
    cell = table.rows[0][2]
    assert isinstance(cell, Cell)
    assert float(row["Standard CER ↓"]) == cell.value.mean
    assert float(row["Standard CER ↓ SEM"]) == cell.value.sem


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20))
def test_any_name_survives_html_csv_and_markdown(name: str) -> None:
    table = Table("t", "Title", "Caption", (), ("Data", "CER"), 1, ((name, Cell(MeanSem(1.234, None, 1))),))
    parser = _Texts()
    parser.feed(str(table.to_html()))
    assert "".join(parser.texts).count(name) >= 1
    assert parser.tags <= {"table", "caption", "b", "thead", "tbody", "tr", "th", "td", "bdi", "small"}
    assert list(csv.reader(io.StringIO(table.to_csv(), newline="")))[1][0] == name
    assert len(table.to_markdown().split("\n\n", 1)[1].splitlines()) == 3


def test_latex_escapes_its_special_characters() -> None:
    assert escape_latex("50% & a_b #1 {x} ~ ^ \\ $") == (
        r"50\% \& a\_b \#1 \{x\} \textasciitilde{} \textasciicircum{} \textbackslash{} \$"
    )


def test_captions_say_how_texts_were_compared(folders: list[Path]) -> None:
    runs = load_runs(folders[:2], Scoring(average="macro", normalization="case", units="graphemes"))
    caption = table_named(runs, "systems").caption
    assert "macro average over grapheme clusters, normalised (case)" in caption


def test_equal_printed_values_are_all_bold() -> None:
    run_table = Table("t", "T", "C", (), ("x", "a", "b"), 1, (("r", Cell(MeanSem(1, None, 1), best=True), None),))
    assert "**1.00**" in run_table.to_markdown()
    assert "--" in run_table.to_latex()
    assert "–" in run_table.to_html()


@pytest.mark.parametrize(
    ("system", "guided"),
    [("beam5", False), ("greedy", False), ("FADA sorted", True), ("fada", True), ("6-gram", False), ("tuned", True)],
)
def test_guided_systems_are_known_by_name(system: str, guided: bool) -> None:
    assert is_guided(system, {}) is guided


def test_names_come_from_the_configuration(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", lines=10, model="crnn:small")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for source, name in (("sets/hpgt/test.parquet", "hpgt"), ("hub:owner/lines", "lines"), ("catmus:x/y", "catmus")):
        config["settings"]["data"] = [source]
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        (run,) = load_runs([folder])
        assert (run.dataset, run.model) == (name, "C-RNN small")


def test_a_folder_without_predictions_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(FadaError, match=r"predictions\.parquet: no such file"):
        load_runs([tmp_path])
    with pytest.raises(FadaError, match="no such run folder"):
        load_runs([tmp_path / "nowhere"])


def test_a_broken_configuration_names_its_file(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", lines=10)
    (folder / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(FadaError, match=r"config\.json: not readable as JSON"):
        load_runs([folder])


def test_a_line_that_stands_twice_is_refused(make_run: MakeRun, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = make_run(tmp_path / "run", lines=10, systems=("beam",))
    table = pq.read_table(folder / "predictions.parquet")
    pq.write_table(pa.concat_tables([table, table.slice(0, 1)]), folder / "predictions.parquet")
    with pytest.raises(FadaError, match="stands twice for system 'beam'"):
        load_runs([folder])
