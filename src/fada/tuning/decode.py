"""Named decodings of the same lines: the one place that assembles them for evaluation."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fada.data.columns import LineColumns
from fada.decoding.emissions import Emissions, with_references
from fada.decoding.evidence import Automatic
from fada.decoding.hypothesis import Hypothesis
from fada.decoding.knowledge import Knowledge
from fada.decoding.nbest import NBest, Rescorer
from fada.decoding.search import BeamSearch, Search
from fada.decoding.weights import Weights
from fada.distances import LAM
from fada.errors import FadaError
from fada.evaluation.predictions import GREEDY_SETTINGS, SCORE_COLUMNS, Predictions, Systems
from fada.tuning.grid import PLAIN
from fada.tuning.overlap import refuse_seen
from fada.tuning.tuned import PathLike, Tuned

GREEDY = "greedy"
BEAM = "beam"
TUNED = "tuned"
KNOWING = "knowledge"
"""Decoding with a text and default weights."""


def open_search(
    path: PathLike,
    knowledge: Knowledge,
    lines: PathLike | None = None,
    threads: int | None = None,
    domain: str | None = None,
) -> Search:
    """A search over stored emissions (``.npz``) or n-best lists (a table).

    Args:
        lines: where references and domains of emissions are found by line id, if they are not stored with them
            (anything that ``read_lines`` reads).
        domain: of all lines, instead of those stored.
    """
    path = Path(path)
    if not path.is_file():
        raise FadaError(f"{path}: no such file. Expected stored emissions (.npz) or n-best lists (a table).")
    if path.suffix.lower() != ".npz":
        lists = NBest.load(path)
        return Rescorer(lists if domain is None else replace(lists, domains=[domain] * len(lists.ids)), knowledge)
    emissions = Emissions.load(path)
    emissions = emissions if lines is None else with_references(emissions, lines)
    if domain is not None:
        emissions = replace(emissions, domains=[domain] * len(emissions))
    return BeamSearch(emissions, knowledge, threads)


def decode_systems(
    search: Search, named: Mapping[str, Weights | None], source: str = "", lines: LineColumns | None = None
) -> Systems:
    """Every named decoding of the lines of a search; None is the cheapest search.

    Args:
        lines: what is known of the lines, if it is more than the search knows.
    """
    if search.references is None:
        raise FadaError(
            f"{source or 'search'}: no references are stored with these lines, so there is nothing to compare with. "
            "Give the lines with --lines."
        )
    lines = lines or search.lines
    read = [
        Predictions(name, lines, search.greedy(), GREEDY_SETTINGS)
        if weights is None
        else predictions_of(name, lines, weights, search.hypotheses(weights))
        for name, weights in named.items()
    ]
    return Systems(
        lines,
        {found.name: found.hypotheses for found in read},
        {found.name: found.settings for found in read},
        {found.name: found.scores for found in read},
        source,
    )


def predictions_of(
    name: str, lines: LineColumns, weights: Weights, hypotheses: Sequence[Hypothesis], **about: Any
) -> Predictions:
    """One decoding with its weights and the parts of its score; `about` is kept with the weights."""
    parts = {part: [_number(getattr(found, part)) for found in hypotheses] for part in SCORE_COLUMNS}
    known = {part: values for part, values in parts.items() if any(value is not None for value in values)}
    return Predictions(name, lines, [found.text for found in hypotheses], {**weights.model_dump(), **about}, known)


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


def usual_weights(search: Search, *, guided: bool = False) -> Weights | None:
    """Weights for the knowledge of a search where nobody tuned any; None where nothing is known.

    Args:
        guided: whether the targets were given, and not only counted in a text.
    """
    if isinstance(search, BeamSearch) and search.knowledge.global_lm is not None:
        usual = Automatic(given=search.knowledge, asked={"lam": LAM} if guided else {})
        return usual.decide(search.emissions.alphabet, search.emissions.log_probs).weights
    return Weights(lam=LAM) if guided else None


def decode_tuned(search: Search, tuned: Tuned | None = None, source: str = "", usual: Weights | None = None) -> Systems:
    """Plain beam search, the cheapest search and tuned decoding, if there is one; lines tuned on are refused.

    Args:
        usual: also decode with these weights, see :func:`usual_weights`.
    """
    named: dict[str, Weights | None] = {BEAM: PLAIN if tuned is None else PLAIN.change(beam=tuned.weights.beam)}
    if "beam" in search.terms:
        named[GREEDY] = None
    if tuned is not None:
        refuse_seen(tuned, search, source)
        named[TUNED] = tuned.weights
    if usual is not None:
        named[KNOWING] = usual
    return decode_systems(search, named, source)
