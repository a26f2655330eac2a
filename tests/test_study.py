import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from fada.cli import app
from fada.data.lines import read_lines, write_parquet
from fada.errors import FadaError
from fada.reproduce import Recipe, reproduce

RECIPES = sorted((Path(__file__).parent.parent / "recipes").glob("main-*.yaml"))


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


@pytest.fixture(scope="module")
def demo_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study") / "demo"
    done = run("demo", "--quick", "--out", folder, "--jobs", 1)
    assert done.exit_code == 0, done.output
    assert "FADA-TR-GD" in done.output
    return folder


def test_the_demo_leaves_models_weights_predictions_and_report(demo_folder):
    for name in ("standard", "fada-tr"):
        assert (demo_folder / name / "model" / "config.json").exists()
        assert (demo_folder / name / "tuned.json").exists()
    assert (demo_folder / "predictions.parquet").exists()
    assert (demo_folder / "report.html").stat().st_size > 10_000


def test_a_finished_study_is_not_trained_again(demo_folder):
    model = demo_folder / "standard" / "model" / "model.safetensors"
    before = model.stat().st_mtime_ns
    assert run("demo", "--quick", "--out", demo_folder, "--jobs", 1).exit_code == 0
    assert model.stat().st_mtime_ns == before


def test_a_study_of_own_lines_without_splits_divides_them_by_page(demo_folder, tmp_path):
    lines = [
        replace(line, extra={"page": line.extra["page"]})
        for line in read_lines(demo_folder / "lines" / "train.parquet")
    ]
    write_parquet(lines, tmp_path / "own.parquet")
    done = run(
        "study", tmp_path / "own.parquet", "--domain-column", "domain", "--model", "crnn:tiny", "--epochs", 1,
        "--jobs", 1, "--out", tmp_path / "study",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    pages = {
        split: {line.extra["page"] for line in read_lines(tmp_path / "study" / "lines" / f"{split}.parquet")}
        for split in ("train", "validation", "test")
    }
    assert all(pages.values())
    assert not pages["train"] & pages["test"]


def test_a_recipe_becomes_a_table_and_json(demo_folder, tmp_path):
    recipe = {
        "title": "Test row",
        "dataset": "Synthetic",
        "model": "C-RNN",
        "published": {"standard": [9.71, 31.58]},
        "differences": "Everything.",
        "train": {"data": ["nowhere"], "domain_column": "domain", "model": "crnn:tiny", "epochs": 1, "patience": 0},
        "arms": {"standard": {"lam": 1.0}, "fada-tr": {"lam": [0.5], "distance": "sorted_w2"}},
        "seeds": [1],
    }
    file = tmp_path / "row.yaml"
    file.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    data = str(demo_folder / "lines")
    folder = reproduce(file, data, runs=tmp_path / "runs", results=tmp_path / "results", jobs=1)
    result = json.loads((folder / "1.json").read_text(encoding="utf-8"))
    assert set(result["systems"]["evaluations"]) == {"standard", "FADA-GD", "FADA-TR", "FADA-TR-GD"}
    assert result["arms"]["fada-tr"]["lam_tr"] == 0.5
    assert len(result["lambda_curves"]["GD on standard"]) == 19
    assert "| standard |" in (folder / "table.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_recipes_are_valid(path):
    recipe = Recipe.load(path)
    from fada.training import TrainSettings

    for changes in recipe.arms.values():
        values = changes.get("lam", 1.0)
        for lam in values if isinstance(values, list) else [values]:
            TrainSettings.of({**recipe.train, **changes, "lam": lam, "out": "x"})
            TrainSettings.of({**recipe.train, **recipe.quick, **changes, "lam": lam, "out": "x"})


def test_a_recipe_with_an_unknown_key_is_refused(tmp_path):
    file = tmp_path / "row.yaml"
    file.write_text("titel: x\n", encoding="utf-8")
    with pytest.raises(FadaError, match=r"row\.yaml"):
        Recipe.load(file)
