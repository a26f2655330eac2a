"""Lines read in one way, batch by batch: what a job does in its own process, and on the machines of a cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from fada.data.line import Line
from fada.decoding.evidence import Automatic
from fada.decoding.hypothesis import Hypothesis
from fada.decoding.knowledge import Knowledge
from fada.decoding.weights import Weights
from fada.jobs.batches import in_parts
from fada.jobs.documents import Documents
from fada.jobs.journal import Row, failed_row
from fada.models.recognizer import Recognizer


class Reader:
    """Reads batches of lines in one way.

    Args:
        rows: finished lines of an earlier run, whose decisions hold.
    """

    def __init__(
        self,
        recognizer: Recognizer,
        weights: Weights,
        knowledge: Knowledge,
        automatic: Automatic | None,
        rows: Mapping[str, Row],
    ) -> None:
        self.recognizer, self.weights, self.knowledge, self.automatic = recognizer, weights, knowledge, automatic
        self.documents = None if automatic is None else Documents(recognizer, automatic, rows)

    def rows(self, batch: Sequence[Line]) -> list[Row]:
        """The rows of the journal for a batch; one bad line costs only itself."""
        if self.documents is not None:
            return self.documents.rows(batch, _found_rows)
        rows: list[Row] = []
        for read, part, error in in_parts(batch, self._rows):
            rows += read if error is None else [failed_row(line, error) for line in part]
        return rows

    def _rows(self, batch: Sequence[Line]) -> list[Row]:
        lines = [replace(line, text=None) for line in batch]
        search = self.recognizer.search(lines, self.knowledge, batch_size=len(batch))
        return _found_rows(batch, search.hypotheses(self.weights, alignment=True))


def _found_rows(batch: Sequence[Line], found: Sequence[Hypothesis]) -> list[Row]:
    rows: list[Row] = []
    for line, best in zip(batch, found, strict=True):
        row: Row = {"id": line.id, "text": best.text}
        if best.alignment and (confidences := [round(c, 4) for c in best.char_confidences]):
            row |= {"confidence": round(fmean(confidences), 4), "characters": confidences}
            row["edges"] = [round(edge, 4) for edge in best.alignment.edges]
        distance = None if best.distance is None else round(best.distance, 6)
        row |= {"log_prob": round(best.log_prob, 4), "distance": distance, "score": round(best.score, 4)}
        rows.append(row)
    return rows
