"""One run folder from training through tuning to the report, by the command line, and what is stored on the way."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from fada.data.formats.parquet import write_parquet
from fada.data.source import read_lines
from fada.decoding.weights import Weights
from fada.errors import FadaError
from fada.evaluation.predictions import Systems
from fada.evaluation.sources import read_systems
from fada.runs.groups import load_runs
from fada.runs.run import load_run
from fada.tuning.tuned import Tuned
from tests.support.commands import run_fada
from tests.support.training_lines import image_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained and tuned run."""
    folder = tmp_path_factory.mktemp("run")
    for path in image_folder(folder / "lines").iterdir():
        lines = [replace(line, extra={"page": f"p{i // 2}"}) for i, line in enumerate(read_lines(path))]
        write_parquet(lines, path)
    settings = ["--model", "crnn:tiny", "--lam", 1, "--epochs", 2, "--batch-size", 8]
    run_fada("train", "--data", folder / "lines", *settings, "--out", folder / "run")
    options = ["--lam", 0.3, "--lam", 0.6, "--scale", 100, "--distance", "aligned_w2", "--json"]
    (folder / "tuned.txt").write_text(run_fada("tune", folder / "run", *options).stdout, encoding="utf-8")
    return folder


def test_tune_puts_its_decoding_of_the_test_lines_into_the_run(folder: Path) -> None:
    run = load_run(folder / "run")
    assert run.tuned is not None
    assert json.loads((folder / "tuned.txt").read_text(encoding="utf-8"))["lam"] == run.tuned.weights.lam
    assert list(run.predictions) == ["greedy", "beam5", "tuned"]
    found = run.predictions["tuned"]
    assert found.hypotheses == run.search("test").choose(run.tuned.weights)
    assert found.settings["tuned"]
    assert Weights(**{name: found.settings[name] for name in Weights.model_fields}) == run.tuned.weights
    assert found.guided == run.tuned.weights.guided
    assert run.tuned_system == "tuned"


def test_the_report_shows_the_tuned_system(folder: Path) -> None:
    run_fada("report", folder / "run", "--out", folder / "report.html", "--resamples", 50, "--no-images")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert '<th scope="row"><bdi>tuned</bdi>' in page


def test_tuning_again_replaces_the_system(folder: Path) -> None:
    run = load_run(folder / "run")
    assert run.tuned is not None
    before = run.predictions
    run.add_tuned(Tuned(weights=Weights(length_bonus=3.0)), run.search("test"))
    after = load_run(folder / "run").predictions
    assert list(after) == list(before)
    assert not after["tuned"].guided
    assert after["beam5"] == before["beam5"]
    run.add_tuned(run.tuned, run.search("test"))
    with pytest.raises(FadaError, match="are not here"):
        run.add_system("x", Weights(), [], before.lines.take([0]))


def test_a_tuned_weight_of_one_is_not_guided(folder: Path) -> None:
    run = load_run(folder / "run")
    systems = run.predictions
    settings = {"tuned": Weights().model_dump(), "beam5": Weights(lam=0.5).model_dump()}
    Systems(systems.lines, systems.systems, settings).save(folder / "other" / "predictions.parquet")
    (other,) = load_runs([folder / "other"])
    assert (other.plain_system, other.guided_system) == ("tuned", "beam5")
    again = read_systems(folder / "other")
    assert again.settings == settings


def test_evaluating_a_run_resamples_pages_as_documented(folder: Path) -> None:
    value = json.loads(run_fada("evaluate", folder / "run", "--clusters", "page", "--bootstrap", 50, "--json").stdout)
    assert value["evaluations"]["tuned"]["clusters"] == 3  # of six lines


def test_lines_and_search_of_a_run(folder: Path) -> None:
    run = load_run(folder / "run")
    assert [line.id for line in run.lines("test")] == run.predictions.ids
    assert run.search("validation").ids == run.emissions("validation").ids
    moved = load_run(folder / "run", data=folder / "lines")
    assert [line.id for line in moved.lines("validation")] == run.emissions("validation").ids


def test_emissions_of_another_program_are_decoded_and_evaluated_with_tuned_weights(folder: Path) -> None:
    run = load_run(folder / "run")
    emissions = run.emissions("test")
    np.savez(folder / "foreign.npz", **cast(Any, dict(zip(emissions.ids, emissions.log_probs, strict=True))))
    symbols = {"symbols": list(emissions.symbols), "blank": emissions.blank}
    (folder / "symbols.json").write_text(json.dumps(symbols), encoding="utf-8")
    options = ["--tuned", folder / "run" / "tuned.json", "--targets", folder / "run" / "targets.json"]
    options += ["--lines", folder / "lines" / "test.parquet"]
    value = json.loads(run_fada("evaluate", folder / "foreign.npz", *options, "--json").stdout)
    assert set(value["evaluations"]) == {"beam", "greedy", "tuned"}
    run_fada("decode", folder / "foreign.npz", *options, "--out", folder / "decoded.tsv")
    rows = (folder / "decoded.tsv").read_text(encoding="utf-8").splitlines()[1:]
    assert [row.split("\t")[3] for row in rows] == run.predictions["tuned"].hypotheses


def test_a_model_that_writes_token_by_token_is_tuned_by_command(tmp_path: Path) -> None:
    image_folder(tmp_path / "lines")
    settings = ["--model", "trocr-tiny", "--lam", 1, "--epochs", 1, "--set", "beam_size=2"]
    run_fada("train", "--data", tmp_path / "lines", *settings, "--out", tmp_path / "run")
    grid = ["--lam", 0.5, "--scale", 1, "--distance", "sorted_w2", "--beam", 2, "--metric", "ned"]
    told = run_fada("tune", tmp_path / "run", *grid, "--curve", tmp_path / "curve.svg").stderr
    run = load_run(tmp_path / "run")
    assert run.tuned is not None
    assert run.tuned.evidence is not None
    assert (run.tuned.kind, run.tuned.evidence.metric) == ("seq2seq", "ned")
    assert [point.weights.lam for point in run.tuned.evidence.curve] == [1.0, 0.5]
    assert all(None not in (point.cer, point.wer, point.ned) for point in run.tuned.evidence.curve)
    assert list(run.predictions) == ["greedy", "beam2", "tuned"]
    assert all(sentence in told for sentence in run.tuned.sentences())
