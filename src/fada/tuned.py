"""Weights of the decoder's score as a small file: what tuning writes and ``--tuned`` reads.

.. code-block:: json

    {"version": 1, "kind": "ctc", "lam": 0.4, "scale": 100.0, "distance": "aligned_w2", "beam": 5, "lm": "none", ...}
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fada.errors import FadaError
from fada.files import write_json
from fada.targets import CharDistribution, TargetSet

if TYPE_CHECKING:
    from fada.decoding.ctc import CTCBeamDecoder, Hypothesis
    from fada.emissions import Emissions
    from fada.lm import CharNgram

LanguageModel = Literal["none", "global", "domain"]
NO_GUIDANCE = 1.0
"""λ = 1 is plain beam search."""


class Weights(BaseModel):
    """One setting of the decoder's score.

    λ · log P − (1 − λ) · scale · distance + lm_weight · log P_lm + prior_weight · Σ log(p_domain / p_train)
    + length_bonus · characters, searched with a beam of `beam`. The default is plain beam search.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    lam: float = Field(NO_GUIDANCE, ge=0, le=1)
    scale: float = Field(1.0, ge=0)
    distance: str = "sorted_w2"
    beam: int = Field(5, ge=1)
    prior_weight: float = 0.0
    lm: LanguageModel = "none"
    lm_weight: float = 0.0
    length_bonus: float = 0.0

    def change(self, **values: Any) -> "Weights":
        """The same with other values; what has no effect is set to its default, so that equal scores are equal."""
        merged = {**{name: getattr(self, name) for name in Weights.model_fields}, **values}
        if merged["lam"] == NO_GUIDANCE or merged["scale"] == 0:
            merged |= {"lam": NO_GUIDANCE, "scale": 1.0, "distance": "sorted_w2"}
        if merged["lm"] == "none" or merged["lm_weight"] == 0:
            merged |= {"lm": "none", "lm_weight": 0.0}
        return Weights(**merged)

    @property
    def guided(self) -> bool:
        """Whether the distance to the target has a say."""
        return self.lam < NO_GUIDANCE and self.scale > 0


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
    kind: Literal["ctc", "nbest"] = "ctc"
    lm_order: int = Field(6, ge=1)
    lm_share: float = Field(0.5, ge=0, le=1)
    evidence: Evidence | None = None

    @property
    def weights(self) -> Weights:
        """The weights alone."""
        return Weights(**{name: getattr(self, name) for name in Weights.model_fields})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON file."""
        order = ["version", "kind", *Weights.model_fields, "lm_order", "lm_share", "evidence"]
        values = self.model_dump(mode="json")
        write_json(path, {name: values[name] for name in order})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tuned":
        """Read a file that ``fada tune`` wrote, or one written by hand (every field but the weights is optional)."""
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise FadaError(f"{path}: no such file. Make one with: fada tune") from None
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise FadaError(f"{path}: not JSON ({error}).") from None
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the file"
            raise FadaError(f"{path}: {where}: {first['msg']}, found {first['input']!r:.80}.") from None

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


def make_decoder(
    weights: Weights,
    symbols: Sequence[str],
    blank: int,
    target: CharDistribution | None = None,
    prior: CharDistribution | None = None,
    lm: "CharNgram | None" = None,
    **options: Any,
) -> "CTCBeamDecoder":
    """A beam search with `weights`; what they need and is not given is named."""
    from fada.decoding.ctc import CTCBeamDecoder

    if weights.prior_weight and prior is None:
        raise FadaError("prior correction needs the training distribution: give prior, such as targets.overall.")
    return CTCBeamDecoder(
        symbols,
        blank=blank,
        beam_size=weights.beam,
        target=target,
        lam=weights.lam,
        distance=weights.distance,
        scale=weights.scale,
        lm=lm,
        lm_weight=weights.lm_weight,
        prior=prior if weights.prior_weight else None,
        prior_weight=weights.prior_weight,
        length_bonus=weights.length_bonus,
        **options,
    )


@dataclass(frozen=True)
class Knowledge:
    """What decoding may draw on besides the emissions: targets, the training distribution, language models.

    `global_lm` is trained on all domains; `domain_lms` hold for each domain its own model mixed with the global one.
    """

    targets: TargetSet | None = None
    prior: CharDistribution | None = None
    global_lm: "CharNgram | None" = None
    domain_lms: Mapping[str, "CharNgram"] = field(default_factory=dict)

    @classmethod
    def from_texts(
        cls,
        texts: Mapping[str, Sequence[str]],
        targets: TargetSet | None = None,
        *,
        order: int = 6,
        share: float = 0.5,
        smoothing: str = "witten-bell",
    ) -> "Knowledge":
        """Train everything on the training text of each domain; targets too, if they are not given."""
        from fada.lm import CharNgram

        targets = targets or TargetSet.from_texts(texts)
        everything = CharNgram.train([text for lines in texts.values() for text in lines], order, smoothing)
        domain_lms = {
            domain: CharNgram.train(lines, order, smoothing).interpolate(everything, 1 - share)
            for domain, lines in texts.items()
            if lines
        }
        return cls(targets, targets.overall, everything, domain_lms)

    def target_of(self, domain: str | None) -> CharDistribution | None:
        """The target of a domain; lines of an unknown domain are guided to the overall distribution."""
        if self.targets is None:
            return None
        return self.targets[domain] if domain in self.targets else self.targets.overall

    def lm_of(self, kind: LanguageModel, domain: str | None) -> "CharNgram | None":
        """The language model for a line."""
        if kind == "none":
            return None
        model = self.domain_lms.get(domain or "", self.global_lm) if kind == "domain" else self.global_lm
        if model is None:
            raise FadaError(
                f"the weights ask for a {kind} language model, and there is none: give the training text (--lm-text)."
            )
        return model

    def check(self, weights: Weights) -> None:
        """Refuse weights that ask for what is not there."""
        if (weights.guided or weights.prior_weight) and self.targets is None:
            raise FadaError("guidance and prior correction need a target file: give one with --targets.")
        if weights.lm != "none":
            self.lm_of(weights.lm, None)


def decode_emissions(
    emissions: "Emissions", weights: Weights, knowledge: Knowledge, threads: int | None = None
) -> "list[Hypothesis]":
    """The best hypothesis of every line, each line with the target and language model of its domain."""
    knowledge.check(weights)
    domains: Iterable[str | None] = emissions.domains or [None] * len(emissions.ids)
    known = list(domains)
    needs_target = weights.guided or bool(weights.prior_weight)
    targets = [knowledge.target_of(domain) for domain in known] if needs_target else None
    lms = [knowledge.lm_of(weights.lm, domain) for domain in known] if weights.lm != "none" else None
    decoder = make_decoder(
        weights,
        emissions.symbols,
        emissions.blank,
        targets[0] if targets else None,
        knowledge.prior,
        lms[0] if lms else None,
        threads=threads,
    )
    found = decoder.decode_batch(emissions.log_probs, targets=targets, lms=lms)
    return [hypotheses[0] for hypotheses in found]
