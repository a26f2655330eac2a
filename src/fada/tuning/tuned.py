"""Tuned weights as a small file, with the evidence for them: what ``fada tune`` writes and ``--tuned`` reads.

.. code-block:: json

    {"version": 1, "kind": "ctc", "lam": 0.4, "scale": 100.0, "distance": "aligned_w2", "beam": 5, "lm": "none", ...}
"""

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from fada.common.files import write_text
from fada.common.settings import read_json, validated
from fada.decoding.search import Kind, decoder_settings
from fada.decoding.weights import Weights
from fada.errors import FadaError
from fada.targets.distribution import CharDistribution

if TYPE_CHECKING:
    from fada.decoding.ctc import CTCBeamDecoder
    from fada.decoding.lm import CharNgram

PathLike = str | os.PathLike[str]
Metric = Literal["cer", "wer", "ned"]
METRICS: tuple[Metric, ...] = ("cer", "wer", "ned")
ALPHA = 0.05


def describe(weights: Weights) -> str:
    """The weights that differ from plain beam search, in words: ``λ 0.4, scale 100, aligned_w2, prior weight 0.75``."""
    guidance = [f"λ {weights.lam:g}", f"scale {weights.scale:g}", weights.distance] if weights.guided else []
    language = [] if weights.lm == "none" else [f"{weights.lm} language model, weight {weights.lm_weight:g}"]
    rest = {"prior weight": weights.prior_weight, "length bonus": weights.length_bonus}
    parts = [*guidance, *language, *(f"{name} {value:g}" for name, value in rest.items() if value)]
    return ", ".join(parts) or "plain beam search"


class _Flat(BaseModel):
    """A record with weights, which its JSON form holds beside the other fields and not in one of their own."""

    model_config = ConfigDict(extra="forbid")

    weights: Weights = Weights()

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, values: Any) -> Any:
        if not isinstance(values, dict) or "weights" in values:
            return values
        own = {name: values[name] for name in Weights.model_fields if name in values}
        return {"weights": own, **{name: value for name, value in values.items() if name not in own}}


class Point(_Flat):
    """One setting that was tried: its error rate in the metric tuned by, the difference from plain, and all rates."""

    error: float = 0.0
    difference: float = 0.0
    se: float = 0.0
    """Standard error of the (paired) difference."""
    cer: float | None = None
    wer: float | None = None
    ned: float | None = None
    rescored: bool | None = None
    """True if it was not decoded: it chose from the hypotheses that decodings of other settings found."""

    @model_serializer(mode="wrap")
    def _flat(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Weights without effect are left out; λ always stands first."""
        guidance = {"scale": self.weights.scale, "distance": self.weights.distance} if self.weights.guided else {}
        rest = {name: value for name, value in handler(self).items() if name != "weights" and value is not None}
        return {"lam": self.weights.lam, **guidance, **self.weights.model_dump(exclude_defaults=True), **rest}


class Gain(BaseModel):
    """A paired difference of error rates in points, with its standard error, 95 % interval and p-value."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    difference: float
    se: float
    low: float | None
    high: float | None
    p: float

    @property
    def better(self) -> bool:
        """Fewer errors, beyond noise: the two-sided test rejects at 5 %."""
        return self.difference < 0 and self.p < ALPHA

    def __str__(self) -> str:
        interval = "" if self.low is None else f", 95 % interval {self.low:+.2f} to {self.high:+.2f}"
        return f"{self.difference:+.2f} points{interval}, p = {self.p:.2g}"


class Evidence(BaseModel):
    """Why these weights: cross-validated error rates against plain decoding, and every setting that was tried.

    All error rates are in percent. `held_out` is the error rate of the *procedure*: in every fold the best setting of
    the other folds is applied to the lines of this one. `gain` is that minus plain beam search; `guidance_gain` is the
    same against the best setting with λ = 1.
    """

    model_config = ConfigDict(extra="forbid")

    metric: Metric
    lines: int
    clusters: int
    folds: int
    plain: float
    chosen: float
    held_out: float
    gain: Gain
    guidance_gain: Gain
    best: Point
    """The setting with the lowest error rate, also when it is not recommended."""
    warning: str | None = None
    """Why the best setting is not the one recommended."""
    at_edge: list[str] = []
    """Weights that ended at the upper end of their grid: a wider grid might do better."""
    curve: list[Point] = []
    line_digests: list[str] = []
    """Digests of the lines tuned on, so that evaluation on the same lines can be noticed."""
    seconds: float = 0.0
    seed: int = 0
    fada_version: str = ""


class Tuned(_Flat):
    """Tuned weights with their evidence; see :meth:`load`.

    `kind` says what was searched: ``ctc`` beam search over emissions, ``nbest`` lists rescored (`beam` has no meaning
    there), or a model that writes token by token (``seq2seq``). For a language model, `lm_order` and `lm_share` (of the
    domain's own model; the rest is the model of all domains) say how to make it again from training text.
    """

    version: Literal[1] = 1
    kind: Kind = "ctc"
    lm_order: int = Field(default=6, ge=1)
    lm_share: float = Field(default=0.5, ge=0, le=1)
    evidence: Evidence | None = None

    @model_serializer(mode="wrap")
    def _flat(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values = handler(self)
        first = {name: values.pop(name) for name in ("version", "kind")}
        return {**first, **values.pop("weights"), **values}

    def save(self, path: PathLike) -> None:
        """Write the JSON file."""
        values = self.model_dump(mode="json")
        long: dict[str, str] = {}
        if values["evidence"]:  # one line per point instead of ten keeps the file small and readable
            points = [json.dumps(point, ensure_ascii=False) for point in values["evidence"]["curve"]]
            long = {"@curve": "[\n      " + ",\n      ".join(points) + "\n    ]"}
            long["@digests"] = json.dumps(values["evidence"]["line_digests"])
            values["evidence"] |= {"curve": "@curve", "line_digests": "@digests"}
        text = json.dumps(values, ensure_ascii=False, indent=2, allow_nan=False)
        for name, part in long.items():
            text = text.replace(json.dumps(name), part, 1)
        write_text(path, text + "\n")

    @classmethod
    def load(cls, path: PathLike) -> "Tuned":
        """Read a file that ``fada tune`` wrote, or one written by hand (every field but the weights is optional)."""
        try:
            values = read_json(path)
        except FileNotFoundError:
            raise FadaError(f"{path}: no such file. Make one with: fada tune") from None
        if isinstance(values, dict):
            validated(Weights, {name: values[name] for name in Weights.model_fields if name in values}, path)
            known = [*Weights.model_fields, *(name for name in cls.model_fields if name != "weights")]
            unknown = next((name for name in values if name not in known), None)
            if unknown is not None:
                raise FadaError(
                    f"{path}, {unknown}: Extra inputs are not permitted. Known settings: {', '.join(known)}."
                )
        return validated(cls, values, path)

    def decoder(
        self,
        symbols: Sequence[str],
        blank: int = 0,
        target: CharDistribution | None = None,
        prior: CharDistribution | None = None,
        lm: "CharNgram | None" = None,
        **options: Any,
    ) -> "CTCBeamDecoder":
        """A beam search with these weights; `target` and `lm` can also be given line by line to ``decode_batch``."""
        from fada.decoding.ctc import CTCBeamDecoder

        settings = decoder_settings(self.weights, prior)
        return CTCBeamDecoder(symbols, blank=blank, target=target, lm=lm, **settings, **options)

    def sentences(self) -> list[str]:
        """What was chosen, how sure the choice is, and what was not taken: the same that the file holds, whole."""
        found = self.evidence
        told = [f"Recommended: {describe(self.weights)}, beam {self.weights.beam}."]
        if found is None:
            return told
        name = found.metric.upper()
        told.append(
            f"Validation {name} {found.chosen:.2f} % against {found.plain:.2f} % with plain beam search; on held-out "
            f"folds {found.held_out:.2f} % ({found.gain}; {found.lines} lines, {found.clusters} independent)."
        )
        if rescored := sum(bool(point.rescored) for point in found.curve):
            told.append(
                f"{len(found.curve) - rescored} of {len(found.curve)} settings were decoded; the others chose from the "
                "hypotheses that these found (--exact decodes all)."
            )
        if found.warning:
            told.append(found.warning)
        if found.at_edge:
            told.append(f"At the end of the grid: {', '.join(found.at_edge)}; --trials searches beyond it.")
        return told
