"""The report's charts as inline SVG: every colour is a CSS class, so one drawing serves light, dark and paper."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from fada.text.characters import sign, unicode_name

WIDTH = 440
"""View-box width of a chart: about the width of a phone, so that text stays legible when the drawing is scaled."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 10, 40


@dataclass(frozen=True)
class Curve:
    """One line of a :func:`line_chart`: points with an optional band (low, high) and a CSS class for its colour."""

    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    style: str
    band: Sequence[tuple[float, float]] | None = None
    dots: bool = True

    @property
    def points(self) -> list[tuple[float, float]]:
        """The finite points."""
        return [(x, y) for x, y in zip(self.xs, self.ys, strict=True) if math.isfinite(x) and math.isfinite(y)]


def drawn(symbol: str, element: str = "span") -> str:
    """A character as a sign; one of the private use area, as manuscripts have, in the font that the report brings."""
    if len(symbol) == 1 and "\ue000" <= symbol <= "\uf8ff":
        return Markup('<{0} class="private">{1}</{0}>').format(element, symbol)
    return sign(symbol)


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers (1, 2 or 5 times a power of ten) inside [low, high]."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * magnitude for factor in (1, 2, 5, 10) if factor * magnitude >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def interval_bar(value: float, interval: tuple[float, float] | None, limit: float, style: str) -> Markup:
    """A bar for a table cell, with a whisker for its interval: percentages of `limit`, so it fits any cell."""

    def percent(x: float) -> str:
        return f"{100 * min(max(x / limit if limit > 0 else 0.0, 0.0), 1.0):.2f}%"

    whisker = Markup()
    if interval:
        whisker = Markup('<line class="whisker" x1="{}" x2="{}" y1="5" y2="5"/>').format(*map(percent, interval))
    return Markup(
        '<svg class="bar" height="10" aria-hidden="true"><rect class="{}" width="{}" height="10" rx="2"/>{}</svg>'
    ).format(style, percent(value), whisker)


def line_chart(
    curves: Sequence[Curve],
    title: str,
    x_label: str,
    y_label: str,
    *,
    marks: Sequence[tuple[float, str]] = (),
    log_y: bool = False,
) -> Markup:
    """Curves over a common x axis. `marks` are labelled vertical lines; non-finite points are left out."""
    points = [point for curve in curves for point in curve.points]
    if not points:
        return Markup()
    height = 250
    bands = [edge for curve in curves for pair in curve.band or () for edge in pair if math.isfinite(edge)]
    log_y = log_y and min(y for _, y in points) > 0

    def scaled(y: float) -> float:
        return math.log10(max(y, 1e-12)) if log_y else y

    x_low, x_high = _padded([x for x, _ in points] + [x for x, _ in marks], 0.02)
    y_low, y_high = _padded([scaled(y) for y in [y for _, y in points] + bands], 0.06)
    if marks:  # room for their labels above the curves
        y_high += 0.1 * (y_high - y_low)
    plot_width, plot_height = WIDTH - _LEFT - _RIGHT, height - _TOP - _BOTTOM

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            round(_LEFT + (x - x_low) / (x_high - x_low) * plot_width, 1),
            round(_TOP + (y_high - scaled(y)) / (y_high - y_low) * plot_height, 1),
        )

    parts = [Markup('<g class="axis">')]
    y_ticks = _log_ticks(y_low, y_high) if log_y else nice_ticks(y_low, y_high)
    digits = _digits(y_ticks)
    for tick in y_ticks:
        _, y = at(x_low, tick)
        label = f"{tick:g}" if log_y else f"{tick:.{digits}f}"
        parts.append(Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(_LEFT, WIDTH - _RIGHT, y, y))
        parts.append(Markup('<text x="{}" y="{}" text-anchor="end" dy="4">{}</text>').format(_LEFT - 6, y, label))
    for tick in nice_ticks(x_low, x_high, 6):
        x, _ = at(tick, points[0][1])
        text = Markup('<text x="{}" y="{}" text-anchor="middle">{:g}</text>')
        parts.append(text.format(x, height - _BOTTOM + 16, tick))
    parts.append(
        Markup('<text class="label" x="{}" y="{}" text-anchor="middle">{}</text>').format(
            _LEFT + plot_width / 2, height - 6, x_label
        )
    )
    turned = Markup('<text class="label" transform="translate(12 {}) rotate(-90)" text-anchor="middle">{}</text></g>')
    parts.append(turned.format(_TOP + plot_height / 2, y_label))
    for x, label in marks:
        at_x, _ = at(x, points[0][1])
        anchor, shift = ("end", -5) if at_x > _LEFT + plot_width * 0.7 else ("start", 5)
        parts.append(
            Markup(
                '<line class="mark" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>'
                '<text class="mark-label" x="{3}" y="{4}" text-anchor="{5}">{6}</text>'
            ).format(at_x, _TOP, _TOP + plot_height, at_x + shift, _TOP + 10, anchor, label)
        )
    for curve in curves:
        parts.append(_curve(curve, at))
    return figure(parts, title, height)


def _curve(curve: Curve, at: Callable[[float, float], tuple[float, float]]) -> Markup:
    parts = []
    if curve.band:
        low = [at(x, pair[0]) for x, pair in zip(curve.xs, curve.band, strict=True)]
        high = [at(x, pair[1]) for x, pair in zip(curve.xs, curve.band, strict=True)]
        parts.append(Markup('<polygon class="band {}" points="{}"/>').format(curve.style, _points(low + high[::-1])))
    line = _points([at(x, y) for x, y in curve.points])
    parts.append(Markup('<polyline class="curve {}" points="{}"/>').format(curve.style, line))
    if curve.dots or len(curve.points) == 1:
        for x, y in curve.points:
            dot = Markup('<circle class="dot {}" cx="{}" cy="{}" r="3"><title>{}: {:g}, {:.4g}</title></circle>')
            parts.append(dot.format(curve.style, *at(x, y), curve.label, x, y))
    return Markup().join(parts)


def frequency_chart(
    symbols: Sequence[str],
    target: Sequence[float],
    before: Sequence[float],
    after: Sequence[float],
    title: str,
    labels: tuple[str, str, str],
) -> Markup:
    """Target frequencies as bars; below each, how far two systems are from it: an open and a filled dot.

    Args:
        symbols: characters on the x axis, in the order of drawing.
        target, before, after: frequencies of those characters, in percent.
        labels: what the three are called in the tooltips.
    """
    left, right = 40, 6
    upper = _Panel(8, 62, (0.0, max([*target, 1e-9])))
    gaps = [value - expected for values in (before, after) for value, expected in zip(values, target, strict=True)]
    reach = max(map(abs, gaps), default=0.0) * 1.1 or 1.0
    lower = _Panel(92, 172, (-reach, reach))
    height = 178
    step = (WIDTH - left - right) / max(len(symbols), 1)
    shift = min(step * 0.2, 4)
    parts = [Markup('<g class="axis">')]
    for panel, ticks in ((upper, nice_ticks(0, upper.limits[1], 3)), (lower, nice_ticks(-reach, reach, 4))):
        plus = "+" if panel is lower else ""
        for tick in ticks:
            text = f"{tick:{plus if tick else ''}.{_digits(ticks)}f}".replace("-", "−")
            parts.append(
                Markup(
                    '<line class="{}" x1="{}" x2="{}" y1="{}" y2="{}"/>'
                    '<text x="{}" y="{}" dy="4" text-anchor="end">{}</text>'
                ).format(
                    "zero" if panel is lower and tick == 0 else "grid",
                    left,
                    WIDTH - right,
                    panel.y(tick),
                    panel.y(tick),
                    left - 5,
                    panel.y(tick),
                    text,
                )
            )
    parts.append(Markup("</g>"))
    for i, symbol in enumerate(symbols):
        x = left + (i + 0.5) * step
        top = upper.y(target[i])
        first, second = lower.y(before[i] - target[i]), lower.y(after[i] - target[i])
        parts.append(
            Markup(
                "<g><title>{} {}\n{}: {:.2f} %\n{}: {:.2f} %\n{}: {:.2f} %</title>"
                '<rect class="target" x="{}" y="{}" width="{}" height="{}"/>'
                '<text class="symbol" x="{}" y="80" text-anchor="middle">{}</text>'
                '<line class="step" x1="{}" y1="{}" x2="{}" y2="{}"/>'
                '<circle class="open s0" cx="{}" cy="{}" r="3"/><circle class="dot s1" cx="{}" cy="{}" r="3.4"/></g>'
            ).format(
                *(sign(symbol), unicode_name(symbol).lower()),
                *(labels[0], target[i], labels[1], before[i], labels[2], after[i]),
                *(round(x - step * 0.4, 1), top, round(step * 0.8, 1), round(upper.y(0) - top, 1)),
                *(round(x, 1), drawn(symbol, "tspan")),
                *(round(x - shift, 1), first, round(x + shift, 1), second),
                *(round(x - shift, 1), first, round(x + shift, 1), second),
            )
        )
    return figure(parts, title, height)


@dataclass(frozen=True)
class _Panel:
    """A stretch of a drawing from `top` to `bottom` (pixels) with a linear scale (`limits`)."""

    top: float
    bottom: float
    limits: tuple[float, float]

    def y(self, value: float) -> float:
        low, high = self.limits
        return round(self.bottom - (value - low) / (high - low) * (self.bottom - self.top), 1)


def figure(parts: Sequence[Markup], title: str, height: int) -> Markup:
    """The `<svg>` element around the parts of a drawing, with its name for screen readers."""
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, height, title, Markup().join(parts)
    )


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)


def _padded(values: Sequence[float], share: float) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = (high - low) * share or abs(low) * 0.1 or 1.0
    return low - margin, high + margin


def _digits(ticks: Sequence[float]) -> int:
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    return max(0, -math.floor(math.log10(step) + 1e-9))


def _log_ticks(low: float, high: float) -> list[float]:
    for factors in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        powers = range(math.floor(low), math.ceil(high) + 1)
        ticks = [factor * 10.0**power for power in powers for factor in factors]
        shown = [tick for tick in ticks if low <= math.log10(tick) <= high]
        if len(shown) >= 4:
            break
    return shown
