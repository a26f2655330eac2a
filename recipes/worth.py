"""The constants of `fada worth`: predicted against real error rates, and what text is worth, on other manuscripts.

    python recipes/worth.py DATA

Both built-in models on manuscripts that are not in `recipes/unseen.yaml`, at most 24 lines of each. French, which saw
none of them: the training lines of `latin_script`. Medieval: other pages than it was trained on (test lines of
`latin_script` and of `catmus_fr`; at least 10 lines). Text is worth what it brings the French model, with text of
other manuscripts in the language alone: training lines, and files of `texts` that do not name the manuscript.
"""

import math
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
import yaml
from unseen import text_sources

from fada import load_recognizer, read_lines
from fada.data.line import Line
from fada.decoding.defaults import certainty_of, weights_for
from fada.decoding.emissions import Emissions
from fada.decoding.knowledge import Knowledge
from fada.decoding.search import BeamSearch
from fada.decoding.weights import Weights
from fada.evaluation.edits import score_lines
from fada.experiments.worth import doubts
from fada.models.ctc import CTCRecognizer

MOST = 24
LEAST = {"french": 24, "medieval": 10}
ENOUGH = 2000
"""Characters of text below which its worth is not measured."""
Lines = dict[tuple[str, str], list[Line]]


def manuscripts(paths: list[Path], least: int) -> Lines:
    """Lines by language and manuscript, evenly drawn."""
    listed = yaml.safe_load((Path(__file__).parent / "unseen.yaml").read_text(encoding="utf-8"))
    unseen = {one["manuscript"] for group in listed.values() for one in group}
    of: Lines = defaultdict(list)
    for path in paths:
        for line in read_lines(path):
            of[str(line.extra.get("language") or "fr"), str(line.extra["manuscript"])].append(line)
    return {
        key: [lines[i] for i in np.unique(np.linspace(0, len(lines) - 1, MOST).round().astype(int))]
        for key, lines in sorted(of.items())
        if key[1] not in unseen and len(lines) >= least
    }


def texts_without(data: Path, language: str, manuscript: str, of: dict[str, list[Line]]) -> list[str]:
    """Text in a language in whose sources the manuscript does not occur."""
    found = [str(line.text) for name, lines in of.items() if name != manuscript for line in lines]
    for file, sources in text_sources(data / "texts" / "README.md").items():
        if file.startswith(f"{language}-") and manuscript not in sources:
            found += (data / "texts" / file).read_text(encoding="utf-8").splitlines()
    return found


def cer(emissions: Emissions, texts: list[str]) -> float:
    """In percent."""
    assert emissions.references is not None
    return score_lines(emissions.references, texts).rates()["cer"]


def main(data: Path) -> None:
    """Print the points, the fit and the gains."""
    torch.set_num_threads(1)
    script = data / "latin_script"
    everything: dict[str, dict[str, list[Line]]] = defaultdict(lambda: defaultdict(list))
    for line in read_lines(script / "train.parquet").without_media():
        everything[str(line.extra["language"])][str(line.extra["manuscript"])].append(line)
    sets = {
        "french": manuscripts([script / "train.parquet"], LEAST["french"]),
        "medieval": manuscripts([script / "test.parquet", data / "catmus_fr" / "test.parquet"], LEAST["medieval"]),
    }
    points, gains = [], []
    print("| model | manuscript | doubt | CER | with text |\n|---|---|---|---|---|")
    for model, chosen in sets.items():
        recognizer = load_recognizer(model)
        assert isinstance(recognizer, CTCRecognizer)
        for (language, name), lines in chosen.items():
            emissions = recognizer.emit(lines)
            doubt, characters, _ = doubts(emissions)
            mean = float(doubt.sum() / characters.sum())
            plain = cer(emissions, BeamSearch(emissions).choose(Weights(beam=16)))
            points.append((math.log(mean), math.log(plain)))
            told = ""
            texts = texts_without(data, language, name, everything[language]) if model == "french" else []
            if sum(map(len, texts)) >= ENOUGH:
                known = Knowledge.from_texts(texts, name=language)
                weights = weights_for(known.characters, certainty_of(emissions.log_probs))
                better = cer(emissions, BeamSearch(emissions, known).choose(weights))
                gains.append(math.log(better / plain))
                told = f"{better:.2f}"
            print(f"| {model} | {name} | {mean:.4f} | {plain:.2f} | {told} |")
    x, y = np.array(points).T
    slope, intercept = np.polyfit(x, y, 1)
    spread = float(np.std(y - intercept - slope * x, ddof=2))
    print(f"\nINTERCEPT, SLOPE, SPREAD = {intercept:.3f}, {slope:.3f}, {spread:.3f}")
    print(f"correlation of the logarithms: {np.corrcoef(x, y)[0, 1]:.3f}, {len(points)} manuscripts")
    print(f"text: {np.mean(gains):.3f}, {np.std(gains, ddof=1):.3f}, {len(gains)} manuscripts")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
