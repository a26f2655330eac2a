import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from fada.data.formats.parquet import write_parquet
from fada.data.line import Line, LineSet
from fada.decoding.emissions import Emissions
from fada.decoding.knowledge import Knowledge
from fada.decoding.search import BeamSearch
from fada.errors import FadaError
from fada.evaluation.scores import Scoring, compare, evaluate
from fada.evaluation.sources import read_systems
from fada.evaluation.systems import SystemsEvaluation
from fada.targets.target_set import TargetSet
from fada.tuning.decode import BEAM, GREEDY
from fada.tuning.grid import Grid
from fada.tuning.rivals import RivalsTable, compare_rivals
from tests.support.commands import run_fada
from tests.support.emission_sets import make_emissions, training_texts
from tests.support.types import some

GRID = Grid(lam=(0.2, 0.5), scale=(1.0, 100.0), prior_weight=(0.5, 1.0), lm_weight=(0.5,), length_bonus=(0.0, 1.0))


@pytest.fixture(scope="module")
def sets() -> tuple[Emissions, Emissions]:
    return make_emissions(1, 25, prefix="v"), make_emissions(2, 25, prefix="t")


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.from_texts(training_texts(), order=4)


QUICK = Scoring(bootstrap=200, resamples=500)


def searches(sets: tuple[Emissions, Emissions], knowledge: Knowledge) -> Any:
    return [BeamSearch(part, knowledge) for part in sets]


@pytest.fixture(scope="module")
def table(sets: tuple[Emissions, Emissions], knowledge: Knowledge) -> RivalsTable:
    return compare_rivals(*searches(sets, knowledge), grid=GRID, scoring=QUICK)


def test_every_rival_is_in_the_one_table(table: RivalsTable) -> None:
    names = [row["system"] for row in table.rows()]
    assert names == [
        "greedy",
        "beam",
        "Eq. 2, λ = 0.5",
        "FADA sorted",
        "FADA aligned",
        "prior correction",
        "4-gram",
        "4-gram + prior",
        "4-gram per domain",
        "4-gram per domain + prior",
        "4-gram per domain + FADA sorted",
        "4-gram per domain + FADA aligned",
        "4-gram per domain + prior + FADA aligned",
    ]
    rows: dict[Any, dict[str, Any]] = {row["system"]: row for row in table.rows()}
    assert rows["beam"]["p"] is None
    assert rows["prior correction"]["cer"] < rows["beam"]["cer"]
    assert rows["prior correction"]["p (Holm)"] >= rows["prior correction"]["p"]
    assert rows["FADA aligned"]["setting"].startswith("λ 0.")


def test_rivals_are_tuned_on_validation_and_reported_on_test(
    table: RivalsTable, sets: tuple[Emissions, Emissions], knowledge: Knowledge
) -> None:
    validation, test = sets
    rival = table.rivals["FADA aligned"]
    on_validation, on_test = (BeamSearch(part, knowledge).choose(some(rival.weights)) for part in sets)
    assert rival.validation == pytest.approx(evaluate(some(validation.references), on_validation, bootstrap=0).cer)
    assert table.result.evaluations["FADA aligned"].cer == pytest.approx(evaluate(some(test.references), on_test).cer)
    assert table.systems.systems["FADA aligned"] == on_test


def test_rivals_are_tested_against_the_beam_on_the_same_lines(
    table: RivalsTable, sets: tuple[Emissions, Emissions]
) -> None:
    test = sets[1]
    expected = compare(
        some(test.references),
        table.systems.systems[BEAM],
        table.systems.systems["prior correction"],
        test.domains,
        resamples=500,
        names=(BEAM, "prior correction"),
    )
    assert table.result.comparisons["prior correction"] == expected
    assert table.result.baseline == BEAM
    assert GREEDY in table.result.comparisons


def test_rivals_leave_out_what_they_know_nothing_of(sets: tuple[Emissions, Emissions]) -> None:
    table = compare_rivals(*searches(sets, Knowledge()), grid=GRID, scoring=Scoring(bootstrap=0, resamples=0))
    assert list(table.rivals) == ["greedy", "beam"]


def test_rivals_refuse_to_be_tuned_on_test_lines(sets: tuple[Emissions, Emissions], knowledge: Knowledge) -> None:
    with pytest.raises(FadaError, match="also validation lines"):
        compare_rivals(*searches((sets[0], sets[0]), knowledge))


def test_rivals_go_on_from_their_store(
    tmp_path: Path, sets: tuple[Emissions, Emissions], knowledge: Knowledge, table: RivalsTable
) -> None:
    store = tmp_path / "rivals.jsonl"
    options: dict[str, Any] = {"grid": GRID, "scoring": QUICK, "store": store}
    first = compare_rivals(*searches(sets, knowledge), **options)
    size = store.stat().st_size
    second = compare_rivals(*searches(sets, knowledge), **options)
    assert store.stat().st_size == size
    assert first.rows() == second.rows() == table.rows()


def test_the_table_survives_json_and_its_texts_a_file(tmp_path: Path, table: RivalsTable) -> None:
    value = json.loads(json.dumps(table.to_dict()))
    assert TypeAdapter(SystemsEvaluation).validate_python(value["test"]) == table.result
    table.systems.save(tmp_path / "rivals.parquet")
    again = read_systems(tmp_path / "rivals.parquet")
    assert (again.ids, again.references, again.systems) == (
        table.systems.ids,
        table.systems.references,
        table.systems.systems,
    )
    assert again.domains == table.systems.domains


def test_command_line_prints_the_table_of_rivals(tmp_path: Path, sets: tuple[Emissions, Emissions]) -> None:
    for name, part in zip(("validation", "test"), sets, strict=True):
        part.save(tmp_path / "emissions" / f"{name}.npz")
    TargetSet.from_texts(training_texts()).save(tmp_path / "targets.json")
    lines = [Line(f"{d}-{i}", t, d) for d, texts in training_texts().items() for i, t in enumerate(texts)]
    write_parquet(LineSet.of(lines), tmp_path / "train.parquet")
    arguments = ["tune", str(tmp_path), "--rivals", "--lm-text", str(tmp_path / "train.parquet"), "--lm-order", "3"]
    result = run_fada(*arguments, "--scale", 100, "--csv")
    assert "\n3-gram per domain + prior," in result.stdout
    assert set(json.loads((tmp_path / "rivals.json").read_text(encoding="utf-8"))) == {"rivals", "seconds", "test"}
    assert (tmp_path / "rivals.parquet").exists()
    assert (tmp_path / "tuned.json").exists()
