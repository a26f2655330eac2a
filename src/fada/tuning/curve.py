"""The settings that a tuning tried: as rows of a table, and drawn over λ."""

from pathlib import Path

import numpy as np

from fada.common.files import replacing
from fada.common.tables import Cells
from fada.decoding.weights import NO_GUIDANCE, Weights
from fada.errors import FadaError, missing_extra
from fada.tuning.tuned import METRICS, PathLike, Point, Tuned

_SHOWN = 15


def tuning_rows(tuned: Tuned) -> list[Cells]:
    """The best of the settings tried, with plain beam search always among them."""
    if tuned.evidence is None:
        return []
    points = sorted(tuned.evidence.curve, key=lambda point: point.error)
    plain = tuned.evidence.curve[0]
    shown = points[:_SHOWN] if plain in points[:_SHOWN] else [*points[: _SHOWN - 1], plain]
    dumped = [point.model_dump() for point in shown]
    metric = tuned.evidence.metric
    last = {metric: "error", "change": "difference", "se": "se"}
    last |= {name: name for name in METRICS if name != metric and any(point.get(name) is not None for point in dumped)}
    last |= {"rescored": "rescored"} if any(point.get("rescored") for point in dumped) else {}
    settings = [name for name in Weights.model_fields if any(name in point for point in dumped)]
    return [
        {name: point.get(name) for name in settings} | {column: point.get(name) for column, name in last.items()}
        for point in dumped
    ]


def draw_curve(tuned: Tuned, path: PathLike) -> None:
    """Draw CER, WER and NED over λ, one line per distance and scale, to a PNG, SVG or PDF file."""
    evidence = tuned.evidence
    if evidence is None:
        raise FadaError("these weights carry no evidence, so there is no curve to draw.")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_extra("matplotlib", "analysis", "drawing the curve") from None
    curves: dict[tuple[str, float], list[Point]] = {}
    for point in evidence.curve:
        guided = point.weights
        if guided.guided and not (guided.prior_weight or guided.lm_weight or guided.length_bonus):
            curves.setdefault((guided.distance, guided.scale), []).append(point)
    plain = evidence.curve[0] if evidence.curve else Point(error=evidence.plain)
    others = [name for name in METRICS if name != evidence.metric and getattr(plain, name) is not None]
    figure = Figure(figsize=(8, 4.8 + 2.4 * len(others)), layout="constrained")
    ratios = [2, *(1 for _ in others)]
    panels = np.atleast_1d(figure.subplots(len(ratios), 1, sharex=True, height_ratios=ratios))
    for axes, metric in zip(panels, [evidence.metric, *others], strict=True):
        main = metric == evidence.metric

        def rate(point: Point, main: bool = main, metric: str = metric) -> float:
            return point.error if main else float(getattr(point, metric))

        baseline = rate(plain)
        for (distance, scale), points in sorted(curves.items()):
            points = sorted(points, key=lambda point: point.weights.lam)
            lam = np.array([point.weights.lam for point in points] + [NO_GUIDANCE])
            error = np.array([rate(point) for point in points] + [baseline])
            (drawn,) = axes.plot(lam, error, marker=".", label=f"{distance}, scale {scale:g}")
            decoded = [number for number, point in enumerate(points) if not point.rescored]
            axes.plot(lam[decoded], error[decoded], "o", fillstyle="none", color=drawn.get_color())
            if main:
                se = np.array([point.se for point in points] + [0.0])
                axes.fill_between(lam, error - se, error + se, alpha=0.15, color=drawn.get_color(), linewidth=0)
        axes.axhline(baseline, color="black", linestyle="--", linewidth=1, label="plain beam search (λ = 1)")
        if main and (tuned.weights.guided or not curves):
            at = [tuned.weights.lam], [evidence.chosen]
            axes.plot(*at, marker="*", markersize=14, color="black", linestyle="none", label="chosen")
        lowest = min([baseline, *(rate(point) for points in curves.values() for point in points)])
        room = max(baseline - lowest, 0.02 * baseline, 0.1)
        axes.set_ylim(lowest - 0.5 * room, baseline + 2 * room)
        axes.set_ylabel(f"validation {metric.upper()} (%)")
    panels[-1].set_xlabel("λ")
    panels[0].set_title(
        "bands: ±1 standard error of the difference from λ = 1; rings: decoded, other points: rescored; "
        "much worse settings are cut off",
        fontsize=9,
    )
    panels[0].legend(fontsize="small")
    suffix = Path(path).suffix.lstrip(".").lower() or "png"
    with replacing(path) as temporary:
        figure.savefig(temporary, format=suffix, dpi=150)
