"""Figures of a target set: who uses which characters, how alike the domains are, and what drives a shift.

Every figure is drawn from counts alone, in colours that the colour-blind can tell apart, and every character with a
glyph: from whichever installed font has one, or by its code point.
"""

import math
import os
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, wraps
from importlib import resources
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np

from fada.common.files import replacing
from fada.common.probability import normal_quantile
from fada.common.tables import Cells
from fada.errors import FadaError, needing
from fada.targets.distribution import CharDistribution
from fada.targets.target_set import TargetSet
from fada.text.characters import OTHER, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")

FORMATS = ("png", "svg")
BLUE, ORANGE = "#0072B2", "#D55E00"
"""Okabe and Ito's colours, told apart with any colour vision."""
SHADES = "YlGnBu"
ABSENT = "#E4E4E4"

# Fonts whose glyphs are not what their code points say, or that draw a placeholder for every character.
_UNFIT_FONTS = ("Last Resort", "STIXNonUnicode", "STIXSize", "cm")


_MEDIEVAL = range(0xA720, 0xA800)
"""Latin Extended-D: the letters that Unicode has for medievalists."""


@dataclass(frozen=True)
class Shift:
    """How one character's frequency differs between two domains.

    `low` and `high` bound the `change`; `share` is the character's part of the whole shift (they sum to one).
    """

    symbol: str
    before: float
    after: float
    low: float
    high: float
    share: float

    @property
    def change(self) -> float:
        """Frequency after minus frequency before."""
        return self.after - self.before

    @property
    def certain(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


def shifts(before: CharDistribution, after: CharDistribution, level: float = 0.95) -> list[Shift]:
    r"""Which characters drive the shift from one distribution to another, the largest change first.

    The interval of each change is Newcombe's hybrid of two Wilson score intervals, which is honest for rare characters
    and for little text. It takes characters as drawn independently; those of a text are not, quite, and a line about
    one character is one of many: read it as a ranking with error bars, not as a hundred tests.

    The `share` of a character is :math:`|\Delta_c| / \sum_c |\Delta_c|`; half that sum is the total variation distance.
    """
    if before.symbols != after.symbols:
        raise FadaError("only distributions over one alphabet can be compared: take both from one target set.")
    change = after.frequencies - before.frequencies
    (low1, high1), (low2, high2) = _wilson(before, level), _wilson(after, level)
    low = change - np.hypot(after.frequencies - low2, high1 - before.frequencies)
    high = change + np.hypot(high2 - after.frequencies, before.frequencies - low1)
    whole = float(np.abs(change).sum())
    share = np.abs(change) / whole if whole else np.zeros_like(change)
    columns = zip(before.symbols, before.frequencies, after.frequencies, low, high, share, strict=True)
    found = [Shift(symbol, *map(float, numbers)) for symbol, *numbers in columns]
    return sorted(found, key=lambda shift: (-abs(shift.change), shift.symbol))


def shift_rows(targets: TargetSet, pair: tuple[str, str], level: float = 0.95) -> list[Cells]:
    """The shift between two domains as a table, the largest change first."""
    return [{**asdict(one), "change": one.change} for one in shifts(targets[pair[0]], targets[pair[1]], level)]


def shift_pair(targets: TargetSet, before: str | None = None, after: str | None = None) -> tuple[str, str] | None:
    """The domains to compare: those given, completed by whichever differs most, character by character.

    None if there is only one domain. The order is that of the set where neither is given.
    """
    names = targets.domains
    wanted = {name for name in (before, after) if name is not None}
    for name in wanted:
        targets[name]  # refuses an unknown one
    if before is not None and before == after:
        raise FadaError(f"a shift from {before!r} to itself: name two different domains.")
    if len(names) < 2:
        return None
    apart = targets.distances("aligned_w2")
    pairs = [(i, j) for i, j in combinations(range(len(names)), 2) if wanted <= {names[i], names[j]}]
    i, j = max(pairs, key=lambda pair: apart[pair])
    first, second = names[i], names[j]
    return (second, first) if before == second or after == first else (first, second)


def analyze(
    targets: TargetSet,
    out: str | os.PathLike[str],
    *,
    threshold: float = 0.01,
    pair: tuple[str, str] | None = None,
    top: int = 30,
    level: float = 0.95,
    fraction: float = 0.15,
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """Draw every figure of `targets` into the folder `out`; a single domain has no correlations and no shift.

    Args:
        threshold: characters below this frequency in every domain are left out of the heat map; 0 shows all.
        pair: the domains of the shift figure; the two that differ most if not given.
        top: characters in the shift figure.
        level: of the confidence intervals.
        fraction: of the characters that each point of the LOWESS curve looks at.
        formats: ``png``, ``svg``, ``pdf``.

    Returns:
        The files written.
    """
    figures: dict[str, Callable[[], Figure]] = {"heatmap": lambda: heatmap(targets, threshold)}
    figures["trends"] = lambda: trends(targets, fraction)
    if len(targets) > 1:
        before, after = pair or shift_pair(targets) or ("", "")
        figures["pearson"] = lambda: pearson(targets)
        figures["shift"] = lambda: shift(targets, before, after, top=top, level=level)
    return [path for name, draw in figures.items() for path in save_figure(draw(), out, name, formats)]


def save_figure(
    figure: "Figure", folder: str | os.PathLike[str], name: str, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Write a figure as ``folder/name.png`` and so on; the same counts give the same bytes."""
    plt = _pyplot()
    paths = []
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.set(w_pad=0.1, h_pad=0.08)  # type: ignore[call-arg]
    for ending in formats:
        if ending not in (*FORMATS, "pdf"):
            raise FadaError(f"figure format {ending!r}, expected png, svg or pdf.")
        path = Path(folder) / f"{name}.{ending}"
        # Glyphs as outlines: an SVG shows them also where the font is missing.
        with plt.rc_context({"svg.fonttype": "path", "svg.hashsalt": "fada"}), replacing(path) as temporary:
            dated = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
            figure.savefig(temporary, format=ending, dpi=150, metadata=dated[ending])
        paths.append(path)
    plt.close(figure)
    return paths


def _without_formulas(draw: Callable[P, "Figure"]) -> Callable[P, "Figure"]:
    """A dollar sign in a domain or an alphabet starts no formula."""

    @wraps(draw)
    def plainly(*args: P.args, **kwargs: P.kwargs) -> "Figure":
        with _pyplot().rc_context({"text.parse_math": False}):
            return draw(*args, **kwargs)

    return plainly


@_without_formulas
def heatmap(targets: TargetSet, threshold: float = 0.01, per_row: int = 40) -> "Figure":
    """Frequency of each character (columns, the most frequent first) in each domain (rows), in percent.

    Characters that reach `threshold` in no domain are left out, and the title says how many. A long alphabet goes on
    in further rows of `per_row` characters.
    """
    plt = _pyplot()
    order = _most_frequent_first(targets)
    names = [_drawable_name(name) for name in targets]
    frequencies = targets.frequencies
    shown = [i for i in order if frequencies[:, i].max() >= threshold]
    if not shown:
        highest = float(frequencies.max())
        raise FadaError(f"no character reaches the threshold {threshold:g}: the highest frequency is {highest:.3g}.")
    rows = -(-len(shown) // per_row)
    per_row = -(-len(shown) // rows)
    height = 0.3 * len(targets) + 0.55
    figure, axes = plt.subplots(
        rows, 1, figsize=(max(1.9 + 0.3 * per_row, 5.5), rows * height + 1.0), squeeze=False, layout="constrained"
    )
    scale = _frequency_scale(100 * frequencies[:, shown])
    for row, axis in enumerate(axes[:, 0]):
        columns = shown[row * per_row : (row + 1) * per_row]
        values = np.full((len(targets), per_row), np.nan)
        values[:, : len(columns)] = np.where(frequencies[:, columns] > 0, 100 * frequencies[:, columns], np.nan)
        image = axis.imshow(values, cmap=SHADES, norm=scale, aspect="auto", interpolation="nearest")
        axis.axvspan(-0.5, len(columns) - 0.5, color=ABSENT, zorder=-1)
        _label_characters(axis, [targets.symbols[i] for i in columns], size=11)
        axis.set_yticks(range(len(targets)), names, fontfamily=_fonts("".join(names)))
        _grid_between_cells(axis, len(columns), len(targets))
        if len(targets) * len(columns) <= 420 and rows == 1:
            _write_cells(axis, values[:, : len(columns)], "{:.1f}", scale, size=6)
    figure.colorbar(
        image, ax=axes[:, 0], label="percent (grey: never)", shrink=0.9, pad=0.01, aspect=15 * rows, format="%g"
    )
    hidden = len(order) - len(shown)
    note = f" ({hidden} below {100 * threshold:g} % everywhere left out)" if hidden else ""
    figure.suptitle(f"Character frequency by domain{note}", fontsize=11, x=0.01, ha="left")
    return figure


@_without_formulas
def pearson(targets: TargetSet) -> "Figure":
    """Pearson correlation of the character frequencies of every two domains; the darker, the more alike."""
    plt = _pyplot()
    correlation = targets.pearson()
    size = max(1.8 + 0.55 * len(targets), 3.4)
    figure, axis = plt.subplots(figsize=(size + 0.8, size), layout="constrained")
    lowest = math.floor(20 * float(correlation.min())) / 20
    scale = plt.Normalize(min(lowest, 0.9), 1)
    image = axis.imshow(correlation, cmap=SHADES, norm=scale, interpolation="nearest")
    names = [_drawable_name(name) for name in targets]
    fonts = _fonts("".join(names))
    axis.set_xticks(range(len(names)), names, rotation=90 if max(map(len, names)) > 5 else 0, fontfamily=fonts)
    axis.set_yticks(range(len(names)), names, fontfamily=fonts)
    _grid_between_cells(axis, len(targets), len(targets))
    _write_cells(axis, correlation, "{:.2f}", scale, size=8)
    figure.colorbar(image, ax=axis, shrink=0.85, label="Pearson's r")
    figure.suptitle("Correlation of character frequencies", fontsize=11)
    return figure


@_without_formulas
def trends(targets: TargetSet, fraction: float = 0.15, characters: int = 40) -> "Figure":
    """LOWESS curves of frequency over the alphabet, one panel per domain: black for it, grey for the others.

    Characters stand along the axis from the most to the least frequent of the whole text (the `characters` first), so
    that a domain's curve departs from the grey ones where its usage departs from theirs; its dots are the frequencies.
    """
    plt = _pyplot()
    order = _most_frequent_first(targets)[:characters]
    ranks = np.arange(len(order), dtype=np.float64)
    percent = 100 * targets.frequencies[:, order]
    curves = [_lowess(values, ranks, fraction) for values in percent]
    columns = 1 if len(targets) == 1 or len(order) > 30 else 2
    rows = -(-len(targets) // columns)
    width = max(1.2 + 0.2 * len(order), 4.5)
    figure, axes = plt.subplots(
        rows, columns, figsize=(columns * width, 1.35 * rows + 0.8), squeeze=False, sharey=True,
        layout="constrained",
    )  # fmt: skip
    for position, axis in enumerate(axes.flat):
        if position >= len(targets):
            axis.set_visible(False)
            continue
        for other, curve in enumerate(curves):
            if other != position:
                axis.plot(ranks, curve, color="#BFBFBF", linewidth=0.8, zorder=1)
        axis.plot(ranks, percent[position], ".", color=BLUE, markersize=4, zorder=2)
        axis.plot(ranks, curves[position], color="black", linewidth=1.8, zorder=3)
        name = _drawable_name(targets.domains[position])
        axis.text(0.99, 0.93, name, transform=axis.transAxes, ha="right", va="top", fontsize=11, fontweight="bold",
                  fontfamily=_fonts(name))  # fmt: skip
        axis.set_ylim(bottom=0)
        axis.margins(x=0.01)
        axis.grid(axis="y", color="#EEEEEE")
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(axis="x", length=0)
        if position + columns < len(targets):
            axis.set_xticks([])
        else:
            _label_characters(axis, [targets.symbols[i] for i in order], size=9)
    figure.supylabel("percent of characters", fontsize=9)
    figure.supxlabel("characters, the most frequent first", fontsize=9)
    figure.suptitle(
        "Character use by domain: LOWESS (black), frequencies (dots), the other domains (grey)",
        fontsize=11, x=0.01, ha="left",
    )  # fmt: skip
    return figure


@_without_formulas
def shift(targets: TargetSet, before: str, after: str, top: int = 30, level: float = 0.95) -> "Figure":
    """The characters that change most from one domain to another, with the confidence interval of each change.

    Bars to the right are used more in `after`; a pale one may be chance: its interval reaches zero.
    """
    plt = _pyplot()
    every = shifts(targets[before], targets[after], level)
    drawn = [one for one in every if one.change][:top]
    if not drawn:
        raise FadaError(f"domains {before!r} and {after!r} have the same frequencies: there is no shift to draw.")
    before, after = _drawable_name(before), _drawable_name(after)
    figure, axis = plt.subplots(figsize=(7.2, 1.5 + 0.235 * len(drawn)), layout="constrained")
    rows = np.arange(len(drawn))
    change = np.array([100 * one.change for one in drawn])
    reach = np.array([[one.change - one.low, one.high - one.change] for one in drawn]).T * 100
    colours = [ORANGE if one.change > 0 else BLUE for one in drawn]
    bars = axis.barh(rows, change, color=colours, height=0.72, zorder=2)
    for bar, one in zip(bars, drawn, strict=True):
        bar.set_alpha(1.0 if one.certain else 0.35)
    axis.errorbar(change, rows, xerr=reach, fmt="none", ecolor="black", elinewidth=0.9, capsize=2, zorder=3)
    axis.axvline(0, color="black", linewidth=0.8, zorder=4)
    labels = [_named(one.symbol) for one in drawn]
    axis.set_yticks(rows, labels, fontfamily=_fonts("".join(labels)), fontsize=11)
    axis.tick_params(axis="y", length=0)
    axis.set_ylim(len(drawn) - 0.4, -0.6)
    numbers = axis.secondary_yaxis("right")
    numbers.set_yticks(rows, [f"{100 * one.before:.2f} → {100 * one.after:.2f} %" for one in drawn], fontsize=8)
    numbers.tick_params(length=0, colors="#444444")
    numbers.spines["right"].set_visible(False)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.grid(axis="x", color="#E6E6E6", zorder=0)
    axis.set_axisbelow(True)
    fonts = _fonts(before + after)
    axis.set_xlabel(
        f"change in percentage points, {100 * level:g} % interval\n◀ more in {before}          more in {after} ▶",
        fontfamily=fonts,
    )
    total = sum(abs(one.change) for one in every) / 2
    covered = sum(one.share for one in drawn)
    figure.suptitle(
        f"What drives the shift from {before} to {after}\n"
        f"{100 * total:.1f} % of the characters would have to change; those shown make up {100 * covered:.0f} % of it",
        fontsize=11,
        fontfamily=fonts,
    )
    return figure


def _most_frequent_first(targets: TargetSet) -> list[int]:
    """Positions of the characters by their mean frequency over the domains, so that a long domain does not decide."""
    return np.argsort(-targets.frequencies.mean(axis=0), kind="stable").tolist()


def _wilson(p: CharDistribution, level: float) -> tuple[np.ndarray, np.ndarray]:
    if not 0 < level < 1:
        raise FadaError(f"confidence level {level}, expected a number between 0 and 1, such as 0.95.")
    z2 = normal_quantile((1 + level) / 2) ** 2
    n, f = p.total, p.frequencies
    centre = (f + z2 / (2 * n)) / (1 + z2 / n)
    reach = np.sqrt(z2 * (f * (1 - f) / n + z2 / (4 * n * n))) / (1 + z2 / n)
    return np.clip(centre - reach, 0, f), np.clip(centre + reach, f, 1)


def _lowess(values: np.ndarray, ranks: np.ndarray, fraction: float) -> np.ndarray:
    with needing("statsmodels", "analysis", "the LOWESS curves"):
        from statsmodels.nonparametric.smoothers_lowess import lowess
    if not 0 < fraction <= 1:
        raise FadaError(f"LOWESS fraction {fraction}, expected a number above 0 and at most 1, such as 0.15.")
    if len(values) < 4:
        return values
    # Four neighbours at least, or the local line has nothing to fit; without robust steps, which would take the few
    # most frequent characters, the subject of the figure, for outliers.
    smooth = lowess(values, ranks, frac=max(fraction, 4 / len(values)), it=0, return_sorted=False)
    return np.maximum(smooth, 0)


def _label_characters(axis: "Axes", symbols: Sequence[str], size: float) -> None:
    labels = [_drawable(symbol) for symbol in symbols]
    axis.set_xticks(range(len(labels)))
    ticks = axis.set_xticklabels(labels, fontsize=size, fontfamily=_fonts("".join(labels)))
    for tick, label in zip(ticks, labels, strict=True):
        if len(label) > 2:
            tick.set(rotation=90, fontsize=size * 0.65)


def _grid_between_cells(axis: "Axes", columns: int, rows: int) -> None:
    axis.set_xticks(np.arange(-0.5, columns), minor=True)
    axis.set_yticks(np.arange(-0.5, rows), minor=True)
    axis.grid(which="minor", color="white", linewidth=1)
    axis.tick_params(which="both", length=0)
    axis.spines[:].set_visible(False)


def _frequency_scale(percent: np.ndarray) -> Any:
    """Square roots where all characters are common; logarithms where rare ones would look like absent ones."""
    from matplotlib.colors import LogNorm, PowerNorm

    highest, lowest = float(percent.max()), float(percent[percent > 0].min())
    return PowerNorm(0.5, vmin=0, vmax=highest) if highest < 1500 * lowest else LogNorm(lowest, highest)


def _write_cells(axis: "Axes", values: np.ndarray, text: str, scale: Any, size: float) -> None:
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            colour = "white" if scale(value) > 0.55 else "black"
            axis.text(column, row, text.format(value), ha="center", va="center", color=colour, fontsize=size)


def _drawable(symbol: str) -> str:
    """The character as it can be drawn: its visible form if a font has the glyphs, otherwise its code point."""
    shown = visible(symbol)
    if symbol != OTHER and len(symbol) == 1 and any(_font_with(c) is None for c in shown):
        return f"U+{ord(symbol):04X}"
    return shown


def _drawable_name(name: str) -> str:
    return "".join(c if _font_with(c) else f"U+{ord(c):04X}" for c in name)


def _named(symbol: str) -> str:
    """Punctuation, signs, letters of medievalists and what no font can draw with their Unicode names.

    A comma looks like an apostrophe, and not everyone knows a rotunda.
    """
    shown = _drawable(symbol)
    if len(symbol) != 1:
        return shown
    if unicodedata.category(symbol)[0] not in "PS" and ord(symbol) not in _MEDIEVAL and shown == visible(symbol):
        return shown
    name = unicodedata.name(symbol, "").lower()
    name = name if len(name) <= 26 else name.removeprefix("latin small letter ")
    return f"{name if len(name) <= 26 else name[:25] + '…'}  {shown}".strip()


def _fonts(text: str) -> list[str]:
    """Font families that together hold a glyph for every character of `text`, the usual one first."""
    return list(dict.fromkeys(["DejaVu Sans", *filter(None, map(_font_with, text))]))


@lru_cache(maxsize=65536)
def _font_with(character: str) -> str | None:
    if unicodedata.category(character) == "Zs":
        return "DejaVu Sans"
    return next((family for family, file in _installed_fonts() if ord(character) in _glyphs(file)), None)


@lru_cache(maxsize=1)
def _installed_fonts() -> list[tuple[str, str]]:
    """Families that matplotlib knows in an upright, regular face, with its file; DejaVu Sans, its own, first.

    Last comes the one with the letters of medievalists that fada brings, for machines where no other has them.
    """
    from matplotlib.font_manager import fontManager

    own = str(resources.files("fada").joinpath("serve", "page", "fonts", "junicode-signs.otf"))
    fontManager.addfont(own)
    regular = {
        font.name: font.fname
        for font in fontManager.ttflist
        if (font.style, font.weight, font.stretch, font.variant) == ("normal", 400, "normal", "normal")
        and not font.name.startswith(_UNFIT_FONTS)
    }
    return sorted(
        regular.items(), key=lambda font: (font[1] == own, font[0] != "DejaVu Sans", "DejaVu" not in font[0], font[0])
    )


@lru_cache(maxsize=1024)
def _glyphs(file: str) -> frozenset[int]:
    from matplotlib.ft2font import FT2Font

    return frozenset(FT2Font(file).get_charmap())


def _pyplot() -> Any:
    with needing("matplotlib", "analysis", "drawing figures"):
        import matplotlib
    matplotlib.use("Agg", force=False)
    import matplotlib.pyplot as plt

    return plt
