import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import TypeAdapter

from fada.data.columns import LineColumns
from fada.errors import FadaError
from fada.evaluation.predictions import Systems
from fada.evaluation.scores import Scoring
from fada.evaluation.sources import read_systems
from fada.evaluation.systems import SystemsEvaluation, evaluate_systems, seed_rows
from tests.support.commands import run_fada
from tests.support.emission_sets import make_emissions
from tests.support.types import some

ROWS = [
    {"id": "l1", "domain": "13", "page": "p1", "reference": "abcd", "system": "beam", "hypothesis": "abcx"},
    {"id": "l2", "domain": "14", "page": "p2", "reference": "efgh", "system": "beam", "hypothesis": "efgh"},
    {"id": "l1", "domain": "13", "page": "p1", "reference": "abcd", "system": "guided", "hypothesis": "abcd"},
    {"id": "l2", "domain": "14", "page": "p2", "reference": "efgh", "system": "guided", "hypothesis": ""},
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "predictions.parquet")
    return folder


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_run_folders_and_long_tables_give_one_row_per_line(run: Path, tmp_path: Path) -> None:
    systems = read_systems(run)
    assert systems.ids == ["l1", "l2"]
    assert systems.systems == {"beam": ["abcx", "efgh"], "guided": ["abcd", ""]}
    assert systems.domains == ["13", "14"]
    assert systems.column("page") == ["p1", "p2"]
    assert systems.column("length") == ["0-10", "0-10"]
    jsonl = _write(tmp_path / "long.jsonl", "\n".join(map(json.dumps, ROWS)))
    assert read_systems(jsonl).systems == systems.systems
    assert read_systems(run, systems=["guided"]).systems == {"guided": ["abcd", ""]}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("w.tsv", 'reference\tprediction\tcentury\na "quoted" word\ta "quoted word\t13.0\n'),
        ("w.csv", 'reference,prediction,century\n"a ""quoted"" word","a ""quoted word",13.0\n'),
        ("w.jsonl", json.dumps({"gt": 'a "quoted" word', "ocr": 'a "quoted word', "century": 13})),
    ],
)
def test_wide_tables_are_read_with_their_usual_column_names(tmp_path: Path, name: str, text: str) -> None:
    systems = read_systems(_write(tmp_path / name, text))
    assert systems.references == ['a "quoted" word']
    assert [*systems.systems.values()] == [['a "quoted word']]
    assert [str(domain).removesuffix(".0") for domain in some(systems.domains)] == ["13"]


def test_several_hypothesis_columns_are_several_systems(tmp_path: Path) -> None:
    path = _write(tmp_path / "w.csv", "text,kraken,pylaia\nabcd,abcx,abcd\n")
    systems = read_systems(path, reference_column="text", hypothesis_columns=["kraken", "pylaia"])
    assert systems.systems == {"kraken": ["abcx"], "pylaia": ["abcd"]}


def test_text_files_are_paired_line_by_line(tmp_path: Path) -> None:
    references = _write(tmp_path / "gt.txt", "abcd\n\nefgh\n")
    systems = read_systems(references, _write(tmp_path / "ocr.txt", "abcd\n\nefgx"))
    assert systems.references == ["abcd", "", "efgh"]
    assert systems.systems == {"ocr": ["abcd", "", "efgx"]}
    with pytest.raises(FadaError, match=r"gt.txt has 3 lines, .*short.txt has 1"):
        read_systems(references, _write(tmp_path / "short.txt", "abcd\n"))


def _page(tmp_path: Path, folder: str, texts: list[str]) -> Path:
    (tmp_path / folder).mkdir()
    lines = "".join(
        f'<TextLine id="l{i}"><Coords points="0,{i} 9,{i} 9,{i + 1} 0,{i + 1}"/>'
        f"<TextEquiv><Unicode>{text}</Unicode></TextEquiv></TextLine>"
        for i, text in enumerate(texts)
    )
    namespace = "http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15"
    document = (
        f'<?xml version="1.0" encoding="UTF-8"?><PcGts xmlns="{namespace}"><Page imageFilename="p1.png" '
        f'imageWidth="10" imageHeight="10"><TextRegion id="r"><Coords points="0,0 9,0 9,9 0,9"/>{lines}'
        "</TextRegion></Page></PcGts>"
    )
    return _write(tmp_path / folder / "p1.xml", document).parent


def test_page_files_are_paired_by_line_id(tmp_path: Path) -> None:
    systems = read_systems(_page(tmp_path, "gt", ["abcd", "efgh"]), _page(tmp_path, "ocr", ["abcx", "efgh"]))
    assert systems.references == ["abcd", "efgh"]
    assert systems.systems == {"ocr": ["abcx", "efgh"]}
    assert len(set(systems.column("page"))) == 1


def test_lines_without_reference_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [{"id": 1, "reference": "a", "hypothesis": "a"}, {"id": 2, "reference": None, "hypothesis": "b"}]
    systems = read_systems(_write(tmp_path / "x.jsonl", "\n".join(map(json.dumps, rows))))
    assert (len(systems.ids), systems.left_out) == (1, 1)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "reference,page\nx,1\n", "no hypothesis column among reference, page"),
        ("a.csv", "", "empty, expected a header"),
        ("a.csv", "reference,hypothesis\nx\n", "line 2: 1 cells, expected 2"),
        ("a.csv", 'reference,hypothesis\nx,"Oh\ny,z\n', "line 2: not CSV"),
        ("a.jsonl", '{"reference": "x"\n', "line 1: not JSON"),
        ("a.jsonl", "[1]\n", "expected a JSON object"),
        ("a.txt", "x\n", "give two: references first"),
        ("a.parquet", "x\n", "not a readable parquet file"),
    ],
)
def test_mistakes_in_files_are_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(FadaError, match=message):
        read_systems(_write(tmp_path / name, text))


def test_two_references_for_a_line_and_repeated_lines_are_refused(tmp_path: Path) -> None:
    other = [ROWS[0], {**ROWS[2], "reference": "other"}]
    with pytest.raises(FadaError, match="two different references"):
        read_systems(_write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, other))))
    with pytest.raises(FadaError, match="stands twice for system 'beam'"):
        read_systems(_write(tmp_path / "b.jsonl", "\n".join(map(json.dumps, [ROWS[0], ROWS[0]]))))


def test_mixed_unicode_forms_are_noticed(tmp_path: Path) -> None:
    path = _write(tmp_path / "f.csv", "reference,hypothesis\ncaf\u00e9,cafe\u0301\n")
    assert "nfc" in some(read_systems(path).unicode_note())
    assert "hypothesis" in run_fada("evaluate", path).stderr
    assert run_fada("evaluate", path, "--normalization", "nfc").stderr == ""


def test_systems_are_tested_against_the_baseline(run: Path) -> None:
    systems = read_systems(run)
    result = evaluate_systems(systems, "beam", Scoring(bootstrap=50, resamples=100), groups=["page"])
    assert list(result.comparisons) == ["guided"]
    assert result.rows()[1]["change"] == pytest.approx(50 - 12.5)
    assert TypeAdapter(SystemsEvaluation).validate_json(json.dumps(result.to_dict())) == result
    with pytest.raises(FadaError, match="no system 'none'"):
        evaluate_systems(systems, "none")
    with pytest.raises(FadaError, match="no column 'writer', expected one of domain, page, length"):
        evaluate_systems(systems, groups=["writer"])


def test_mean_and_sem_over_runs_with_different_seeds(run: Path, tmp_path: Path) -> None:
    results = [evaluate_systems(read_systems(run), scoring=Scoring(bootstrap=0, resamples=0)) for _ in range(3)]
    rows = seed_rows(results)
    assert {(row["system"], row["domain"]) for row in rows} >= {("beam", "all"), ("guided", "13")}
    assert all(row["cer sem"] == 0 and row["runs"] == 3 for row in rows)


# ----------------------------------------------------------------------------------------------------- command line


def test_exit_code_is_3_above_the_threshold_and_0_below(run: Path) -> None:
    run_fada("evaluate", run, "--max-cer", 60)
    result = run_fada("evaluate", run, "--max-cer", 20, code=3)
    assert "guided: CER 50.00 % is above 20 %" in result.stderr
    assert "beam" not in result.stderr


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FadaError, match=r"absent\.tsv: no such file or folder"):
        run_fada("evaluate", tmp_path / "absent.tsv")


@pytest.mark.parametrize(
    ("sources", "options", "message"),
    [
        (["gt.txt", "ocr.txt"], ["--tuned", "t.json"], "--tuned: for stored emissions"),
        (["run"], ["--targets", "t.json"], "--targets: for stored emissions"),
        (["run"], ["--lm-text", "t.txt"], "--text: for stored emissions"),
        (["e.npz", "gt.txt"], [], "e.npz and .*gt.txt: stored emissions are evaluated against"),
        (["gt.txt", "e.npz"], [], "e.npz and .*gt.txt: stored emissions are evaluated against"),
        (["e.npz"], ["--domain-column", "century"], "--domain-column: .*e.npz is not a table"),
        (["e.npz"], ["--system", "guided"], "no system 'guided', expected some of beam, greedy"),
        (["gt.txt", "ocr.txt"], ["--domain-column", "century"], "--domain-column: .*gt.txt is not a table"),
        (["gt.txt", "ocr.txt"], ["--reference-column", "text"], "--reference-column: .*gt.txt is not a table"),
        (["gt.txt", "ocr.txt"], ["--hypothesis-column", "text"], "--hypothesis-column: .*ocr.txt is not a table"),
        (["gt.txt", "ocr.txt"], ["--split", "test"], "--split: .*gt.txt is not a table"),
        (["a.csv", "a.csv"], ["--hypothesis-column", "x", "--hypothesis-column", "y"], "2 hypothesis columns"),
        (["run"], ["--hypothesis-column", "hypothesis", "--hypothesis-column", "page"], "2 hypothesis columns"),
    ],
)
def test_options_and_sources_that_would_be_ignored_are_refused(
    run: Path, tmp_path: Path, sources: list[str], options: list[str], message: str
) -> None:
    make_emissions(0, 2).save(tmp_path / "e.npz")
    for name in ("gt.txt", "ocr.txt"):
        _write(tmp_path / name, "abc\n")
    _write(tmp_path / "a.csv", "id,text,x,y\n1,abc,abc,abd\n")
    with pytest.raises(FadaError, match=message):
        run_fada("evaluate", *(tmp_path / source for source in sources), *options)


def test_json_holds_everything_and_csv_the_main_table(run: Path, tmp_path: Path) -> None:
    arguments = ["--by", "page", "--clusters", "page", "--confusions", 2, "--worst", 1, "--characters", 2]
    value = json.loads(run_fada("evaluate", run, *arguments, "--json", "-o", tmp_path / "out.json").stdout)
    assert value == json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert value["evaluations"]["beam"]["per_group"]["page"]["p1"]["cer"] == 25
    assert value["worst lines"]["guided"][0]["id"] == "l2"
    assert value["confusions"]["beam"][0]["reference name"] == "LATIN SMALL LETTER D"
    assert value["characters"]["guided"][0]["helped"] == 1
    table = run_fada("evaluate", run, *arguments).stdout
    assert "guided: worst lines" in table
    assert run_fada("evaluate", run, "--csv").stdout.splitlines()[0].startswith("system,cer,low,high,wer,ned,change")


def test_seeds_are_summarised(run: Path) -> None:
    assert "cer sem" in run_fada("evaluate", run, run, run, "--seeds", "--csv").stdout
    with pytest.raises(FadaError, match="3 sources: give one"):
        run_fada("evaluate", run, run, run)


def test_lines_without_a_label_are_clusters_of_their_own() -> None:
    count = 40
    labels = [None] * 30 + ["p1"] * 10
    texts = {"a": ["abc"] * count, "b": ["abd"] * count}
    lines = LineColumns([str(i) for i in range(count)], ["abc"] * count, extra={"page": labels})
    systems = Systems(lines, texts, source="test")
    found = evaluate_systems(systems, "a", Scoring(bootstrap=20, resamples=20), clusters="page")
    assert found.evaluations["a"].clusters == 31


def test_a_column_that_stands_twice_is_refused_and_blank_rows_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "twice.csv").write_text("id,text,text,hypothesis\n1,abc,q,abd\n", encoding="utf-8")
    with pytest.raises(FadaError, match="the column 'text' stands twice"):
        read_systems(tmp_path / "twice.csv")
    (tmp_path / "blank.csv").write_text("id,text,hypothesis\n1,abc,abd\n\n", encoding="utf-8")
    assert len(read_systems(tmp_path / "blank.csv")) == 1
