"""N-best lists of a model that writes token by token: rescored with the same terms that guide a CTC beam search.

The file has one row per hypothesis (parquet, JSONL, CSV or TSV): ``id``, ``hypothesis``, ``log_prob`` (natural
logarithm, summed over the tokens), and if known ``reference`` and ``domain``. The order of rows does not matter.

Rescoring can only choose among what the model proposed: :meth:`NBest.oracle` is the best it could do.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from fada.common.files import replacing
from fada.common.tables import read_columns
from fada.data.columns import LineColumns
from fada.decoding.guidance import Guidance
from fada.decoding.hypothesis import Hypothesis
from fada.decoding.knowledge import Knowledge
from fada.decoding.lm import prior_weights
from fada.decoding.search import EVERY_TERM, Kind, Search
from fada.decoding.weights import LanguageModel, Weights
from fada.errors import FadaError
from fada.targets.distribution import CharDistribution
from fada.text.characters import OTHER

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class NBest:
    """For every line the hypotheses of a model and their log-probabilities."""

    ids: list[str]
    hypotheses: list[list[str]]
    log_probs: list[list[float]]
    references: list[str] | None = None
    domains: list[str | None] | None = None

    @property
    def lines(self) -> LineColumns:
        """What is known of the lines."""
        return LineColumns(self.ids, self.references, self.domains)

    def __post_init__(self) -> None:
        if not len(self.lines) == len(self.hypotheses) == len(self.log_probs):
            raise FadaError(
                f"{len(self.ids)} lines, {len(self.hypotheses)} lists of hypotheses and {len(self.log_probs)} of "
                "log-probabilities, expected one for each line."
            )
        for line, texts, values in zip(self.ids, self.hypotheses, self.log_probs, strict=True):
            if not texts or len(texts) != len(values):
                raise FadaError(f"line {line!r}: {len(texts)} hypotheses and {len(values)} log-probabilities.")
            if not np.all(np.isfinite(values)):
                raise FadaError(f"line {line!r}: a log-probability is not finite.")

    @classmethod
    def load(cls, path: PathLike) -> "NBest":
        """Read a file with one row per hypothesis."""
        columns = read_columns(path)
        for name in ("id", "hypothesis", "log_prob"):
            if name not in columns:
                raise FadaError(
                    f"{path}: no column {name!r}. Expected n-best lists, a table of id, hypothesis, log_prob "
                    "(reference, domain); emissions end in .npz."
                )
        rows: dict[str, list[int]] = {}
        for row, line in enumerate(columns["id"]):
            rows.setdefault(str(line), []).append(row)
        first = [numbers[0] for numbers in rows.values()]
        try:
            log_probs = [float(value) for value in columns["log_prob"]]
        except (TypeError, ValueError):
            raise FadaError(f"{path}: the column log_prob must hold a number in every row.") from None
        references = [columns["reference"][row] for row in first] if "reference" in columns else None
        if references is not None and None in references:
            raise FadaError(f"{path}: line {list(rows)[references.index(None)]!r} has no reference, others have one.")
        domains = [columns["domain"][row] for row in first] if "domain" in columns else None
        return cls(
            list(rows),
            [[columns["hypothesis"][row] or "" for row in numbers] for numbers in rows.values()],
            [[log_probs[row] for row in numbers] for numbers in rows.values()],
            references,
            None if domains is None else [None if domain is None else str(domain) for domain in domains],
        )

    def save(self, path: PathLike) -> None:
        """Write parquet, one row per hypothesis."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        counts = [len(texts) for texts in self.hypotheses]
        table = {
            "id": [line for line, count in zip(self.ids, counts, strict=True) for _ in range(count)],
            "hypothesis": [text for texts in self.hypotheses for text in texts],
            "log_prob": [value for values in self.log_probs for value in values],
        }
        for name, column in (("reference", self.references), ("domain", self.domains)):
            if column is not None:
                table[name] = [value for value, count in zip(column, counts, strict=True) for _ in range(count)]
        with replacing(path) as temporary:
            pq.write_table(pa.table(table), temporary)

    def oracle(self) -> list[str]:
        """The hypothesis nearest to the reference in every list: what perfect rescoring would choose."""
        if self.references is None:
            raise FadaError("the n-best lists have no references.")
        return [
            min(texts, key=lambda text: Levenshtein.distance(reference, text))
            for reference, texts in zip(self.references, self.hypotheses, strict=True)
        ]


def adaptive_lam(log_probs: NDArray[np.float64], distances: NDArray[np.float64], lam: float) -> float:
    """The λ of one line at which the two terms of Eq. 2 vary over its hypotheses as λ to 1 - λ.

    With the standard deviations s of log-probability and distance, λ · s_distance / (λ · s_distance + (1 - λ) · s_log),
    as the adaptive λ of training does with gradients. Where nothing varies, λ itself.

    Args:
        log_probs, distances: (hypotheses,) of the line; the distances with their scale.
        lam: the balance that is asked for, 0.5 for equal weight.
    """
    guided, plain = lam * float(distances.std()), (1 - lam) * float(log_probs.std())
    return guided / (guided + plain) if guided + plain > 0 else lam


class Rescorer(Search):
    """Chooses from n-best lists by the decoder's score; what each term says of a text is computed once.

    Args:
        lists: what to choose from.
        knowledge: targets and language models.
        adaptive: take for every line the λ of :func:`adaptive_lam`; beyond the paper.
        before: a rescorer of the same lines with the same knowledge: what it computed for a text is not computed again.
    """

    kind: Kind = "nbest"
    terms = EVERY_TERM - {"beam"}

    def __init__(
        self,
        lists: NBest,
        knowledge: Knowledge | None = None,
        adaptive: bool = False,
        before: "Rescorer | None" = None,
    ) -> None:
        self.lists, self.adaptive = lists, adaptive
        self.knowledge = knowledge or Knowledge()
        self.ids = lists.ids
        self.references = lists.references
        self.domains = list(lists.domains or [None] * len(lists.ids))
        self._lengths = np.array([len(texts) for texts in lists.hypotheses], np.int64)
        self._starts = np.concatenate([[0], np.cumsum(self._lengths)])
        self._log_probs = np.array([value for values in lists.log_probs for value in values])
        self._terms: dict[str, NDArray[np.float64]] = {}
        self._values: dict[tuple[str, str | None], dict[str, float]] = {} if before is None else before._values

    def recognized(self) -> Iterator[bytes]:
        """The hypotheses and their log-probabilities."""
        for texts in self.lists.hypotheses:
            yield "\0".join(texts).encode("utf-8", "surrogatepass")
        yield self._log_probs.tobytes()

    def hypotheses(self, weights: Weights, alignment: bool = False) -> list[Hypothesis]:
        """The best hypothesis of every line; ties go to the one that stands first."""
        score, distance, language = self._scores(weights)
        found = []
        for texts, start, i in zip(self.lists.hypotheses, self._starts[:-1], self._best(score), strict=True):
            far = None if distance is None else float(distance[i])
            text, log_prob = texts[i - start], float(self._log_probs[i])
            found.append(Hypothesis(text, float(score[i]), log_prob, far, float(language[i])))
        return found

    def places(self, weights: Weights) -> NDArray[np.int64]:
        """Where the best hypothesis of every line stands if all lists are one, (lines,)."""
        return self._best(self._scores(weights)[0])

    def _best(self, score: NDArray[np.float64]) -> NDArray[np.int64]:
        highest = np.repeat(np.maximum.reduceat(score, self._starts[:-1]), self._lengths)
        places = np.flatnonzero(score == highest)
        return places[np.searchsorted(places, self._starts[:-1])]

    def _scores(self, weights: Weights) -> tuple[NDArray[np.float64], NDArray[np.float64] | None, NDArray[np.float64]]:
        """The score of every hypothesis, its distance from the target and what the language model says of it."""
        self.check(weights)
        nothing = np.zeros_like(self._log_probs)
        distance = self._term(weights.distance, self._distances) if weights.guided else None
        language = self._term(weights.lm, self._language) if weights.lm != "none" else nothing
        lam = self._lam(weights, distance)
        score = lam * self._log_probs
        if distance is not None:
            score = score - (1 - lam) * weights.scale * distance
        score = score + weights.lm_weight * language
        if weights.prior_weight:
            score = score + weights.prior_weight * self._term("prior", self._prior)
        if weights.length_bonus:
            score = score + weights.length_bonus * self._term("length", lambda name, domain, texts: map(len, texts))
        return score, distance, language

    def _lam(self, weights: Weights, distance: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """λ for every hypothesis, (hypotheses,)."""
        lams = np.full(len(self._log_probs), weights.lam)
        if self.adaptive and distance is not None:
            for start, end in pairwise(self._starts.tolist()):
                varied = self._log_probs[start:end], weights.scale * distance[start:end]
                lams[start:end] = adaptive_lam(*varied, weights.lam)
        return lams

    def _term(
        self, name: str, of_texts: Callable[[str, str | None, list[str]], Iterable[float]]
    ) -> NDArray[np.float64]:
        """The value of a term for every hypothesis, (hypotheses,)."""
        if name not in self._terms:
            texts_of: dict[str | None, dict[str, None]] = {}
            lines = list(zip(self.lists.hypotheses, self.domains, strict=True))
            for texts, domain in lines:
                texts_of.setdefault(domain, {}).update(dict.fromkeys(texts))
            for domain, known in texts_of.items():
                values = self._values.setdefault((name, domain), {})
                if new := [text for text in known if text not in values]:
                    values.update(zip(new, map(float, of_texts(name, domain, new)), strict=True))
            found = [self._values[name, domain][text] for texts, domain in lines for text in texts]
            self._terms[name] = np.array(found)
        return self._terms[name]

    def _distances(self, name: str, domain: str | None, texts: list[str]) -> Iterable[float]:
        return Guidance(self._target(domain), distance=name).distances_of(texts)

    def _language(self, name: str, domain: str | None, texts: list[str]) -> Iterable[float]:
        model = self.knowledge.lm_of(cast(LanguageModel, name), domain)
        return model.log_probs(texts) if model is not None else [0.0] * len(texts)

    def _prior(self, name: str, domain: str | None, texts: list[str]) -> Iterable[float]:
        target = self._target(domain)
        normal = [target.normalizer(text) for text in texts]
        characters = set("".join(normal))
        target = target.covering(characters)
        if self.knowledge.prior is None:
            raise FadaError("prior correction needs the training distribution: give prior, such as targets.overall.")
        correction = dict(zip(target.symbols, prior_weights(target, self.knowledge.prior), strict=True))
        value = {c: correction.get(c, correction.get(OTHER, 0.0)) for c in characters}
        return [sum(map(value.__getitem__, text)) for text in normal]

    def _target(self, domain: str | None) -> CharDistribution:
        target = self.knowledge.target_of(domain)
        if target is None:
            raise FadaError("guidance and prior correction need a target file: give one with --targets.")
        return target
