"""Can a model learn from lines that nobody corrected? The measurement behind the answer in `docs/adapting.md`.

    python recipes/unlabelled.py DATA

The French model on the manuscripts of `recipes/adapt_settings.py`: at most 48 lines of other pages than the test are
read with a language model of other manuscripts in the language, and the model is fine-tuned on what was read, as
`fada adapt` does on corrected lines: on all lines, and on the half of them of which plain reading and reading with text
agree most, the most certain first. Spans of the lines are hidden while it learns, French lines are shown again.
"""

import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from adapt_settings import MODEL, TESTED, manuscripts
from rapidfuzz.distance import Levenshtein
from worth import texts_without

from fada import read_lines
from fada.data.line import Line
from fada.decoding.defaults import certainty_of, weights_for
from fada.decoding.knowledge import Knowledge
from fada.decoding.search import BeamSearch
from fada.decoding.weights import Weights
from fada.evaluation.edits import score_lines
from fada.experiments.division import divided, drawn
from fada.models import registry
from fada.models.ctc import CTCRecognizer
from fada.training.folds import AdaptSettings, fine_tune

MOST, HIDDEN = 48, 0.15


def rates(recognizer: CTCRecognizer, lines: list[Line], known: Knowledge) -> tuple[float, float]:
    """CER in percent, plain and with text."""
    plain, text, _ = readings(recognizer, lines, known)
    references = [str(line.text) for line in lines]
    return score_lines(references, plain).rates()["cer"], score_lines(references, text).rates()["cer"]


def readings(
    recognizer: CTCRecognizer, lines: list[Line], known: Knowledge
) -> tuple[list[str], list[str], list[float]]:
    """Plain, with text, and how certain the recogniser is of each line."""
    emissions = recognizer.emit(lines)
    certainty = [certainty_of([scores]) for scores in emissions.log_probs]
    search = BeamSearch(emissions, known)
    weights = weights_for(known.characters, certainty_of(emissions.log_probs))
    return search.choose(Weights(beam=weights.beam)), search.choose(weights), certainty


def main(data: Path) -> None:
    """Print a row for each manuscript and way."""
    torch.set_num_threads(1)
    of: dict[str, dict[str, list[Line]]] = defaultdict(lambda: defaultdict(list))
    for line in read_lines(data / "latin_script" / "train.parquet").without_media():
        of[str(line.extra["language"])][str(line.extra["manuscript"])].append(line)
    replay = drawn(list(read_lines(data / "catmus_fr" / "train.parquet")), 80, 0)
    settings = AdaptSettings(hidden=HIDDEN, epochs=5, fewest_steps=60)
    print("| manuscript | plain → | with text → |\n|---|---|---|")
    for name, lines in manuscripts(data).items():
        language = str(lines[0].extra["language"])
        known = Knowledge.from_texts(texts_without(data, language, name, of[language]), name=language)
        test, pool = divided(lines, TESTED)
        waiting, test = pool[:MOST], test[:TESTED]
        before = registry.load_network(MODEL)
        assert isinstance(before, CTCRecognizer)
        old = rates(before, test, known)
        plain, text, certainty = readings(before, waiting, known)
        agreement = [-Levenshtein.normalized_distance(a, b) for a, b in zip(plain, text, strict=True)]
        order = np.lexsort((-np.array(certainty), -np.array(agreement)))
        labelled = [replace(line, text=read) for line, read in zip(waiting, text, strict=True)]
        for way, chosen in {"all": labelled, "half": [labelled[i] for i in order[: len(order) // 2]]}.items():
            after = registry.build(MODEL, [str(line.text) for line in chosen])
            assert isinstance(after, CTCRecognizer)
            fine_tune(after, chosen, replay, settings, 0)
            new = rates(after, test, known)
            print(f"| {name}, {way} | {old[0]:.2f} → {new[0]:.2f} | {old[1]:.2f} → {new[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
