"""Named decodings of the same lines: the one place that assembles them for evaluation."""

from collections.abc import Mapping
from pathlib import Path

from fada.decoding.emissions import Emissions, with_references
from fada.decoding.knowledge import Knowledge
from fada.decoding.nbest import NBest, Rescorer
from fada.decoding.search import BeamSearch, Search
from fada.decoding.weights import Weights
from fada.errors import FadaError
from fada.evaluation.predictions import Systems
from fada.tuning.grid import PLAIN
from fada.tuning.overlap import refuse_seen
from fada.tuning.tuned import PathLike, Tuned

GREEDY = "greedy"
BEAM = "beam"
TUNED = "tuned"


def open_search(
    path: PathLike, knowledge: Knowledge, lines: PathLike | None = None, threads: int | None = None
) -> Search:
    """A search over stored emissions (``.npz``) or n-best lists (a table).

    Args:
        lines: where references and domains of emissions are found by line id, if they are not stored with them
            (anything that ``read_lines`` reads).
    """
    path = Path(path)
    if not path.is_file():
        raise FadaError(f"{path}: no such file. Expected stored emissions (.npz) or n-best lists (a table).")
    if path.suffix.lower() != ".npz":
        return Rescorer(NBest.load(path), knowledge)
    emissions = Emissions.load(path)
    return BeamSearch(emissions if lines is None else with_references(emissions, lines), knowledge, threads)


def decode_systems(search: Search, named: Mapping[str, Weights | None], source: str = "") -> Systems:
    """Every named decoding of the lines of a search; None is the cheapest search."""
    if search.references is None:
        raise FadaError(
            f"{source or 'search'}: no references are stored with these lines, so there is nothing to compare with. "
            "Give the lines with --lines."
        )
    texts = {name: search.greedy() if weights is None else search.choose(weights) for name, weights in named.items()}
    columns: dict[str, list[str | None]] = {"domain": search.domains} if any(search.domains) else {}
    return Systems(list(search.ids), list(search.references), texts, columns, source)


def decode_tuned(search: Search, tuned: Tuned | None = None, source: str = "") -> Systems:
    """Plain beam search, the cheapest search and tuned decoding, if there is one; lines tuned on are refused."""
    named: dict[str, Weights | None] = {BEAM: PLAIN if tuned is None else PLAIN.change(beam=tuned.weights.beam)}
    if search.kind != "nbest":
        named[GREEDY] = None
    if tuned is not None:
        refuse_seen(tuned, search, source)
        named[TUNED] = tuned.weights
    return decode_systems(search, named, source)
