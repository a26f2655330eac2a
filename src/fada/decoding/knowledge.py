"""What is known of a domain before it is read: character frequencies, language models, what the recogniser saw.

* ``Knowledge.from_texts(lines, name="la")`` or, by domain, ``Knowledge.from_texts({"13": lines13, "14": lines14})``;
* :func:`read_knowledge` of a ``.fada`` file or of the name of a built-in one (:func:`built_in_knowledge`), and
  :func:`write_knowledge`;
* :func:`load_knowledge` of whatever a command was given: texts, a target file, a ``.fada`` file;
* :func:`knowledge_of_model`: the candidates that a model folder brings, in its folder ``knowledge``;
* :meth:`Knowledge.with_prior`, :meth:`Knowledge.mixture`; :class:`Decoder`: weights and knowledge, stored with a model.

How much it should count tells :func:`fada.decoding.defaults.weights_for`; which of several fits a document,
:func:`fada.decoding.evidence.infer`.
"""

import hashlib
import io
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from fada.common.archive import read_members, write_members
from fada.common.files import write_json, write_text
from fada.common.kinds import refuse_kind
from fada.common.settings import read_json, validated
from fada.data.read import Texts
from fada.data.source import source_of
from fada.decoding.weights import LanguageModel, Weights
from fada.errors import FadaError
from fada.targets import file as target_file
from fada.targets.distribution import CharDistribution
from fada.targets.target_set import TargetSet
from fada.text.alphabet import Alphabet

if TYPE_CHECKING:
    from fada.decoding.ctc import CTCBeamDecoder
    from fada.decoding.lm import CharNgram

SUFFIX = ".fada"
FOLDER = "knowledge"
"""Folder of ``.fada`` files inside a model folder: the domains that the model may find by itself."""
TRAINING, TRAINING_PAIRS = "training.json", "training.npz"
"""In that folder: of the text that the model was trained on, the character counts (a target file) and a language model
of pairs of characters."""
OVER = 0.4
"""How much of what a recogniser has learnt of pairs of characters is divided out of a language model."""

_PRETRAINED = Path(__file__).parent.parent / "pretrained"
_CENTURY = 0.3
"""Share of a century's own language model beside that of all centuries of the language: 0.5 to 3 % fewer bits for a
character of other manuscripts of the century than the language's alone."""
_MOST_BYTES = {"knowledge.json": 2**20, "targets.json": 2**24, "lm": 2**28}


class _Stored(BaseModel):
    """``lm.json`` beside the language models of a model folder."""

    order: int
    share: float = Field(ge=0, le=1)
    domains: list[str]


class About(BaseModel):
    """What a body of knowledge is: ``knowledge.json`` of a ``.fada`` file.

    Attributes:
        name: of the domain.
        language: code of its language (la, fr); None if not known.
        century: number of its century; None if it is of several, or not known.
        characters: of the text it was made from.
        bits: per character, of text of the same kind that it was not made from; None if not known.
        sources: the texts, or the manuscripts they are from.
        credits: whom to name.
        licence: of the texts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    name: str = ""
    language: str | None = None
    century: int | None = None
    characters: int = Field(default=0, ge=0)
    bits: float | None = Field(default=None, ge=0)
    sources: tuple[str, ...] = ()
    credits: tuple[str, ...] = ()
    licence: str | None = None


@dataclass(frozen=True)
class Knowledge:
    """What decoding may draw on besides the emissions: targets, the training distribution, language models.

    `global_lm` is trained on all domains; `domain_lms` hold for each domain its own model mixed with the global one.
    `prior` and `assumed` tell what the recogniser was trained on: its characters, and which of them follow which.
    """

    targets: TargetSet | None = None
    prior: CharDistribution | None = None
    global_lm: "CharNgram | None" = None
    domain_lms: Mapping[str, "CharNgram"] = field(default_factory=dict)
    lm_order: int = 6
    lm_share: float = 0.5
    about: About = field(default_factory=About)
    assumed: "CharNgram | None" = None
    _decoders: dict[Alphabet, "CTCBeamDecoder"] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """To be sent elsewhere: without what decoders prepared here."""
        return {**self.__dict__, "_decoders": {}}

    @classmethod
    def from_texts(
        cls,
        texts: Mapping[str, Sequence[str]] | Iterable[str],
        targets: TargetSet | None = None,
        *,
        name: str = "",
        order: int = 6,
        share: float = 0.5,
        smoothing: str | None = None,
    ) -> "Knowledge":
        """Train everything on the text of each domain, or of one; targets too, if they are not given.

        Args:
            texts: lines by domain; or the lines of one domain, which is called `name`.
            name: of the whole.
            order: longest n-gram.
            share: of a domain's own model in the mixture with that of all domains.
            smoothing: see :meth:`fada.decoding.lm.CharNgram.train`; by default ``kneser-ney`` for the lines of one
                domain (half a bit per character better on other manuscripts), ``witten-bell`` for several domains.
        """
        from fada.decoding.lm import CharNgram

        if isinstance(texts, str):
            raise FadaError("texts is one string, expected lines of text.")
        by_domain = texts if isinstance(texts, Mapping) else {name: list(texts)}
        smoothing = smoothing or ("witten-bell" if isinstance(texts, Mapping) else "kneser-ney")
        lines = [text for each in by_domain.values() for text in each]
        targets = targets if targets is not None else TargetSet.from_texts(by_domain)
        everything = CharNgram.train(lines, order, smoothing)
        domain_lms = {
            domain: CharNgram.train(each, order, smoothing).interpolate(everything, 1 - share)
            for domain, each in by_domain.items()
            if each and isinstance(texts, Mapping)
        }
        bits = _held_out_bits(lines, order, smoothing) if smoothing == "kneser-ney" else None
        language, century = _of_name(name)
        about = About(name=name, language=language, century=century, characters=sum(map(len, lines)), bits=bits)
        return cls(targets, targets.overall, everything, domain_lms, order, share, about)

    @classmethod
    def mixture(cls, parts: "Sequence[tuple[Knowledge, float]]", name: str = "") -> "Knowledge":
        """Several bodies of knowledge of one domain each as one, with a weight each: for a domain that is uncertain."""
        if not parts:
            raise FadaError("a mixture of nothing: give at least one part.")
        total, model = 0.0, None
        weights = {str(i): weight for i, (part, weight) in enumerate(parts) if part.targets is not None}
        targets = {i: overall for i in weights if (overall := parts[int(i)][0].overall) is not None}
        for part, weight in parts:
            if part.global_lm is not None:
                total += weight
                model = part.global_lm if model is None else model.interpolate(part.global_lm, weight / total)
        mixed = TargetSet({name: TargetSet(targets).mix(weights)}) if targets else None
        of_all = sum(weight for _, weight in parts)
        about = About(
            name=name,
            characters=round(sum(part.about.characters * weight for part, weight in parts) / of_all),
            sources=tuple(dict.fromkeys(source for part, _ in parts for source in part.about.sources)),
            credits=tuple(dict.fromkeys(credit for part, _ in parts for credit in part.about.credits)),
        )
        return cls(mixed, None if mixed is None else mixed.overall, model, about=about)

    @property
    def overall(self) -> CharDistribution | None:
        """The frequencies of all its domains together."""
        return None if self.targets is None else self.targets.overall

    def within(self, language: "Knowledge") -> "Knowledge":
        """What is known of a century, together with what is known of its language: better than either."""
        parts = [(language, 1 - _CENTURY), (self, _CENTURY)]
        mixed = Knowledge.mixture(parts, self.name).with_prior(language.prior, language.assumed)
        about = {"language": self.about.language, "century": self.about.century, "characters": language.characters}
        return replace(mixed, about=mixed.about.model_copy(update={**about, "bits": language.about.bits}))

    def with_prior(self, prior: CharDistribution | None, assumed: "CharNgram | None" = None) -> "Knowledge":
        """The same for a recogniser that was trained on text of this distribution, in which characters follow each
        other as `assumed` tells; None: on such text as this.
        """
        return replace(self, prior=self.prior if prior is None else prior, assumed=assumed or self.assumed)

    def for_model(self, folder: str | os.PathLike[str]) -> "Knowledge":
        """The same for a recogniser that was trained as its folder tells."""
        return self.with_prior(training_text_of(folder), training_pairs_of(folder))

    @property
    def name(self) -> str:
        """Of the domain, or of the whole."""
        return self.about.name

    @property
    def characters(self) -> int:
        """Of the text it was made from, as far as that is known."""
        return self.about.characters

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write targets and language models (made by :meth:`from_texts`) as files of a folder."""
        from fada.decoding.lm import CharNgram

        folder = Path(folder)
        if self.targets is not None:
            self.targets.save(folder / "targets.json")
        if self.global_lm is None:
            return
        self.global_lm.save(folder / "lm.npz")
        if self.assumed is not None:
            self.assumed.save(folder / "assumed.npz")
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
        stored = validated(_Stored, read_json(folder / "lm.json"), folder / "lm.json")
        everything = CharNgram.load(folder / "lm.npz")
        domain_lms = {
            domain: CharNgram.load(folder / f"lm-{number}.npz").interpolate(everything, 1 - stored.share)
            for number, domain in enumerate(stored.domains)
        }
        assumed = CharNgram.load(folder / "assumed.npz") if (folder / "assumed.npz").is_file() else None
        return cls(targets, prior, everything, domain_lms, stored.order, stored.share, assumed=assumed)

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
        if kind == "over" and self.global_lm is not None and self.assumed is None:
            raise FadaError(
                "the weights ask for what a text tells over what the recogniser has learnt: not known here."
            )
        model = self.domain_lms.get(domain or "", self.global_lm) if kind == "domain" else self.global_lm
        model = self._over if kind == "over" else model
        if model is None:
            raise FadaError(f"the weights ask for a {kind} language model, and there is none: give some text (--text).")
        return model

    @cached_property
    def _over(self) -> "CharNgram | None":
        """The language model of all text over what the recogniser has learnt."""
        if self.global_lm is None or self.assumed is None:
            return self.global_lm
        return self.global_lm.over(self.assumed, OVER)

    def decoder(self, alphabet: Alphabet) -> "CTCBeamDecoder":
        """A plain beam search over an alphabet, to derive others from.

        It lives as long as this object: what it prepares for the language models serves batch after batch.
        """
        from fada.decoding.ctc import CTCBeamDecoder

        if alphabet not in self._decoders:
            self._decoders[alphabet] = CTCBeamDecoder(alphabet)
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
        models += [("assumed", self.assumed)] if self.assumed else []
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


def _of_name(name: str) -> tuple[str | None, int | None]:
    """Language and century of a name such as `la` or `la-13`; None where it tells none."""
    found = re.fullmatch(r"([a-z]{2,3})(?:-(\d{1,2}))?", name)
    return (found[1], int(found[2]) if found[2] else None) if found else (None, None)


def _held_out_bits(lines: Sequence[str], order: int, smoothing: str) -> float | None:
    """Bits per character, ends of lines included, of a tenth of the lines under a model of the others; None if few."""
    from fada.decoding.lm import CharNgram

    block = max(1, len(lines) // 50)  # neighbours stay together: a sentence goes on in the next line
    held_out = [line for i, line in enumerate(lines) if i // block % 10 == 9]
    if not any(held_out):
        return None
    others = [line for i, line in enumerate(lines) if i // block % 10 != 9]
    return round(math.log2(CharNgram.train(others, order, smoothing).perplexity(held_out)), 4)


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


def write_knowledge(knowledge: Knowledge, path: str | os.PathLike[str], *, small: bool = False) -> None:
    """Write a ``.fada`` file: a zip file of ``knowledge.json``, ``targets.json`` and ``lm``.

    Args:
        small: round the probabilities of the language model to 256 values, for a file of a third of the size.
    """
    if knowledge.domain_lms:
        raise FadaError(
            f"{path}: knowledge of one domain goes into one file, and this has {', '.join(knowledge.domain_lms)}. "
            "Write a file for each."
        )
    members = {"knowledge.json": json.dumps(knowledge.about.model_dump(mode="json"), ensure_ascii=False, indent=2)}
    if knowledge.targets is not None:
        members["targets.json"] = target_file.serialize(knowledge.targets.records)
    content = {name: text.encode() for name, text in members.items()}
    if knowledge.global_lm is not None:
        knowledge.global_lm.save(stream := io.BytesIO(), bits=8 if small else None)
        content["lm"] = stream.getvalue()
    write_members(path, content)


def resolve_knowledge(path_or_name: str | os.PathLike[str]) -> Path:
    """The file of that path, or the built-in one of that name."""
    path = Path(path_or_name)
    if path.is_dir():
        raise FadaError(f"{path}: a folder, expected a {SUFFIX} file. Texts in it are given with --text.")
    if not path.is_file():
        built_in = built_in_knowledge()
        if str(path_or_name) not in built_in:
            known = ", ".join(built_in) or "none"
            raise FadaError(
                f"{path_or_name}: no such file, and no knowledge that comes with fada ({known}). Build one with: fada "
                "knowledge build"
            )
        return built_in[str(path_or_name)]
    with path.open("rb") as stream:
        if (head := stream.read(16))[:2] != b"PK":
            refuse_kind(head, path, f"a {SUFFIX} file of knowledge")
            raise FadaError(f"{path}: not a {SUFFIX} file of knowledge. Texts are given with --text.")
    return path


def read_about(path: Path) -> About:
    """What a ``.fada`` file is, without its language model."""
    members = read_members(path, {"knowledge.json": _MOST_BYTES["knowledge.json"]}, f"{path} (knowledge, {SUFFIX})")
    return _about(members, path)


def read_knowledge(path_or_name: str | os.PathLike[str]) -> Knowledge:
    """Read a ``.fada`` file, or a built-in one by its name."""
    path = resolve_knowledge(path_or_name)
    members = read_members(path, _MOST_BYTES, f"{path} (knowledge, {SUFFIX})")
    about = _about(members, path)
    targets = model = None
    if "targets.json" in members:
        targets = TargetSet.from_records(
            target_file.parse(_text(members["targets.json"], path), f"{path}, targets.json")
        )
    if "lm" in members:
        model = _restored(members["lm"], path)
    return Knowledge(targets, None if targets is None else targets.overall, model, about=about)


def _restored(content: bytes, path: Path) -> "CharNgram":
    from fada.decoding.lm import CharNgram

    try:
        return CharNgram.load(io.BytesIO(content))
    except FadaError as error:
        raise FadaError(f"{path}, {error}") from None


def _text(content: bytes, path: Path) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FadaError(f"{path}: not UTF-8 text inside ({error}). Build it again.") from None


def _about(members: Mapping[str, bytes], path: Path) -> About:
    if "knowledge.json" not in members:
        raise FadaError(f"{path}: no knowledge.json in it, expected a file written by: fada knowledge build")
    try:
        values = json.loads(_text(members["knowledge.json"], path))
    except (ValueError, RecursionError) as error:
        raise FadaError(f"{path}, knowledge.json: not valid JSON ({error}). Build it again.") from None
    return validated(About, values, f"{path}, knowledge.json")


def built_in_knowledge() -> dict[str, Path]:
    """The files of knowledge that come with fada, by name."""
    return {path.stem: path for path in sorted(_PRETRAINED.glob(f"*/{FOLDER}/*{SUFFIX}"))}


def all_built_in() -> dict[str, Knowledge]:
    """The knowledge that comes with fada, by name."""
    return {name: read_knowledge(path) for name, path in built_in_knowledge().items()}


def built_in_of(domain: str) -> str | None:
    """The name of what comes with fada of a domain, or of its language: `la-12`, `la` of `la-8`; None without."""
    return next((name for name in (domain, domain.partition("-")[0]) if name in built_in_knowledge()), None)


def knowledge_of_model(folder: str | os.PathLike[str], *, centuries: bool = True) -> dict[str, Knowledge]:
    """The domains that a model brings in its folder ``knowledge``, each corrected for what the model was trained on.

    Args:
        folder: of the model.
        centuries: whether those of single centuries are wanted too, beside that of their language; they are not looked
            for, but may be asked for.
    """
    prior, pairs = training_text_of(folder), training_pairs_of(folder)
    found = {path: read_about(path) for path in sorted((Path(folder) / FOLDER).glob(f"*{SUFFIX}"))}
    whole = {about.language for about in found.values() if about.century is None}
    chosen = [p for p, about in found.items() if centuries or about.century is None or about.language not in whole]
    return {path.stem: read_knowledge(path).with_prior(prior, pairs) for path in chosen}


def training_text_of(folder: str | os.PathLike[str]) -> CharDistribution | None:
    """The character distribution of the text that a model was trained on, if its folder tells it."""
    path = Path(folder) / FOLDER / TRAINING
    return TargetSet.load(path).overall if path.is_file() else None


def training_pairs_of(folder: str | os.PathLike[str]) -> "CharNgram | None":
    """Which characters follow which in the text that a model was trained on, if its folder tells it."""
    from fada.decoding.lm import CharNgram

    path = Path(folder) / FOLDER / TRAINING_PAIRS
    return CharNgram.load(path) if path.is_file() else None


def read_texts(texts: Sequence[str | os.PathLike[str]], **reading: Any) -> dict[str, list[str]]:
    """Lines by domain, "" where they have none; of sources with splits only the training lines, see `reading`."""
    for text in texts:
        if Path(text).suffix == SUFFIX:
            raise FadaError(f"{text}: knowledge, not a text. Give it with --knowledge {text}.")
    by_domain: dict[str, list[str]] = {}
    for domain, text in Texts([*map(str, texts)], source_of(texts, **reading), held_out=False):
        by_domain.setdefault(domain or "", []).append(text)
    if not any(line for lines in by_domain.values() for line in lines):
        raise FadaError(f"{', '.join(map(str, texts))}: no text for the language model.")
    return by_domain


def load_knowledge(
    targets: str | os.PathLike[str] | None = None,
    texts: Sequence[str | os.PathLike[str]] = (),
    stored: str | os.PathLike[str] | None = None,
    *,
    order: int = 6,
    share: float = 0.5,
    smoothing: str | None = None,
    **reading: Any,
) -> Knowledge:
    """What a user knows: targets from a target file, language models from text, a ``.fada`` file or the name of one.

    Args:
        texts: sources of text, all that ``Source.texts`` reads. If a source has splits, its ``train`` split is read,
            unless `reading` says otherwise: validation and test lines must not enter a language model.
        stored: a ``.fada`` file, or the name of a built-in one; what `targets` and `texts` give goes before it.
        order, share, smoothing: see :meth:`Knowledge.from_texts`.
        reading: how the texts are read; see :class:`fada.data.reading.Reading`.
    """
    target_set = None if targets is None else TargetSet.load(targets)
    known = Knowledge(lm_order=order, lm_share=share) if stored is None else read_knowledge(stored)
    language, built_in = known.about.language, built_in_knowledge()
    if known.about.century is not None and stored in built_in and language in built_in:
        known = known.within(read_knowledge(built_in[language]))
    if texts:
        by_domain = read_texts(texts, **reading)
        name = ", ".join(Path(text).stem for text in map(str, texts))
        own = by_domain[""] if [*by_domain] == [""] else by_domain
        trained = Knowledge.from_texts(own, target_set, name=name, order=order, share=share, smoothing=smoothing)
        about = trained.about.model_copy(update={"sources": tuple(map(str, texts))})
        known = replace(trained, about=about)
    if target_set is not None:
        known = replace(known, targets=target_set, prior=target_set.overall)
    return known
