"""Rows of the main table with decoders: the same results as for CTC models, and every decoding made once."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from fada.data.formats.parquet import write_parquet
from fada.data.line import Line
from fada.experiments.recipe import Recipe
from fada.experiments.reproduce import Scope, reproduce
from tests.support import model_folders
from tests.support.training_lines import sound_lines


@pytest.fixture(scope="module")
def row(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe of three arms, run; the folder holds `runs`, `results` and `data`."""
    folder = tmp_path_factory.mktemp("row")
    (folder / "data").mkdir()
    for seed, (split, count) in enumerate({"train": 8, "validation": 4, "test": 4}.items()):
        broken = Line(f"broken-{split}", "abc", "old", audio=b"RIFF")
        write_parquet([*sound_lines(count, seed), broken], folder / "data" / f"{split}.parquet")
    recipe = {
        "title": "Test row",
        "dataset": "EdAcc",
        "model": "Whisper",
        "published": {"standard": [27.11, 40.02]},
        "differences": "Everything.",
        "train": {
            "data": ["nowhere"],
            "domain_column": "domain",
            "model": str(model_folders.whisper_folder(folder / "whisper")),
            "max_seconds": 1,
            "freeze": "encoder",
            "encoder_cache": str(folder / "cache"),
            "epochs": 1,
            "learning_rate": 0.01,
            "beam_size": 2,
            "threads": 1,
        },
        "arms": {"standard": {"lam": 1.0}, "tr-tt": {"lam": 1.0, "tagging": "given"}, "fada-tr": {"lam": 0.5}},
        "seeds": [1],
        "beams": [1, 2, 3],
        "guided_lams": [0.3, 0.7],
        "guided_scales": [10, 30],
    }
    (folder / "row.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
    run(folder)
    return folder


def run(folder: Path) -> dict[str, Any]:
    scope = Scope(runs=folder / "runs", results=folder / "results", workers=1)
    out = reproduce(folder / "row.yaml", str(folder / "data"), scope)
    assert "| standard |" in (out / "table.md").read_text(encoding="utf-8")
    return json.loads((out / "1.json").read_text(encoding="utf-8"))


def test_the_result_has_every_system_and_what_was_chosen_on_validation_lines(row: Path) -> None:
    result = json.loads((row / "results" / "row" / "1.json").read_text(encoding="utf-8"))
    assert list(result["systems"]) == [
        "standard", "FADA-GD", "standard + aligned GD (ours)",
        "TR-TT", "TR-TT + GD", "TR-TT + aligned GD (ours)",
        "FADA-TR", "FADA-TR-GD", "FADA-TR + aligned GD (ours)",
    ]  # fmt: skip
    assert result["lines"] == {"validation": 4, "test": 4}  # without the broken ones
    for arm, found in result["arms"].items():
        curve = {point["lam"]: point["validation_cer"] for point in result["lambda_curves"][f"GD on {arm}"]}
        assert sorted(curve) == [0.3, 0.7]
        assert curve[found["lam_gd"]] == min(curve.values())
        scales = found["aligned_gd"]["validation_cer"]
        assert scales[f"{found['aligned_gd']['scale']:g}"] == min(scales.values())
        assert found["history"][0]["pull"]["alignment"] > 0
    assert set(result["beams"]) == {"standard", "fada-tr"}
    assert set(result["beams"]["standard"]) == {"1", "2", "3"}
    assert result["systems"]["FADA-GD"]["p"] is not None


def test_a_second_call_changes_nothing(row: Path) -> None:
    before = json.loads((row / "results" / "row" / "1.json").read_text(encoding="utf-8"))
    files = {path: path.stat().st_mtime_ns for path in (row / "runs").rglob("*") if path.is_file()}
    assert run(row) == before
    assert {path: path.stat().st_mtime_ns for path in (row / "runs").rglob("*") if path.is_file()} == files


def test_the_recipes_with_decoders_are_complete() -> None:
    for path in sorted((Path(__file__).parents[2] / "recipes").glob("main-*")):
        if path.stem.endswith(("trocr", "whisper")):
            recipe = Recipe.load(path)
            assert {"standard", "tr-tt", "fada-tr"} == set(recipe.arms)
            assert {"FADA-TR-GD", "TR-TT"} <= set(recipe.published)
            assert {"model", "epochs", "patience", "batch_size"} <= set(recipe.paper)
            assert int(str(recipe.quick["max_lines"])) <= 64


def test_other_seeds_keep_the_guidance_that_the_first_chose(row: Path) -> None:
    scope = Scope(runs=row / "runs", results=row / "results", seeds=[2], arms=["standard"], workers=1)
    out = reproduce(row / "row.yaml", str(row / "data"), scope)
    first, second = (json.loads((out / f"{seed}.json").read_text(encoding="utf-8")) for seed in (1, 2))
    kept = second["arms"]["standard"]
    assert kept["lam_gd"] == first["arms"]["standard"]["lam_gd"]
    assert kept["aligned_gd"]["scale"] == first["arms"]["standard"]["aligned_gd"]["scale"]
    decoded = {path.stem for path in (row / "runs" / "row" / "2" / "standard" / "decodings" / "validation").iterdir()}
    assert decoded == {"beam=2"}
