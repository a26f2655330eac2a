import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fada.data.columns import LineColumns
from fada.data.formats.parquet import write_parquet
from fada.errors import FadaError
from fada.evaluation.edits import score_lines
from fada.evaluation.predictions import Systems
from fada.experiments.document import document
from fada.experiments.lipogram.experiment import Experiment, LipogramRecipe
from fada.experiments.recipe import Recipe, recipes_of
from fada.experiments.record import load_results
from fada.experiments.reproduce import Scope, reproduce
from fada.experiments.scoring import check_results, examples
from fada.training.settings import TrainSettings
from tests.support.commands import run_fada
from tests.support.training_lines import image_lines

REPOSITORY = Path(__file__).parents[2]
RECIPES = sorted((REPOSITORY / "recipes").glob("main-*.yaml"))
MORE = sorted((REPOSITORY / "recipes").glob("more-*.yaml"))
ROW = {
    "title": "Test row",
    "dataset": "Synthetic",
    "model": "C-RNN",
    "published": {"standard": [9.71, 31.58], "FADA-TR-GD": [8.31, 27.08]},
    "differences": "Everything.",
    "train": {"data": ["nowhere"], "domain_column": "domain", "model": "crnn:tiny", "epochs": 1, "patience": 0},
    "arms": {"standard": {"lam": 1.0}, "fada-tr": {"lam": [0.3, 0.5], "distance": "sorted_w2"}},
    "clusters": ["page"],
    "seeds": [1, 2],
    "guided_lams": [0.3, 0.7],
    "ours": {"lm_order": 3, "tuning_beam": 3, "beam": 4, "adapt": {"epochs": 1, "patience": 0, "batch_size": 8}},
}


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A recipe run with two seeds, in steps: first the standard arm alone, then everything."""
    folder = tmp_path_factory.mktemp("reproduce")
    (folder / "lines").mkdir()
    for split, count in (("train", 24), ("validation", 6), ("test", 6)):
        lines = [
            replace(line, extra={"page": f"{split}{i // 2}"}) for i, line in enumerate(image_lines(count, prefix=split))
        ]
        write_parquet(lines, folder / "lines" / f"{split}.parquet")
    file = folder / "main-test.yaml"
    file.write_text(yaml.safe_dump(ROW), encoding="utf-8")
    scope = Scope(runs=folder / "runs", results=folder / "results", workers=1)
    reproduce(file, str(folder / "lines"), replace(scope, seeds=[1], arms=["standard"]))
    first = json.loads((folder / "results" / "main-test" / "1.json").read_text(encoding="utf-8"))
    reproduce(file, str(folder / "lines"), scope)
    return folder, first


def result_of(folder: Path, seed: int) -> Any:
    return json.loads((folder / "results" / "main-test" / f"{seed}.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_arms_can_be_trained_one_after_the_other(reproduced: tuple[Path, dict[str, Any]]) -> None:
    folder, first = reproduced
    assert set(first["systems"]) == {"standard", "FADA-GD"}
    assert set(result_of(folder, 1)["systems"]) == {"standard", "FADA-GD", "FADA-TR", "FADA-TR-GD"}


@pytest.mark.slow
def test_every_seed_has_systems_curves_beams_rivals_and_parts(reproduced: tuple[Path, dict[str, Any]]) -> None:
    result = result_of(reproduced[0], 1)
    assert len(result["lambda_curves"]["GD on standard"]) == 2
    assert {point["lam"] for point in result["lambda_curves"]["TR"]} == {1.0, 0.3, 0.5}
    assert set(result["beams"]["standard"]) == {"1", "5", "7"}
    assert "prior correction" in result["rivals"]["standard"]
    parts = {
        "standard + 3-gram of all domains",
        "standard + 3-gram + prior",
        "continued, beam 4",
        "adapted, beam 4",
        "fada-tr + 3-gram + prior + FADA-GD",
    }
    assert {"standard", *parts} <= set(result["ours"]["rows"])
    assert 1 < result["lines"]["clusters"] <= result["lines"]["test"]
    for rows in (result["systems"], result["rivals"]["standard"], result["ours"]["rows"]):
        compared = [row for row in rows.values() if "relative" in row]
        assert len(compared) == len(rows) - 1
        assert all({"p", "p_clusters"} <= set(row) for row in compared)
    control = result["ours"]["rows"]["adapted, beam 4"]["against_continued"]
    assert 0 < control["p"] <= 1
    assert 0 < control["p_clusters"] <= 1
    assert result["arms"]["standard"]["hypotheses_changed_by_gd"] <= result["lines"]["test"]
    assert all(0.5 < result["overhead"][what]["ratio"] < 5 for what in ("training", "decoding"))
    assert "overhead" not in result_of(reproduced[0], 2)  # measured once


@pytest.mark.slow
def test_the_figures_of_the_data_are_drawn(reproduced: tuple[Path, dict[str, Any]]) -> None:
    drawn = {path.stem for path in (reproduced[0] / "results" / "main-test" / "figures").glob("*.png")}
    assert {"heatmap", "pearson", "trends"} <= drawn


@pytest.mark.slow
def test_later_seeds_train_only_the_lambda_that_the_first_chose(reproduced: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = reproduced
    chosen = result_of(folder, 1)["arms"]["fada-tr"]["lam_tr"]
    trained = {path.name for path in (folder / "runs" / "main-test" / "2").iterdir()}
    assert trained == {"standard", f"fada-tr-{chosen:g}", "continued", "adapted"}
    assert result_of(folder, 2)["arms"]["fada-tr"]["lam_tr"] == chosen


@pytest.mark.slow
def test_the_document_tells_what_the_files_hold(reproduced: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = reproduced
    text = document(folder / "results")
    seeds = load_results(folder / "results")["main-test"]
    assert [seed.seed for seed in seeds] == [1, 2]
    mean = np.mean([seed.systems["standard"].cer for seed in seeds])
    assert f"| Synthetic | C-RNN | standard | 2 | {mean:.2f} (" in text
    assert "-14.4 %" in text  # the paper's own change
    run_fada("results", folder / "results", "--out", folder / "results.md")
    assert (folder / "results.md").read_text(encoding="utf-8") == text


@pytest.mark.slow
def test_every_lambda_of_every_seed_is_kept_with_its_test_error(reproduced: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = reproduced
    arms = {**ROW["arms"], "fada-tr-decoded": {"lam": 0.5, "predicted": "decoded"}}  # type: ignore[dict-item]
    row = {**ROW, "arms": arms, "every_lam": True, "rivals": False, "ours": None}
    file = folder / "more-test.yaml"
    file.write_text(yaml.safe_dump(row), encoding="utf-8")
    results = folder / "once-more"
    reproduce(file, str(folder / "lines"), Scope(runs=folder / "runs", results=results, workers=1))
    for record in load_results(results)["more-test"]:
        points = {(point.arm, point.lam): point.test_cer for point in record.lambda_curves["TR"]}
        assert set(points) == {("standard", 1.0), ("fada-tr", 0.3), ("fada-tr", 0.5), ("fada-tr-decoded", 0.5)}
        assert points["standard", 1.0] == record.systems["standard"].cer
        assert points["fada-tr", record.arms["fada-tr"].lam_tr] == record.systems["FADA-TR"].cer
        assert not record.rivals
    assert list(check_results(results)) == []
    text = document(results)
    assert "## Once more: Synthetic, C-RNN" in text
    assert "| FADA-TR-GD (decoded) | 2 |" in text
    assert "| fada-tr | 0.3 | 2 |" in text


def test_the_committed_document_agrees_with_the_committed_results() -> None:
    committed = (REPOSITORY / "docs" / "results.md").read_text(encoding="utf-8")
    assert committed == document(REPOSITORY / "results"), "run: fada results --out docs/results.md"


@pytest.mark.slow
def test_results_are_recomputed_from_the_stored_texts(reproduced: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    folder, _ = reproduced
    run_fada("results", folder / "results", "--check")
    shutil.copytree(folder / "results", tmp_path / "results")
    file = tmp_path / "results" / "main-test" / "2.json"
    record = json.loads(file.read_text(encoding="utf-8"))
    assert record["made"]["libraries"]["numpy"] == np.__version__
    record["rivals"]["standard"]["prior correction"]["cer"] += 0.1
    file.write_text(json.dumps(record), encoding="utf-8")
    told = run_fada("results", tmp_path / "results", "--check", code=3).output
    assert "seed 2, rivals standard prior correction, cer" in told
    assert "1 figures differ, 0 files could not be checked" in told


def test_results_of_the_first_version_say_that_they_have_no_texts() -> None:
    told = list(check_results(REPOSITORY / "results"))
    assert all("without texts" in sentence for sentence in told)


def test_lipograms_are_recomputed_from_their_stories(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "results" / "lipogram-eq2", tmp_path / "run")
    recipe = LipogramRecipe.load(tmp_path / "run" / "recipe.json")
    assert list(Experiment(recipe, tmp_path / "run").differing()) == []
    file = tmp_path / "run" / "stories" / "beam5-0-e-soft.json"
    stored = json.loads(file.read_text(encoding="utf-8"))
    stored["stories"][0]["text"] = "No such word."
    file.write_text(json.dumps(stored), encoding="utf-8")
    told = " ".join(Experiment(recipe, tmp_path / "run").differing())
    assert "beam5-0-e-soft.json, words: stored" in told


def test_examples_are_those_with_the_largest_changes() -> None:
    references = ["aaaa", "bbbb", "cccc", "dddd", "eeee"]
    standard = ["aaxx", "bbbb", "cxxx", "dddd", "eeex"]
    guided = ["aaaa", "bbbx", "cccc", "dddd", "eeex"]
    lines = LineColumns(list("12345"), references, ["x"] * 5)
    systems = Systems(lines, {"standard": standard, "FADA-GD": guided}, source="test")
    found = examples(systems)
    changes = score_lines(references, guided).edits - score_lines(references, standard).edits
    assert [example.id for example in found] == ["3", "1", "2"]
    assert changes.tolist() == [-2, 1, -3, 0, 0]


@pytest.mark.parametrize("path", [*RECIPES, *MORE], ids=lambda path: path.stem)
def test_the_recipes_are_valid(path: Path) -> None:
    recipe = Recipe.load(path)
    for changes in recipe.arms.values():
        values = changes.get("lam", 1.0)
        for lam in values if isinstance(values, list) else [values]:
            for further in ({}, recipe.quick, recipe.paper):
                TrainSettings.of({**recipe.train, **further, **changes, "lam": lam, "out": "x"})


def test_tables_are_known_by_name() -> None:
    assert recipes_of("main", REPOSITORY / "recipes") == RECIPES
    assert recipes_of("more", REPOSITORY / "recipes") == MORE
    with pytest.raises(FadaError, match="no table of this name"):
        recipes_of("tabel")


def test_a_recipe_with_an_unknown_key_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "row.yaml"
    file.write_text("titel: x\n", encoding="utf-8")
    with pytest.raises(FadaError, match=r"row\.yaml"):
        Recipe.load(file)


def test_an_unknown_arm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FadaError, match="no arm 'fada'"):
        reproduce(RECIPES[0], None, Scope(arms=["fada"], runs=tmp_path, results=tmp_path))


def test_results_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(FadaError, match="no results here"):
        document(tmp_path)
