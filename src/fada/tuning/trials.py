"""What every setting of the decoder makes of the same lines: decoded once, counted, kept in a file if one is given."""

import hashlib
import json
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from fada.common.files import write_bytes, write_text
from fada.common.say import track
from fada.common.workers import Processes, Workers
from fada.decoding.search import Search
from fada.decoding.weights import Weights
from fada.errors import FadaError
from fada.evaluation import significance as statistics
from fada.evaluation.edits import score_lines
from fada.evaluation.significance import Floats
from fada.tuning.drafts import Counts, Drafts, Lists
from fada.tuning.tuned import METRICS, Metric, PathLike

log = logging.getLogger(__name__)

_NO_ROW = (ValueError, LookupError, TypeError, OverflowError, RecursionError)
"""What a damaged row of a store raises."""

AT_ONCE = 2
"""So many settings are decoded before the others choose anew."""
PATIENCE = 2
"""So often without a better one, then the best setting is taken for found."""

Fractions = tuple[Floats, Floats]
"""Numerators and denominators of an error rate in percent, both (lines,)."""


class Trials:
    """The counts of every setting on every line; a setting is decoded once, and kept in a file if one is given.

    Where a search keeps several hypotheses of a line, most settings are not decoded but rescored: they choose from what
    those that are decoded found. What is best is always decoded.

    Args:
        exact: decode every setting.
    """

    def __init__(
        self,
        search: Search,
        *,
        metric: Metric = "cer",
        normalization: str | Iterable[str] | None = None,
        store: PathLike | None = None,
        workers: Workers | None = None,
        exact: bool = False,
    ) -> None:
        if search.references is None:
            raise FadaError("tuning needs references: store them with the emissions (or n-best lists) of validation.")
        if not search.ids:
            raise FadaError("no lines to tune on.")
        if metric not in METRICS:
            raise FadaError(f"metric is {metric!r}, expected one of {', '.join(METRICS)}.")
        self.search = search
        self.workers = workers or Processes()
        self.metric = metric
        self.normalization = normalization
        self.references = list(search.references)
        self.counts: dict[Weights, Counts] = {}
        self.rescored: dict[Weights, Counts] = {}
        """The counts of settings that were compared and not decoded."""
        self._order: dict[Weights, None] = {}
        self._stored: dict[Weights, tuple[Counts, Lists | None]] = {}
        nothing = score_lines(self.references, [""] * len(self.references), normalization=normalization)
        self._characters, self._words = nothing.characters, nothing.words
        self._drafts = Drafts(search, self.count) if search.keeps_several and not exact else None
        self._store = Path(store) if store is not None else None
        if self._store is not None:
            self._resume(self._store)

    def __len__(self) -> int:
        return len(self._stored | self.counts)

    def evaluate(self, weights: Weights) -> float:
        """The error rate of a setting in percent."""
        if weights not in self.counts:
            self.decode([weights])
        return self.error(weights)

    def decode(self, settings: Sequence[Weights], description: str = "") -> None:
        """Evaluate settings that were not, unless the file holds them."""
        new = [weights for weights in settings if weights not in self._stored]
        found = self.workers.each(self.search.choose if self._drafts is None else self.search.nbest, new)
        for weights in track(settings, description) if description else settings:
            if weights not in self._stored:
                self._keep(weights, next(found))
            self.counts[weights], lists = self._stored[weights]
            self.rescored.pop(weights, None)
            if self._drafts is not None:
                self._drafts.add(weights, self.counts[weights], lists or [[] for _ in self.references])

    def _keep(self, weights: Weights, found: Any) -> None:
        """Count what was found, and write it down."""
        if self._drafts is None:
            counts, lists = self.count(found), None
        else:
            lists = [[(hypothesis.text, float(hypothesis.log_prob)) for hypothesis in line] for line in found]
            counts = self.count([line[0][0] for line in lists])
        self._stored[weights] = counts, lists
        if self._store is not None:
            row = {"weights": weights.model_dump(exclude_defaults=True), **counts_to_json(counts)}
            with self._store.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row if lists is None else {**row, "found": lists}) + "\n")

    def count(self, texts: Sequence[str], rows: Sequence[int] | None = None) -> Counts:
        """The counts of texts of all lines, or of these."""
        references = self.references if rows is None else [self.references[row] for row in rows]
        lines = score_lines(references, texts, normalization=self.normalization)
        return Counts(lines.edits, lines.word_edits, np.maximum(lines.characters, lines.predicted_characters))

    def fractions(self, counts: Counts, metric: Metric | None = None) -> Fractions:
        """What the metric (that tuned by, if not named) divides by what."""
        name = metric or self.metric
        edits = counts.word_edits if name == "wer" else counts.edits
        lengths = {"cer": self._characters, "wer": self._words, "ned": counts.longer}[name]
        return 100.0 * edits, lengths.astype(np.float64)

    def rate(self, counts: Counts, metric: Metric | None = None) -> float:
        """The error rate of these counts in percent."""
        numerators, denominators = self.fractions(counts, metric)
        return float(numerators.sum() / max(1.0, denominators.sum()))

    def known(self, weights: Weights) -> Counts:
        """The counts of a setting that was decoded or rescored."""
        return self.counts[weights] if weights in self.counts else self.rescored[weights]

    def error(self, weights: Weights, metric: Metric | None = None) -> float:
        """The error rate of a setting that was decoded or rescored."""
        return self.rate(self.known(weights), metric)

    @property
    def tried(self) -> list[Weights]:
        """All settings that were decoded or rescored, in the order in which they were asked for."""
        return list(dict.fromkeys([*self._order, *self.counts]))

    def best(self, among: Iterable[Weights] | None = None) -> Weights:
        """The decoded setting with the lowest error; ties go to the one tried first."""
        return min((weights for weights in among or self.tried if weights in self.counts), key=self.error)

    def best_of(self, candidates: Iterable[Weights], description: str) -> Weights:
        """Compare all, with progress, and return the best of them.

        A few are decoded at a time, those that are best by rescoring, until none of them is better than those before.
        """
        unique = list(dict.fromkeys(candidates))
        self._order |= dict.fromkeys(unique)
        if self._drafts is None or len(unique) <= 3 * AT_ONCE:
            self.decode([weights for weights in unique if weights not in self.counts], description)
        idle = 0
        while (left := self.rescore(unique)) and idle < PATIENCE:
            before = min((self.error(weights) for weights in unique if weights in self.counts), default=np.inf)
            promising = sorted(left, key=self.error)[:AT_ONCE]
            self.decode(promising, f"{description}, {len(unique)} settings")
            idle = 0 if min(map(self.error, promising)) < before else idle + 1
        return self.best(unique)

    def rescore(self, settings: Iterable[Weights]) -> list[Weights]:
        """Those that were not decoded, which choose anew from all that was found."""
        left = [weights for weights in settings if weights not in self.counts]
        if self._drafts is not None:
            self.rescored |= {weights: self._drafts.counts(weights) for weights in left}
        return left

    def difference_se(self, a: Counts, b: Counts, clusters: Sequence[object]) -> float:
        """Standard error of the paired difference of two error rates in points."""
        return statistics.difference_standard_error(self.fractions(a), self.fractions(b), cast(list[str], clusters))

    @property
    def fingerprint(self) -> str:
        """Changes when the lines, their references, their recogniser's output or the normalisation change."""
        settings = [str(self.normalization), self.search.kind, self.search.knowledge.fingerprint()]
        digest = hashlib.sha256(json.dumps(settings).encode())
        for line, text in zip(self.search.ids, self.references, strict=True):
            digest.update(f"{line}\0{text}\0".encode("utf-8", "surrogatepass"))
        for part in self.search.recognized():
            digest.update(part)
        return digest.hexdigest()[:16]

    def _resume(self, store: Path) -> None:
        fingerprint = self.fingerprint
        if not store.exists():
            write_text(store, json.dumps({"fingerprint": fingerprint}) + "\n")
            return
        first, *rows = store.read_bytes().split(b"\n")
        try:
            found = json.loads(first)["fingerprint"]
        except _NO_ROW:
            raise FadaError(
                f"{store}: its first line is not that of a store of trials. Give another file, or delete this one."
            ) from None
        if found != fingerprint:
            raise FadaError(
                f"{store}: results of other lines, or of another version. Give another file, or delete this one."
            )
        sound = [row for row in rows if row and self._take(row)]
        if rows != [*sound, b""]:  # interrupted while a row was written, or damaged
            lost = sum(map(bool, rows)) - len(sound)
            log.warning("%s: %d rows cannot be read; what they held is decoded again", store, lost)
            write_bytes(store, b"\n".join([first, *sound, b""]))

    def _take(self, row: bytes) -> bool:
        """Whether a row of the store is whole; it is remembered then."""
        try:
            value = json.loads(row)
            weights, counts, lists = Weights(**value["weights"]), counts_of(value), value.get("found")
            if lists is not None:
                lists = [[(_text(text), float(log_prob)) for text, log_prob in line] for line in lists]
        except _NO_ROW:
            return False
        lines = len(counts.edits)
        if any(column.shape != (lines,) for column in counts) or not 0 < lines <= len(self.references):
            return False
        if lists is not None and len(lists) != lines:
            return False
        if lines == len(self.references):
            self._stored[weights] = counts, lists
        return True


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text is {value!r}")
    return value


def counts_to_json(counts: Counts) -> dict[str, list[int]]:
    """Counts as lists of whole numbers; the inverse is :func:`counts_of`."""
    return {name: values.tolist() for name, values in counts._asdict().items()}


def counts_of(values: dict[str, list[int]]) -> Counts:
    """Counts from what :func:`counts_to_json` made."""
    return Counts(*(np.array(values[name], dtype=np.int64) for name in Counts._fields))
