"""Tuned weights as a small file, with the evidence for them: what ``fada tune`` writes and ``--tuned`` reads.

.. code-block:: json

    {"version": 1, "kind": "ctc", "lam": 0.4, "scale": 100.0, "distance": "aligned_w2", "beam": 5, "lm": "none", ...}
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from fada.common.files import write_text
from fada.common.settings import validated
from fada.decoding.search import Kind, make_decoder
from fada.decoding.weights import Weights
from fada.errors import FadaError
from fada.targets.distribution import CharDistribution

if TYPE_CHECKING:
    from fada.decoding.ctc import CTCBeamDecoder
    from fada.decoding.lm import CharNgram


class Evidence(BaseModel):
    """Why these weights: cross-validated error rates against plain decoding, and every setting that was tried.

    All error rates are in percent. `held_out` is the error rate of the *procedure*: in every fold the best setting of
    the other folds is applied to the lines of this one. `gain` is that minus plain beam search, paired, with its
    standard error, 95 % interval and p-value; `guidance_gain` is the same against the best setting with λ = 1.
    """

    model_config = ConfigDict(extra="forbid")

    metric: str
    lines: int
    clusters: int
    folds: int
    plain: float
    chosen: float
    held_out: float
    gain: dict[str, float | None]
    guidance_gain: dict[str, float | None]
    best: dict[str, Any]
    """The setting with the lowest error rate, also when it is not recommended."""
    warning: str | None = None
    at_edge: list[str] = []
    """Weights that ended at the upper end of their grid: a wider grid might do better."""
    curve: list[dict[str, Any]] = []
    """One point per setting: its weights, `error`, and `difference` from plain with `se`."""
    line_digests: list[str] = []
    """Digests of the lines tuned on, so that evaluation on the same lines can be noticed."""
    seconds: float = 0.0
    seed: int = 0
    fada_version: str = ""


class Tuned(Weights):
    """Tuned weights with their evidence; see :meth:`load`.

    `kind` says what was searched: ``ctc`` beam search over emissions, or ``nbest`` lists rescored (`beam` has no
    meaning there). For a language model, `lm_order` and `lm_share` (of the domain's own model; the rest is the model of
    all domains) say how to make it again from training text.
    """

    version: Literal[1] = 1
    kind: Kind = "ctc"
    lm_order: int = Field(default=6, ge=1)
    lm_share: float = Field(default=0.5, ge=0, le=1)
    evidence: Evidence | None = None

    @property
    def weights(self) -> Weights:
        """The weights alone."""
        return Weights(**{name: getattr(self, name) for name in Weights.model_fields})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON file."""
        order = ["version", "kind", *Weights.model_fields, "lm_order", "lm_share", "evidence"]
        values = self.model_dump(mode="json")
        values = {name: values[name] for name in order}
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
    def load(cls, path: str | os.PathLike[str]) -> "Tuned":
        """Read a file that ``fada tune`` wrote, or one written by hand (every field but the weights is optional)."""
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise FadaError(f"{path}: no such file. Make one with: fada tune") from None
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise FadaError(f"{path}: not JSON ({error}).") from None
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
        return make_decoder(self.weights, symbols, blank, target, prior, lm, **options)
