"""The figures: the numbers in them against oracles, every glyph drawn, files that repeat."""

import unicodedata
import warnings
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from statsmodels.nonparametric.smoothers_lowess import lowess
from statsmodels.stats.proportion import confint_proportions_2indep

from fada.errors import FadaError
from fada.targets import figures as analysis
from fada.targets.distribution import CharDistribution
from fada.targets.target_set import TargetSet
from fada.text.characters import OTHER
from fada.text.normalizer import TextNormalizer
from tests.support.commands import run_fada
from tests.support.types import some

HPGT = Path(__file__).parents[1] / "files" / "hpgt_counts.json"
POLYTONIC = [c for c in map(chr, range(0x1F00, 0x2000)) if unicodedata.category(c) == "Ll"]
POLYTONIC += list(map(chr, range(0x3AC, 0x3CF)))


@pytest.fixture(scope="module")
def greek() -> TargetSet:
    """Counts (numbers only) of the letters of HPGT, century by century."""
    return TargetSet.load(HPGT)


@pytest.fixture(autouse=True)
def _no_warnings() -> None:
    # Matplotlib warns of every glyph that it cannot draw.
    warnings.simplefilter("error")


def test_pearson_between_the_centuries_of_hpgt_is_that_of_the_paper_within_a_hundredth(greek: TargetSet) -> None:
    correlation = greek.pearson()
    at = {domain: i for i, domain in enumerate(greek.domains)}
    published = {("10", "11"): 0.99, ("12", "13"): 0.94, ("10", "16"): 0.91, ("13", "15"): 0.89}
    ours = {("10", "11"): 0.99, ("12", "13"): 0.95, ("10", "16"): 0.92, ("13", "15"): 0.90}
    for pair, value in published.items():
        found = round(float(correlation[at[pair[0]], at[pair[1]]]), 2)
        assert found == ours[pair]
        assert abs(found - value) < 0.011


counts = st.lists(st.integers(0, 400), min_size=3, max_size=6)


@given(counts, counts)
@settings(max_examples=60, deadline=None)
def test_the_interval_of_a_change_is_newcombes(first: list[int], second: list[int]) -> None:
    n = min(len(first), len(second))
    symbols = tuple("abcdef"[:n])
    before, after = (CharDistribution(symbols, np.array(c[:n]) + 1) for c in (first, second))
    for one in analysis.shifts(before, after):
        i = before.index[one.symbol]
        low, high = confint_proportions_2indep(
            after.counts[i], after.total, before.counts[i], before.total, method="newcomb", compare="diff"
        )
        assert (one.low, one.high) == pytest.approx((low, high), abs=1e-9)
        assert one.change == pytest.approx(after.frequencies[i] - before.frequencies[i])


def test_shifts_come_largest_first_and_their_shares_sum_to_one(greek: TargetSet) -> None:
    found = analysis.shifts(greek["10"], greek["15"])
    sizes = [abs(one.change) for one in found]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(one.share for one in found) == pytest.approx(1)
    assert found[0].symbol == "α"
    assert found[0].certain


def test_little_text_makes_a_change_uncertain() -> None:
    few, many = (
        analysis.shifts(CharDistribution(("a", "b"), before * n), CharDistribution(("a", "b"), after * n))[0]
        for before, after in [(np.array([10, 20]), np.array([15, 15]))]
        for n in (1, 100)
    )
    assert not few.certain
    assert many.certain
    assert few.change == pytest.approx(many.change)


def test_the_pair_to_compare_is_the_furthest_apart_unless_named(greek: TargetSet) -> None:
    apart = greek.distances("aligned_w2")
    i, j = np.unravel_index(apart.argmax(), apart.shape)
    assert analysis.shift_pair(greek) == (greek.domains[min(i, j)], greek.domains[max(i, j)])
    assert analysis.shift_pair(greek, "15", "12") == ("15", "12")
    assert some(analysis.shift_pair(greek, after="10"))[1] == "10"
    assert analysis.shift_pair(TargetSet({"x": greek["10"]})) is None
    with pytest.raises(FadaError, match="no domain '17'"):
        analysis.shift_pair(greek, "17")
    with pytest.raises(FadaError, match="to itself"):
        analysis.shift_pair(greek, "10", "10")


def test_the_heat_map_holds_characters_above_the_threshold_most_frequent_first(greek: TargetSet) -> None:
    figure = analysis.heatmap(greek, threshold=0.01)
    axis = figure.axes[0]
    shown = [label.get_text() for label in axis.get_xticklabels()]
    frequencies = greek.frequencies
    mean = dict(zip(greek.symbols, frequencies.mean(axis=0), strict=True))
    assert set(shown) == {c for c, top in zip(greek.symbols, frequencies.max(axis=0), strict=True) if top >= 0.01}
    assert [mean[c] for c in shown] == sorted((mean[c] for c in shown), reverse=True)
    drawn = some(axis.images[0].get_array())
    assert drawn[0, shown.index("α")] == pytest.approx(100 * greek["10"].frequency("α"))
    with pytest.raises(FadaError, match="no character reaches"):
        analysis.heatmap(greek, threshold=0.9)


def test_trends_are_black_for_the_domain_and_grey_for_the_others(greek: TargetSet) -> None:
    figure = analysis.trends(greek, fraction=0.15, characters=40)
    axis = figure.axes[0]
    black = [line for line in axis.lines if to_rgb(line.get_color()) == (0, 0, 0)]
    grey = [line for line in axis.lines if len(set(to_rgb(line.get_color()))) == 1 and line not in black]
    assert len(black) == 1
    assert len(grey) == len(greek) - 1
    order = np.argsort(-greek.frequencies.mean(axis=0), kind="stable")[:40]
    smooth = lowess(100 * greek["10"].frequencies[order], np.arange(40.0), frac=0.15, it=0, return_sorted=False)
    np.testing.assert_allclose(np.asarray(black[0].get_ydata()), np.maximum(smooth, 0))


def test_the_shift_figure_draws_the_changes_with_their_intervals(greek: TargetSet) -> None:
    figure = analysis.shift(greek, "10", "15", top=10)
    axis = figure.axes[0]
    expected = [100 * one.change for one in analysis.shifts(greek["10"], greek["15"])[:10]]
    assert [cast(Rectangle, bar).get_width() for bar in axis.patches] == pytest.approx(expected)
    assert axis.collections or axis.containers
    with pytest.raises(FadaError, match="no shift"):
        analysis.shift(TargetSet({"a": greek["10"], "b": greek["10"]}), "a", "b")


def drawn_texts(figure: Figure) -> list[tuple[str, list[str]]]:
    from matplotlib.text import Text

    figure.canvas.draw()
    return [(text.get_text(), text.get_fontfamily()) for text in figure.findobj(Text) if text.get_text()]


def test_every_glyph_of_150_polytonic_characters_is_drawn() -> None:
    alphabet = [*POLYTONIC[:150], " ", "\u00a0", "\u0301", "\u0345", "\u200b", "$", "_", OTHER]
    rng = np.random.default_rng(0)
    normalizer = TextNormalizer(form="none", case="keep")
    targets = TargetSet(
        {
            name: CharDistribution(tuple(alphabet), rng.integers(0, 900, len(alphabet)), normalizer)
            for name in ("ιγ΄ $x$", "漢字")
        }
    )
    files = dict(analysis._installed_fonts())
    before, after = targets.domains
    for figure in (analysis.heatmap(targets, threshold=0), analysis.shift(targets, before, after, top=60)):
        for text, families in drawn_texts(figure):
            fonts = [files.get(family, files["DejaVu Sans"]) for family in families]
            for character in text.replace("\n", ""):
                assert any(ord(character) in analysis._glyphs(font) for font in fonts), f"no glyph for {character!r}"


def test_every_figure_is_written_as_png_and_svg(tmp_path: Path) -> None:
    targets = TargetSet.from_texts({"$a$": ["abc é"], "b_1": ["bcd, e\u0323"]})
    paths = analysis.analyze(targets, tmp_path)
    assert {path.name for path in paths} == {
        f"{figure}.{ending}" for figure in ("heatmap", "trends", "pearson", "shift") for ending in ("png", "svg")
    }
    assert all(path.stat().st_size > 1000 for path in paths)


def test_the_letters_of_medievalists_are_drawn_and_named_whatever_fonts_the_machine_has() -> None:
    for sign in "ꝑꝓꝗꝙꝛꝫꝭꝯꝰ⁊":
        assert analysis._drawable(sign) == sign
    assert analysis._named("ꝰ") == "modifier letter us  ꝰ"
    assert analysis._named("ꝙ") == "q with diagonal stroke  ꝙ"
    assert analysis._named("e") == "e"


def test_a_character_without_any_font_is_named_by_its_code_point() -> None:
    assert (analysis._drawable("\U00012000") == "U+12000") == (analysis._font_with("\U00012000") is None)
    assert analysis._drawable("\u0301") == "◌\u0301"
    assert analysis._drawable(" ") == "space"
    assert analysis._drawable(OTHER) == "other"


def test_the_same_counts_give_the_same_bytes(tmp_path: Path, greek: TargetSet) -> None:
    for folder in ("a", "b"):
        analysis.save_figure(analysis.pearson(greek), tmp_path / folder, "pearson")
    for name in ("pearson.png", "pearson.svg"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_single_domain_and_a_tiny_alphabet_can_be_drawn(tmp_path: Path) -> None:
    one = TargetSet.from_texts({"x": ["ab"]})
    assert {path.stem for path in analysis.analyze(one, tmp_path, formats=["svg"])} == {"heatmap", "trends"}
    with pytest.raises(FadaError, match="expected png, svg or pdf"):
        analysis.analyze(one, tmp_path, formats=["gif"])
    one.save(tmp_path / "one.json")
    told = run_fada("analyze", tmp_path / "one.json", "--out", tmp_path / "drawn", "--format", "svg").stderr
    assert "one domain" in told


def test_the_colours_differ_also_without_red_or_green_vision() -> None:
    # Brightness alone tells the two directions apart from each other and from the background.
    luminance = [np.dot(to_rgb(c), [0.2126, 0.7152, 0.0722]) for c in (analysis.BLUE, analysis.ORANGE, "white")]
    blue_axis = [to_rgb(c)[2] for c in (analysis.BLUE, analysis.ORANGE)]
    assert abs(blue_axis[0] - blue_axis[1]) > 0.5
    assert max(luminance[:2]) < 0.5 < luminance[2]
