"""What choosing among settings without effect gains: against the expectation of the smallest of normal draws."""

from pathlib import Path

import pytest

from benchmarks.selection import Spread, gains, published, spread_of
from fada.experiments.recipe import Recipe
from fada.experiments.record import load_results

REPOSITORY = Path(__file__).parents[2]
LARGEST = {1: 0.0, 5: 1.16296, 19: 1.84448}  # expectation of the largest of so many standard normal values


@pytest.mark.parametrize("settings", LARGEST)
@pytest.mark.parametrize("correlation", [0.0, 0.6, 1.0])
def test_the_gain_is_that_of_the_smallest_normal_value(settings: int, correlation: float) -> None:
    spread = Spread("x", "y", cer=20.0, test=1.0, validation=2.0, correlation=correlation, degrees=2)
    expected = -100 * LARGEST[settings] / 3**0.5 / 20.0
    found = gains(spread, settings, draws=40_000)
    assert found["test"] == pytest.approx(expected, abs=0.06)
    assert found["validation"] == pytest.approx(correlation * expected, abs=0.06)


def test_the_spread_is_of_seeds_of_one_setting() -> None:
    seeds = load_results(REPOSITORY / "results")["main-hpgt-crnn"]
    spread = spread_of(seeds)
    assert spread is not None
    assert spread.degrees == 6  # three arms with three seeds; the arm with one has none
    assert -1 <= spread.correlation <= 1
    assert spread_of(seeds[:1]) is None


def test_the_papers_spread_comes_from_its_standard_error() -> None:
    spread = published(Recipe.load(REPOSITORY / "recipes" / "main-hpgt-crnn.yaml"))
    assert spread is not None
    assert (spread.cer, spread.reported) == (24.72, -3.3)
    assert spread.test == pytest.approx(0.38 * 3**0.5)
    assert published(Recipe.load(REPOSITORY / "recipes" / "main-accents-whisper.yaml")) is None  # none is printed
