"""Weights of the decoder's score as a small file: what tuning writes and ``--tuned`` reads.

.. code-block:: json

    {"version": 1, "kind": "ctc", "lam": 0.4, "scale": 100.0, "distance": "aligned_w2", "beam": 5, "lm": "none", ...}
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from fada.common.files import write_text
from fada.common.settings import validated
from fada.errors import FadaError
from fada.targets.distribution import CharDistribution, TargetSet

if TYPE_CHECKING:
    from fada.decoding.ctc import CTCBeamDecoder, Hypothesis
    from fada.decoding.emissions import Emissions
    from fada.decoding.lm import CharNgram

LanguageModel = Literal["none", "global", "domain"]
NO_GUIDANCE = 1.0
"""λ = 1 is plain beam search."""


class Weights(BaseModel):
    """One setting of the decoder's score.

    λ · log P − (1 − λ) · scale · distance + lm_weight · log P_lm + prior_weight · Σ log(p_domain / p_train)
    + length_bonus · characters, searched with a beam of `beam`. The default is plain beam search.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    lam: float = Field(default=NO_GUIDANCE, ge=0, le=1)
    scale: float = Field(default=1.0, ge=0)
    distance: str = "sorted_w2"
    beam: int = Field(default=5, ge=1)
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
    kind: Literal["ctc", "nbest"] = "ctc"
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
    lm_order: int = 6
    lm_share: float = 0.5

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
        from fada.decoding.lm import CharNgram

        targets = targets if targets is not None else TargetSet.from_texts(texts)
        everything = CharNgram.train([text for lines in texts.values() for text in lines], order, smoothing)
        domain_lms = {
            domain: CharNgram.train(lines, order, smoothing).interpolate(everything, 1 - share)
            for domain, lines in texts.items()
            if lines
        }
        return cls(targets, targets.overall, everything, domain_lms, order, share)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write targets and language models (made by :meth:`from_texts`) as files of a folder."""
        from fada.decoding.lm import CharNgram

        folder = Path(folder)
        if self.targets is not None:
            self.targets.save(folder / "targets.json")
        if self.global_lm is None:
            return
        self.global_lm.save(folder / "lm.npz")
        own = {domain: CharNgram(model.components[:1]) for domain, model in self.domain_lms.items()}
        for number, model in enumerate(own.values()):
            model.save(folder / f"lm-{number}.npz")
        settings = {"order": self.lm_order, "share": self.lm_share, "domains": list(own)}
        write_text(folder / "lm.json", json.dumps(settings, ensure_ascii=False, indent=2) + "\n")

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Knowledge":
        """Read what :meth:`save` wrote; what is not there is left out."""
        from fada.decoding.lm import CharNgram

        folder = Path(folder)
        targets = TargetSet.load(folder / "targets.json") if (folder / "targets.json").is_file() else None
        prior = None if targets is None else targets.overall
        if not (folder / "lm.json").is_file():
            return cls(targets, prior)
        settings = json.loads((folder / "lm.json").read_text(encoding="utf-8"))
        everything = CharNgram.load(folder / "lm.npz")
        domain_lms = {
            str(domain): CharNgram.load(folder / f"lm-{number}.npz").interpolate(everything, 1 - settings["share"])
            for number, domain in enumerate(settings["domains"])
        }
        return cls(targets, prior, everything, domain_lms, settings["order"], settings["share"])

    def target_of(self, domain: str | None) -> CharDistribution | None:
        """The target of a domain; lines of an unknown domain are guided to the overall distribution."""
        if self.targets is None:
            return None
        return self.targets.get(domain or "", self.targets.overall)

    def unknown_domains(self, domains: Iterable[str | None]) -> list[str]:
        """The domains without a target of their own, for a note to the user."""
        known = set(self.targets or ())
        return sorted({str(domain) for domain in domains if domain not in known}) if self.targets is not None else []

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

    def fingerprint(self) -> str:
        """Changes when anything in here changes."""
        digest = hashlib.sha256()
        for name, distribution in [*(self.targets or {}).items(), *([("", self.prior)] if self.prior else [])]:
            digest.update(json.dumps([name, distribution.symbols, distribution.normalizer.to_dict()]).encode())
            digest.update(distribution.counts.tobytes())
        models = [*([("", self.global_lm)] if self.global_lm else []), *sorted(self.domain_lms.items())]
        for name, model in models:
            digest.update(json.dumps([name, model.weights]).encode())
            for component in model.components:
                digest.update(component.log_prob.tobytes())
        return digest.hexdigest()[:16]

    def check(self, weights: Weights) -> None:
        """Refuse weights that ask for what is not there."""
        if (weights.guided or weights.prior_weight) and self.targets is None:
            raise FadaError("guidance and prior correction need a target file: give one with --targets.")
        if weights.lm != "none":
            self.lm_of(weights.lm, None)


@lru_cache(maxsize=4)
def _plain_decoder(symbols: tuple[str, ...], blank: int, threads: int | None) -> "CTCBeamDecoder":
    """One decoder to derive others from: what it prepares for language models serves batch after batch."""
    return make_decoder(Weights(), symbols, blank, threads=threads)


class BeamSearch:
    """Decodes stored emissions under any weights, each line with the target and language model of its domain.

    What the decoder prepares for symbols, targets and language models is kept from one setting to the next.
    """

    kind: Literal["ctc"] = "ctc"

    def __init__(self, emissions: "Emissions", knowledge: Knowledge, threads: int | None = None) -> None:
        self.emissions = emissions
        self.knowledge = knowledge
        self.ids = list(emissions.ids)
        self.references = emissions.references
        self.domains: list[str | None] = [*(emissions.domains or [])] or [None] * len(self.ids)
        self._targets = {domain: knowledge.target_of(domain) for domain in set(self.domains)}
        self._decoder = _plain_decoder(tuple(emissions.symbols), emissions.blank, threads)

    def hypotheses(self, weights: Weights) -> "list[Hypothesis]":
        """The best hypothesis of every line."""
        self.knowledge.check(weights)
        needs_target = weights.guided or bool(weights.prior_weight)
        decoder = self._decoder.replace(
            beam_size=weights.beam,
            lam=weights.lam,
            distance=weights.distance,
            scale=weights.scale,
            lm_weight=weights.lm_weight,
            prior=self.knowledge.prior if weights.prior_weight else None,
            prior_weight=weights.prior_weight,
            length_bonus=weights.length_bonus,
        )
        found = decoder.decode_batch(
            self.emissions.log_probs,
            targets=[self._targets[domain] for domain in self.domains] if needs_target else None,
            lms=[self.knowledge.lm_of(weights.lm, d) for d in self.domains] if weights.lm != "none" else None,
        )
        return [nbest[0] for nbest in found]

    def choose(self, weights: Weights) -> list[str]:
        """The best text of every line."""
        return [hypothesis.text for hypothesis in self.hypotheses(weights)]

    def recognized(self) -> Iterator[bytes]:
        """The emissions, for fingerprints."""
        for log_probs in self.emissions.log_probs:
            yield np.ascontiguousarray(log_probs, np.float32).tobytes()

    def greedy(self) -> list[str]:
        """Best path decoding of every line."""
        return [self._decoder.greedy(log_probs).text for log_probs in self.emissions.log_probs]


def decode_emissions(
    emissions: "Emissions", weights: Weights, knowledge: Knowledge, threads: int | None = None
) -> "list[Hypothesis]":
    """The best hypothesis of every line, each line with the target and language model of its domain."""
    return BeamSearch(emissions, knowledge, threads).hypotheses(weights)


def load_knowledge(
    targets: str | os.PathLike[str] | None = None,
    lm_text: Sequence[str | os.PathLike[str]] = (),
    *,
    order: int = 6,
    share: float = 0.5,
    split: str | None = None,
    domain_column: str | None = None,
) -> Knowledge:
    """Targets from a target file, language models from training lines (any source that ``read_lines`` reads).

    Args:
        lm_text: sources of training text. If a source has splits, its ``train`` split is read, unless `split` says
            otherwise: validation and test lines must not enter a language model.
    """
    target_set = None if targets is None else TargetSet.load(targets)
    if not lm_text:
        return Knowledge(target_set, None if target_set is None else target_set.overall, lm_order=order, lm_share=share)
    from fada.data.line import read_lines

    texts: dict[str, list[str]] = {}
    for source in lm_text:
        for line in read_lines(source, domain_column=domain_column).texts():
            if line.split in (None, split or "train"):
                texts.setdefault(line.domain or "", []).append(line.text or "")
    if not texts:
        raise FadaError(f"{', '.join(map(str, lm_text))}: no training text for the language model.")
    return Knowledge.from_texts(texts, target_set, order=order, share=share)
