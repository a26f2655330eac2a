"""What every setting of the decoder makes of the same lines: decoded once, counted, kept in a file if one is given."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fada.common.files import write_text
from fada.common.say import track
from fada.common.workers import Processes, Workers
from fada.decoding.search import Search
from fada.decoding.weights import Weights
from fada.errors import FadaError
from fada.evaluation import significance as statistics
from fada.evaluation.edits import score_lines
from fada.evaluation.significance import Floats
from fada.tuning.tuned import METRICS, Metric, PathLike

FEWEST = 24
"""Settings are first compared on so many lines, then on four times as many each time."""
DOUBT = 4.0
"""A setting is given up when its paired difference from the best exceeds so many standard errors."""

Fractions = tuple[Floats, Floats]
"""Numerators and denominators of an error rate in percent, both (lines,)."""


class Counts(NamedTuple):
    """What a setting's texts differ by from the references, each (lines,); `longer` is the longer text's length."""

    edits: NDArray[np.int64]
    word_edits: NDArray[np.int64]
    longer: NDArray[np.int64]


class Trials:
    """The counts of every setting on every line; a setting is decoded once, and kept in a file if one is given."""

    def __init__(
        self,
        search: Search,
        *,
        metric: Metric = "cer",
        normalization: str | Iterable[str] | None = None,
        store: PathLike | None = None,
        workers: Workers | None = None,
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
        self._stored: dict[Weights, Counts] = {}
        self._stored_few: dict[Weights, Counts] = {}
        nothing = score_lines(self.references, [""] * len(self.references), normalization=normalization)
        self._characters, self._words = nothing.characters, nothing.words
        self.given_up: dict[Weights, Counts] = {}
        """The counts, on the first lines of `order`, of settings that were beyond doubt worse there than another."""
        self.order = np.random.default_rng(0).permutation(len(self.references))
        self._heats: list[tuple[NDArray[np.int64], Search]] | None = None
        self._store = Path(store) if store is not None else None
        if self._store is not None:
            self._resume(self._store)

    def __len__(self) -> int:
        return len(self._stored | self.counts)

    def evaluate(self, weights: Weights) -> float:
        """The error rate of a setting in percent."""
        if weights in self._stored:
            self.counts[weights] = self._stored[weights]
        elif weights not in self.counts:
            self._put(weights, self.count(self.search.choose(weights)))
        return self.error(weights)

    def _put(self, weights: Weights, counts: Counts) -> None:
        self.counts[weights] = counts
        self._append(weights, counts)

    def count(self, texts: Sequence[str], rows: Sequence[int] | None = None) -> Counts:
        """The counts of texts of all lines, or of these."""
        references = self.references if rows is None else [self.references[row] for row in rows]
        lines = score_lines(references, texts, normalization=self.normalization)
        return Counts(lines.edits, lines.word_edits, np.maximum(lines.characters, lines.predicted_characters))

    def fractions(self, counts: Counts, metric: Metric | None = None) -> Fractions:
        """What the metric (that tuned by, if not named) divides by what; counts of fewer lines are of the first."""
        name = metric or self.metric
        edits = counts.word_edits if name == "wer" else counts.edits
        rows = slice(None) if len(edits) == len(self.references) else self.order[: len(edits)]
        lengths = {"cer": self._characters[rows], "wer": self._words[rows], "ned": counts.longer}[name]
        return 100.0 * edits, lengths.astype(np.float64)

    def rate(self, counts: Counts, metric: Metric | None = None) -> float:
        """The error rate of these counts in percent."""
        numerators, denominators = self.fractions(counts, metric)
        return float(numerators.sum() / max(1.0, denominators.sum()))

    def error(self, weights: Weights, metric: Metric | None = None) -> float:
        """The error rate of a setting that has been evaluated."""
        return self.rate(self.counts[weights], metric)

    def best(self, among: Iterable[Weights] | None = None) -> Weights:
        """The evaluated setting with the lowest error; ties go to the one tried first."""
        return min(self.counts if among is None else among, key=self.error)

    def best_of(self, candidates: Iterable[Weights], description: str) -> Weights:
        """Evaluate all, with progress, and return the best of them.

        Lines are decoded in heats, a few first: what is beyond doubt worse there than the best is given up.
        """
        unique = list(dict.fromkeys(candidates))
        known = [weights for weights in unique if weights in self.counts or weights in self._stored]
        self.given_up |= {weights: self._stored_few[weights] for weights in unique if weights in self._stored_few}
        left = [weights for weights in unique if weights not in known and weights not in self.given_up]
        if not left and not known:
            left = [min(unique, key=lambda weights: self.rate(self.given_up[weights]))]
        open_ = {weights: list[Counts]() for weights in left}
        for weights in known:
            self.evaluate(weights)
        heats = self.heats if len(open_) > 1 else [(self.order, self.search)]
        for number, (rows, search) in enumerate(heats):
            last = number == len(heats) - 1
            read = self.workers.each(search.choose, list(open_))
            told = description if last else f"{description}, {len(rows)} lines"
            for weights, texts in track(zip(list(open_), read, strict=True), told, total=len(open_)):
                if len(heats) == 1:
                    self._put(weights, self.count(texts))
                    continue
                open_[weights].append(self.count(texts, rows.tolist()))
                if last:
                    self._keep(weights, open_[weights])
            if not last:
                self._give_up(open_)
        return self.best([weights for weights in unique if weights in self.counts])

    @property
    def heats(self) -> list[tuple[NDArray[np.int64], Search]]:
        """The lines in portions, each four times as many as those before it, each with a search of its own."""
        if self._heats is None:
            ends = [end for k in range(8) if 2 * (end := FEWEST * 4**k) < len(self.order)]
            parts = np.split(self.order, ends) if ends else []
            searches = [(rows, self.search.take(rows.tolist())) for rows in parts]
            whole = [(rows, search) for rows, search in searches if search is not None]
            self._heats = whole if whole and len(whole) == len(parts) else [(self.order, self.search)]
        return self._heats

    def _keep(self, weights: Weights, parts: Sequence[Counts]) -> None:
        """The counts of all heats as those of all lines."""
        place = np.argsort(self.order)
        self._put(weights, Counts(*(np.concatenate(column)[place] for column in zip(*parts, strict=True))))

    def _give_up(self, open_: dict[Weights, list[Counts]]) -> None:
        """Leave out what is worse than the best, of these or of those evaluated before, beyond doubt."""
        so_far = {w: Counts(*(np.concatenate(c) for c in zip(*parts, strict=True))) for w, parts in open_.items()}
        lines = len(next(iter(so_far.values())).edits)
        rivals = [*so_far.values()]
        if self.counts:
            rivals.append(Counts(*(values[self.order[:lines]] for values in self.counts[self.best()])))
        best, winner = min(rivals, key=self.rate), min(so_far, key=lambda weights: self.rate(so_far[weights]))
        for weights, counts in so_far.items():
            worse = self.rate(counts) - self.rate(best)
            if weights != winner and worse > 0 and worse > DOUBT * self.difference_se(best, counts, range(lines)):
                self.given_up[weights] = counts
                self._append(weights, counts)
                del open_[weights]

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
        rows = store.read_text(encoding="utf-8").splitlines()
        if json.loads(rows[0])["fingerprint"] != fingerprint:
            raise FadaError(
                f"{store}: results of other lines, or of another version. Give another file, or delete this one."
            )
        for number, row in enumerate(rows[1:], 1):
            try:
                value = json.loads(row)
            except json.JSONDecodeError:  # the last line of an interrupted run
                write_text(store, "\n".join(rows[:number]) + "\n")
                break
            counts = counts_of(value)
            kept = self._stored if len(counts.edits) == len(self.references) else self._stored_few
            kept[Weights(**value["weights"])] = counts

    def _append(self, weights: Weights, counts: Counts) -> None:
        if self._store is None:
            return
        row = {"weights": weights.model_dump(exclude_defaults=True), **counts_to_json(counts)}
        with self._store.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")


def counts_to_json(counts: Counts) -> dict[str, list[int]]:
    """Counts as lists of whole numbers; the inverse is :func:`counts_of`."""
    return {name: values.tolist() for name, values in counts._asdict().items()}


def counts_of(values: dict[str, list[int]]) -> Counts:
    """Counts from what :func:`counts_to_json` made."""
    return Counts(*(np.array(values[name], dtype=np.int64) for name in Counts._fields))
