"""The CTC search: against other decoders, with a language model, line by line, far from the recogniser; and tuning.

Rows of :mod:`benchmarks.table`. With ``--lines SOURCE`` the built-in French model reads the test lines of a
data set once and its emissions are searched; else emissions are made up (see :mod:`benchmarks.ctc`). Run with:
python -m benchmarks.table searching [--lines SOURCE] [--rounds N]

What scoring the end of the line changes, on the validation lines of a data set: python -m benchmarks.searching SOURCE
"""

import itertools
import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rapidfuzz.distance import Levenshtein

from benchmarks.ctc import SYMBOLS, corpus_lines, emissions
from benchmarks.reading import REPOSITORY, checked_out, told_by
from benchmarks.table import Options, Row, alternating
from fada.decoding.ctc import CTCBeamDecoder
from fada.decoding.emissions import Emissions
from fada.decoding.knowledge import Knowledge
from fada.decoding.lm import CharNgram
from fada.decoding.lm_train import END, UNKNOWN
from fada.decoding.search import BeamSearch
from fada.decoding.weights import Weights
from fada.tuning.choose import Tuning, tune

GOALS = {5: "6", 25: "8", 100: "6"}
"""Times fast-ctc-decode, by beam."""
MADE_UP = 100
WITH_MODEL = 4
"""Of so many lines one is searched with a language model by a peer, which takes its time."""
SPACE = "<space>"
"""As a word of an ARPA file."""
Decode = Callable[[], list[str]]

SECONDS = """
import json, sys, time
from fada.decoding.ctc import CTCBeamDecoder
from fada.decoding.emissions import Emissions
from fada.decoding.lm import CharNgram

emissions, beam, *arpa = sys.argv[1:]
data = Emissions.load(emissions)
known = {"lm": CharNgram.from_arpa(arpa[0]), "lm_weight": 0.5, "length_bonus": 0.5} if arpa else {}
decoder = CTCBeamDecoder(data.symbols, data.blank, int(beam), threads=1, **known)
decoder.decode_batch(data.log_probs)
started = time.process_time()
for _ in range(10):
    decoder.decode_batch(data.log_probs)
print(json.dumps(time.process_time() - started))
"""
"""CPU time of ten searches of stored emissions, by whatever commit of the program is found."""


def made_up(lines: int) -> tuple[Emissions, Knowledge]:
    """Emissions of made-up lines in two domains, and what other lines tell of them."""
    texts, log_probs = emissions(lines)
    domains = ["1" if i % 2 else "2" for i in range(lines)]
    other = corpus_lines(2000, np.random.default_rng(99))
    knowledge = Knowledge.from_texts({"1": other[::2], "2": other[1::2]})
    return Emissions([str(i) for i in range(lines)], log_probs, tuple(SYMBOLS), 0, domains, texts), knowledge


def read(source: str | None, split: str = "test") -> tuple[Emissions, Knowledge]:
    """Emissions of real or made-up lines with references, and what is known of them."""
    if source is None:
        return made_up(MADE_UP)
    from fada.data.source import read_lines
    from fada.models.registry import load_recognizer

    lines = list(read_lines(source))
    texts_of: dict[str, list[str]] = {}
    for line in lines:
        if line.split in (None, "train"):
            texts_of.setdefault(line.domain or "", []).append(line.text or "")
    search = load_recognizer("french").search([line for line in lines if line.split in (None, split)])
    if not isinstance(search, BeamSearch):
        raise TypeError("the built-in French model gives emissions")
    return search.emissions, Knowledge.from_texts(texts_of)


def ours(data: Emissions, lines: Sequence[np.ndarray], **settings: Any) -> Decode:
    """Our search of all lines in one call."""
    decoder = CTCBeamDecoder(data.symbols, data.blank, threads=1, **settings)
    return lambda: [found[0].text for found in decoder.decode_batch(lines)]


def fast_ctc_decode(data: Emissions, lines: Sequence[np.ndarray], beam: int) -> Decode:
    """fast-ctc-decode, which leaves out classes below 1e-3; it wants the blank first and one character for a class."""
    from fast_ctc_decode import beam_search

    order = [data.blank, *(c for c in range(len(data.symbols)) if c != data.blank)]
    names = "".join(chr(0xE000 + i) for i in range(len(order)))
    written = {ord(name): data.symbols[c] for name, c in zip(names, order, strict=True)}
    # It wants probabilities; their exponentials are no part of its time.
    sorted_lines = [np.exp(np.ascontiguousarray(line[:, order])) for line in lines]
    return lambda: [
        beam_search(line, names, beam_size=beam, beam_cut_threshold=1e-3)[0].translate(written) for line in sorted_lines
    ]


def write_arpa(model: CharNgram, path: Path) -> None:
    """Write a model of one component as an ARPA file, a word for each character."""
    (component,) = model.components
    words = {UNKNOWN: "<unk>", END: "</s>"} | {i: SPACE if c == " " else c for c, i in component.identities.items()}
    depths, arcs = component.depths, zip(component.character, component.log_prob, component.target, strict=True)
    of_state = np.repeat(np.arange(len(component.suffix)), np.diff(component.first)).tolist()
    contexts: dict[int, tuple[str, ...]] = {0: (), component.start: ("<s>",)}
    written: dict[tuple[str, ...], tuple[float, float]] = {("<s>",): (-99.0, component.backoff[component.start])}
    each = list(zip(of_state, arcs, strict=True))
    for state, (character, log_prob, target) in sorted(each, key=lambda arc: int(depths[arc[0]])):
        gram = (*contexts[state], words[character])
        longer = depths[target] == len(gram)
        if longer:
            contexts[target] = gram
        written[gram] = log_prob, component.backoff[target] if longer else 0.0
    with path.open("w", encoding="utf-8") as file:
        orders = [[gram for gram in written if len(gram) == n] for n in range(1, model.order + 1)]
        file.write("\\data\\\n" + "".join(f"ngram {n}={len(grams)}\n" for n, grams in enumerate(orders, 1)))
        for n, grams in enumerate(orders, 1):
            file.write(f"\n\\{n}-grams:\n")
            for gram in grams:
                log_prob, backoff = (value / math.log(10) for value in written[gram])
                file.write(f"{log_prob:.7f}\t{' '.join(gram)}" + (f"\t{backoff:.7f}\n" if n < model.order else "\n"))
        file.write("\n\\end\\\n")


def flashlight(data: Emissions, lines: Sequence[np.ndarray], beam: int, arpa: Path, weight: float) -> Decode:
    """flashlight-text with KenLM over characters, its 20 best classes in every frame; paths are merged by log-add."""
    from flashlight.lib.text.decoder import CriterionType, LexiconFreeDecoder, LexiconFreeDecoderOptions
    from flashlight.lib.text.decoder.kenlm import KenLM
    from flashlight.lib.text.dictionary import Dictionary

    names = Dictionary()
    for c, symbol in enumerate(data.symbols):
        names.add_entry("<blank>" if c == data.blank else SPACE if symbol == " " else symbol, c)
    settings = LexiconFreeDecoderOptions(
        beam_size=beam,
        beam_size_token=20,
        beam_threshold=25.0,
        lm_weight=weight * math.log(10),  # it counts in decimal logarithms
        sil_score=0.0,
        log_add=True,
        criterion_type=CriterionType.CTC,
    )
    decoder = LexiconFreeDecoder(settings, KenLM(str(arpa), names), data.blank, data.blank, [])

    def decode() -> list[str]:
        texts = []
        for line in lines:
            path = np.array(decoder.decode(line.ctypes.data, *line.shape)[0].tokens)
            kept = path[np.flatnonzero(np.diff(path, prepend=-1))]
            texts.append("".join(data.symbols[c] for c in kept if c not in (-1, data.blank)))
        return texts

    return decode


def with_the_same_model(data: Emissions, model: CharNgram, kind: str, rounds: int) -> Iterator[Row]:
    """Searches with a language model against one of flashlight-text, of the same ARPA file."""
    weight, some = 0.5, data.log_probs[::WITH_MODEL]
    with tempfile.TemporaryDirectory() as folder:
        arpa = Path(folder) / "characters.arpa"
        write_arpa(model, arpa)
        for beam in (5, 25, 100):
            mine = ours(data, some, beam_size=beam, lm=CharNgram.from_arpa(arpa), lm_weight=weight)
            try:
                peer = flashlight(data, some, beam, arpa, weight)
            except ImportError:
                return
            same = np.mean([a == b for a, b in zip(mine(), peer(), strict=True)])
            told = f"flashlight-text, the same 6-gram, {100 * same:.0f} % the same text"
            yield Row(f"search with a 6-gram, beam {beam}, {kind}", told, *alternating(mine, peer, rounds), "5")


def against_earlier(data: Emissions, model: CharNgram, kind: str, options: Options) -> Iterator[Row]:
    """Searches against plain search by an earlier commit of the program, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        arpa, stored = work / "characters.arpa", work / "emissions.npz"
        write_arpa(model, arpa)
        data.save(stored)
        now, earlier = REPOSITORY / "src", checked_out(options.base, work / "earlier") / "src"
        models: tuple[list[str], ...] = ([], [str(arpa)])
        for beam in GOALS:
            found = [
                [told_by(at, SECONDS, str(stored), str(beam), *lm) for at in (now, earlier) for lm in models]
                for _ in range(options.rounds)
            ]
            plain, with_model, plain_then, with_model_then = zip(*found, strict=True)
            for what, ours, against, theirs, goal in (
                ("plain search", plain, "plain search", plain_then, ""),
                ("search with a 6-gram", with_model, "the same", with_model_then, ""),
                ("search with a 6-gram", with_model, "plain search", plain_then, f"{1 / 1.8:.2f}"),
            ):
                ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
                yield Row(f"{what}, beam {beam}, {kind}", f"{against}, commit {options.base}", ratios, ours, goal)


def rows(options: Options) -> Iterator[Row]:
    """Every comparison."""
    data, knowledge = read(options.lines)
    kind = "made-up lines" if options.lines is None else "real lines"
    lines = data.log_probs
    domain = next(iter(knowledge.domain_lms))
    target, mixed = knowledge.target_of(domain), knowledge.lm_of("domain", domain)
    first = (data.domains or [""])[0]
    of_first = [line for line, name in zip(lines, data.domains or [""] * len(data), strict=True) if name == first]
    for beam, goal in GOALS.items():
        # How sure the recogniser is differs by domain, and with it the time of a decoder that cuts by probability.
        for some, which, aim in ((lines, kind, goal), (of_first, f"{kind}, domain {first}", "")):
            plain = ours(data, some, beam_size=beam)
            try:
                peer = fast_ctc_decode(data, some, beam)
            except ImportError:
                continue
            same = np.mean([a == b for a, b in zip(plain(), peer(), strict=True)])
            told = f"fast-ctc-decode, {100 * same:.0f} % the same text"
            yield Row(f"search, beam {beam}, {which}", told, *alternating(plain, peer, options.rounds), aim)
    plain = ours(data, lines, beam_size=5)
    one = CTCBeamDecoder(data.symbols, data.blank, threads=1)
    others: dict[str, tuple[Decode, str]] = {
        "line by line": (lambda: [one.decode(line)[0].text for line in lines], "at most 1.3"),
        "with a 6-gram": (ours(data, lines, lm=knowledge.global_lm, lm_weight=0.5, length_bonus=0.5), "at most 1.8"),
        "with two mixed 6-grams": (ours(data, lines, lm=mixed, lm_weight=0.5, length_bonus=0.5), ""),
        "guided, λ 0.5": (ours(data, lines, target=target), ""),
        "prior correction, weight 2": (
            ours(data, lines, target=target, lam=1.0, prior=knowledge.prior, prior_weight=2.0),
            "",
        ),
        "guided, λ 0.05, aligned_w2, scale 100": (
            ours(data, lines, target=target, lam=0.05, scale=100.0, distance="aligned_w2"),
            "",
        ),
    }
    for name, (other, wanted) in others.items():
        yield Row(f"search, beam 5, {kind}", name, *alternating(plain, other, options.rounds), wanted)
    if knowledge.global_lm is not None:
        yield from against_earlier(data, knowledge.global_lm, kind, options)
        yield from with_the_same_model(data, knowledge.global_lm, kind, options.rounds)
    yield tuning(BeamSearch(data, knowledge, threads=1), kind)


def tuning(search: BeamSearch, kind: str) -> Row:
    """Tuning by rescoring against every setting decoded; says whether the choice is the same."""
    chosen: dict[bool, Weights] = {}

    def choose(exact: bool) -> None:
        chosen[exact] = tune(search, Tuning(exact=exact)).weights

    found = alternating(lambda: choose(False), lambda: choose(True), rounds=1)
    same = "the same choice" if chosen[False] == chosen[True] else f"another choice, {chosen[True].name}"
    return Row(f"tuning, full grid, {kind}", f"every setting decoded, {same}", *found, "10")


def end_of_line(source: str) -> None:
    """Print the CER without and with the end of the line, and the paired difference with its standard error."""
    data, knowledge = read(source, "validation")
    references = data.references or []
    length = sum(map(len, references))
    for beam, weight in itertools.product((5, 25), (0.3, 0.5)):
        settings = {"lm": knowledge.global_lm, "lm_weight": weight, "length_bonus": 1.5 * weight}
        decoder = CTCBeamDecoder(data.symbols, data.blank, beam, threads=1, **settings)  # type: ignore[arg-type]
        edits = [
            np.array([Levenshtein.distance(found[0].text, text) for found, text in zip(read_, references, strict=True)])
            for read_ in (decoder.replace(lm_end=end).decode_batch(data.log_probs) for end in (False, True))
        ]
        without, with_end = (100 * x.sum() / length for x in edits)
        se = 100 / length * (edits[1] - edits[0]).std() * len(references) ** 0.5
        print(f"beam {beam}, weight {weight}: {without:.3f} and {with_end:.3f} %, {with_end - without:+.3f} ± {se:.3f}")


if __name__ == "__main__":
    end_of_line(sys.argv[1])
