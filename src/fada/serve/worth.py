"""What a source of knowledge is worth: bits per character that it saves on the document's own lines."""

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from fada.serve.desk import Desk
from fada.targets.distribution import CharDistribution

if TYPE_CHECKING:
    from fada.decoding.lm import CharNgram

_MOST_LINES = 2000


def of_document(desk: Desk, document: int) -> dict[str, Any]:
    """Bits per character of each source, over what the recogniser expects by itself: the characters of its training
    text, else all characters of its alphabet alike. Measured on confirmed lines, else on what was read.
    """
    desk.document(document)
    known = desk.known(document)
    query = (
        "SELECT lines.text FROM lines JOIN pages ON pages.id = lines.page WHERE pages.document = ? "
        "AND lines.text != '' AND lines.state {} LIMIT ?"
    )
    rows = desk.store.rows(query.format("= 'confirmed'"), document, _MOST_LINES)
    confirmed = bool(rows)
    rows = rows or desk.store.rows(query.format("IN ('draft', 'typed')"), document, _MOST_LINES)
    texts = [row["text"] for row in rows]
    symbols = desk.alphabet(desk.document(document)["model"])[0]
    alike = math.log(max(len(symbols) - 1, 2))
    base = (lambda text: (len(text) * alike, len(text))) if known.prior is None else _by(known.prior)
    sources: dict[str, Callable[[str], tuple[float, int]]] = {}
    used = known.knowledge.name or "the domain"
    if known.knowledge.targets is not None:
        sources[f"frequencies of {used}"] = _by(known.knowledge.targets.overall)
    if (lm := known.knowledge.global_lm) is not None:
        sources[f"language model of {used}"] = _by_lm(lm)
    for name, text in known.texts.items() if len(known.texts) > 1 else ():
        if text.global_lm is not None:
            sources[f"text {name}"] = _by_lm(text.global_lm)
    found = [_bits(name, source, base, texts) for name, source in sources.items()] if texts else []
    told = "confirmed lines" if confirmed else "lines as they were read, for none is confirmed yet"
    against = "the text that the recogniser was trained on" if known.prior is not None else "all characters alike"
    note = f"measured on {told}, against {against}"
    return {"sources": found, "lines": len(texts), "note": note, "predicted": _predicted(desk, document)}


def _predicted(desk: Desk, document: int) -> dict[str, float] | None:
    """The error rate to expect of a reading without text, with an 80 % interval; None for too few lines."""
    from fada.decoding.emissions import Emissions
    from fada.experiments.worth import FEWEST, predict

    row = desk.document(document)
    emitted = [desk.project.emission(document, one["emission"]) for one in desk.emitted(document)[:_MOST_LINES]]
    arrays = [array for array in emitted if array is not None and len(array)]
    if len(arrays) < FEWEST:
        return None
    symbols, blank = desk.alphabet(row["model"])
    return asdict(predict(Emissions([str(i) for i in range(len(arrays))], arrays, symbols, blank)))


def _bits(name: str, source: Any, base: Any, texts: list[str]) -> dict[str, Any]:
    by_source, by_base = np.array([source(text) for text in texts]), np.array([base(text) for text in texts])
    characters = max(int(by_source[:, 1].sum()), 1)
    per_source = by_source[:, 0].sum() / characters
    per_base = by_base[:, 0].sum() / max(by_base[:, 1].sum(), 1)
    return {"source": name, "bits": round(float((per_base - per_source) / math.log(2)), 4), "characters": characters}


def _by(distribution: CharDistribution) -> Callable[[str], tuple[float, int]]:
    """Negative log-probability of a text and its length; what was never seen counts as half an occurrence."""
    least = 0.5 / max(distribution.total, 1.0)

    def cost(text: str) -> tuple[float, int]:
        normal = distribution.normalizer(text)
        return -sum(math.log(max(distribution.frequency(c), least)) for c in normal), len(normal)

    return cost


def _by_lm(lm: "CharNgram") -> Callable[[str], tuple[float, int]]:
    return lambda text: (-float(lm.log_prob(text, end=True)), len(text) + 1)
