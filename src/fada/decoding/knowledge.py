"""What is known of a domain before it is read: character frequencies, language models, what the recogniser saw."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fada.common.files import write_json, write_text
from fada.common.settings import read_json, validated
from fada.data.source import read_lines
from fada.decoding.weights import LanguageModel, Weights
from fada.errors import FadaError
from fada.targets.distribution import CharDistribution
from fada.targets.target_set import TargetSet

if TYPE_CHECKING:
    from fada.decoding.ctc import CTCBeamDecoder
    from fada.decoding.lm import CharNgram


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
    _decoders: dict[tuple[tuple[str, ...], int], "CTCBeamDecoder"] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

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
        settings = read_json(folder / "lm.json")
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

    def decoder(self, symbols: Sequence[str], blank: int) -> "CTCBeamDecoder":
        """A plain beam search over an alphabet, to derive others from.

        It lives as long as this object: what it prepares for the language models serves batch after batch.
        """
        from fada.decoding.ctc import CTCBeamDecoder

        alphabet = (tuple(symbols), blank)
        if alphabet not in self._decoders:
            self._decoders[alphabet] = CTCBeamDecoder(*alphabet)
        return self._decoders[alphabet]

    def __str__(self) -> str:
        parts = [] if self.targets is None else [f"targets of {len(self.targets)} domains"]
        if self.global_lm is not None:
            own = f", {len(self.domain_lms)} domains with their own" if self.domain_lms else ""
            parts.append(f"{self.lm_order}-gram language model{own}")
        return "; ".join(parts) or "none"

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


DECODER = "decoder"
"""Folder of the weights and what they need, inside a model folder."""


@dataclass(frozen=True)
class Decoder:
    """Weights with the targets and language models that they need, as stored in a model folder."""

    weights: Weights
    knowledge: Knowledge

    @classmethod
    def of_model(cls, folder: str | os.PathLike[str]) -> "Decoder | None":
        """The decoder stored with a model, if there is one."""
        path = Path(folder) / DECODER
        if not (path / "tuned.json").is_file():
            return None
        values = read_json(path / "tuned.json")
        chosen = {name: values[name] for name in Weights.model_fields if isinstance(values, dict) and name in values}
        return cls(validated(Weights, chosen, path / "tuned.json"), Knowledge.load(path))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write it into a model folder."""
        path = Path(folder) / DECODER
        self.knowledge.save(path)
        order = {"lm_order": self.knowledge.lm_order, "lm_share": self.knowledge.lm_share}
        write_json(path / "tuned.json", {"version": 1, "kind": "ctc", **self.weights.model_dump(), **order})

    def guided_to(self, targets: TargetSet, lam: float) -> "Decoder":
        """The same, and guided to targets.

        λ takes from the recogniser's log-probability what it gives to the distance: the other terms give as much, so
        that they count against the recogniser as they did.
        """
        shared = {name: lam * getattr(self.weights, name) for name in ("lm_weight", "prior_weight", "length_bonus")}
        return Decoder(self.weights.change(lam=lam, **shared), replace(self.knowledge, targets=targets))


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
    texts: dict[str, list[str]] = {}
    for source in lm_text:
        for line in read_lines(source, domain_column=domain_column).texts():
            if line.split in (None, split or "train"):
                texts.setdefault(line.domain or "", []).append(line.text or "")
    if not texts:
        raise FadaError(f"{', '.join(map(str, lm_text))}: no training text for the language model.")
    return Knowledge.from_texts(texts, target_set, order=order, share=share)
