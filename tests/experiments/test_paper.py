"""The paper by one command: what can run runs, what cannot is told with what is missing."""

from pathlib import Path

import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

from fada.cli import app
from fada.data.formats.parquet import write_parquet
from fada.data.line import Line, LineSet
from fada.data.splits import LineSources
from fada.data.synthetic.set import make_synthetic
from fada.errors import FadaError
from fada.experiments.paper import lines_of
from fada.experiments.reproduce import Scope

ROW = {
    "title": "Test row",
    "dataset": "Synthetic",
    "model": "C-RNN",
    "published": {"standard": [9.71, 31.58]},
    "differences": "Everything.",
    "train": {"data": ["nowhere"], "domain_column": "domain", "model": "crnn:tiny", "epochs": 1, "patience": 0},
    "arms": {"standard": {"lam": 1.0}},
    "seeds": [1],
    "guided_lams": [0.5],
    "beams": [1],
}
SYNTHETIC = {"folder": "made", "synthetic": {"lines": 32, "domains": 2, "height": 32, "noise": 0.5, "seed": 0}}
MISSING = {"folder": "codices", "how": "Photograph them."}


@pytest.fixture
def recipes(tmp_path: Path) -> Path:
    folder = tmp_path / "recipes"
    folder.mkdir()
    for name, source in {"main-a-missing": MISSING, "main-b-synthetic": SYNTHETIC}.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump({**ROW, "source": source}), encoding="utf-8")
    return folder


def test_one_command_runs_what_can_run_and_tells_what_is_missing(
    recipes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["reproduce", "main", "--quick", "--jobs", "1"])
    assert done.exit_code == 2, done.output
    assert "1 of 5 ran" in done.stdout
    assert "expected in FOLDER/codices (--data FOLDER). Photograph them." in done.stdout
    assert "no such recipe" in done.stdout  # the lipograms
    told = (tmp_path / "results" / "results-quick.md").read_text(encoding="utf-8")
    for section in ("Main results", "Ablation", "CER per domain", "Beam size", "λ: validation CER", "overhead"):
        assert section in told
    assert (tmp_path / "results" / "main-b-synthetic-quick" / "figures" / "pearson.png").exists()
    assert (tmp_path / "results" / "summary-quick.md").exists()


def test_models_are_taken_from_the_folder_of_models(tmp_path: Path) -> None:
    scope = Scope(models=tmp_path)
    assert scope.model("openai/whisper-tiny.en") == "openai/whisper-tiny.en"
    (tmp_path / "whisper-tiny.en").mkdir()
    assert scope.model("openai/whisper-tiny.en") == str(tmp_path / "whisper-tiny.en")
    assert Scope().model("crnn:tiny") == "crnn:tiny"


def test_few_lines_have_every_domain(tmp_path: Path) -> None:
    drawn = Image.new("L", (60, 20), 200)
    lines = [
        Line(f"{split}{i}", "text", f"{i % 5 % 3}", image=drawn, extra={"split": split, "domain": f"{i % 5 % 3}"})
        for split in ("train", "validation", "test")
        for i in range(50)
    ]
    write_parquet(LineSet.of(lines), tmp_path / "lines")
    settings = {"data": [str(tmp_path / "lines")], "domain_column": "domain", "max_lines": 5}
    chosen = LineSources.model_validate(settings).read()
    for part in (chosen.train, chosen.validation, chosen.test):
        assert len(part) == 5
        assert {line.domain for line in part} == {"0", "1", "2"}


def test_lines_are_found_in_the_folder_of_their_set(recipes: Path, tmp_path: Path) -> None:
    missing, scope = recipes / "main-a-missing.yaml", Scope(runs=tmp_path / "runs")
    sets = tmp_path / "sets"
    (sets / "other").mkdir(parents=True)
    with pytest.raises(FadaError, match=r"sets/codices .*Photograph them"):
        lines_of(missing, sets, scope)
    make_synthetic(lines=8, domains=2, height=32).save(sets / "codices")
    assert lines_of(missing, sets, scope) == str(sets / "codices")
    assert lines_of(missing, sets / "codices", scope) == str(sets / "codices")  # the lines themselves
