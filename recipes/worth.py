"""The constants of `fada worth`: predicted against real error rates, and what text is worth, on other manuscripts.

    python recipes/worth.py DATA

Both built-in models on manuscripts that are not in `recipes/unseen.yaml`, at most 24 lines of each. French, which saw
none of them: the training lines of `latin_script`. Medieval: other pages than it was trained on (validation and test
lines of `latin_script` and of `catmus_fr`; at least 10 lines). The law is fitted to all of them. Its spread is that of
manuscripts about the law of the *other* model: a manuscript that no law and no model knows is as far off as that, while
about their own law the manuscripts lie closer. Text is worth what it brings either model, with text of other
manuscripts in the language alone: training lines, and files of `texts` that do not name the manuscript. Lines are
looked at as `fada transcribe` does on a CPU: again where the network is unsure of them.
"""

import math
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
import yaml
from medieval import split_of
from unseen import text_sources

from fada import load_recognizer, read_lines
from fada.data.line import Line
from fada.decoding.emissions import Emissions
from fada.decoding.evidence import Automatic
from fada.decoding.knowledge import Knowledge
from fada.decoding.search import BeamSearch
from fada.decoding.weights import Weights
from fada.evaluation.edits import score_lines
from fada.experiments.worth import NORMAL_80, doubts
from fada.models.ctc import CTCRecognizer
from fada.models.folders import resolve
from fada.models.looks import USUAL

MOST = 24
LEAST = {"french": 24, "medieval": 10}
ENOUGH = 2000
"""Characters of text below which its worth is not measured."""
Lines = dict[tuple[str, str], list[Line]]


LISTED = yaml.safe_load((Path(__file__).parent / "unseen.yaml").read_text(encoding="utf-8"))
UNSEEN = {one["manuscript"] for group in LISTED.values() for one in group}


def manuscripts(paths: list[Path], least: int) -> Lines:
    """Lines by language and manuscript, evenly drawn; none of the validation pages that `medieval` learnt from."""
    of: Lines = defaultdict(list)
    for path in paths:
        for line in read_lines(path):
            page = f"{line.extra['manuscript']}/{line.extra['page']}"
            if path.stem != "validation" or split_of("validation", page) == "validation":
                of[str(line.extra.get("language") or "fr"), str(line.extra["manuscript"])].append(line)
    return {
        key: [lines[i] for i in np.unique(np.linspace(0, len(lines) - 1, MOST).round().astype(int))]
        for key, lines in sorted(of.items())
        if key[1] not in UNSEEN and len(lines) >= least
    }


def texts_without(data: Path, language: str, manuscript: str, of: dict[str, list[Line]]) -> list[str]:
    """Text in a language in whose sources the manuscript does not occur."""
    found = [str(line.text) for name, lines in of.items() if name not in {*UNSEEN, manuscript} for line in lines]
    for file, sources in text_sources(data / "texts" / "README.md").items():
        if file.startswith(f"{language}-") and not sources & {*UNSEEN, manuscript}:
            found += (data / "texts" / file).read_text(encoding="utf-8").splitlines()
    return found


def cer(emissions: Emissions, texts: list[str]) -> float:
    """In percent."""
    assert emissions.references is not None
    return score_lines(emissions.references, texts).rates()["cer"]


def residuals(law: list[tuple[float, float]], points: list[tuple[float, float]]) -> np.ndarray:
    """How far off the logarithms of the error rates of `points` are from the law through others."""
    (x, y), (at, value) = np.array(points).T, np.array(law).T
    slope, intercept = np.polyfit(at, value, 1)
    return y - intercept - slope * x


def main(data: Path) -> None:
    """Print the points, the fit and the gains."""
    torch.set_num_threads(1)
    script = data / "latin_script"
    everything: dict[str, dict[str, list[Line]]] = defaultdict(lambda: defaultdict(list))
    for line in read_lines([script / "train.parquet", data / "catmus_fr" / "train.parquet"]).without_media():
        everything[str(line.extra.get("language") or "fr")][str(line.extra["manuscript"])].append(line)
    sets = {
        "french": manuscripts([script / "train.parquet"], LEAST["french"]),
        "medieval": manuscripts(
            [
                folder / f"{split}.parquet"
                for folder in (script, data / "catmus_fr")
                for split in ("validation", "test")
            ],
            LEAST["medieval"],
        ),
    }
    points: dict[str, list[tuple[float, float]]] = defaultdict(list)
    gains = []
    print("| model | manuscript | doubt | CER | with text |\n|---|---|---|---|---|")
    for model, chosen in sets.items():
        recognizer = load_recognizer(model)
        assert isinstance(recognizer, CTCRecognizer)
        recognizer.use_looks(USUAL)
        for (language, name), lines in chosen.items():
            emissions = recognizer.emit(lines)
            doubt, characters, _ = doubts(emissions)
            mean = float(doubt.sum() / characters.sum())
            plain = cer(emissions, BeamSearch(emissions).choose(Weights(beam=16)))
            points[model].append((math.log(mean), math.log(plain)))
            told = ""
            texts = texts_without(data, language, name, everything[language])
            if sum(map(len, texts)) >= ENOUGH:
                known = Automatic(given=Knowledge.from_texts(texts, name=language).for_model(resolve(model)))
                weights = known.decide(emissions.alphabet, emissions.log_probs).weights
                better = cer(emissions, BeamSearch(emissions, known.given).choose(weights))
                gains.append(math.log(better / plain))
                told = f"{better:.2f}"
            print(f"| {model} | {name} | {mean:.4f} | {plain:.2f} | {told} |")
    x, y = np.array([point for model in points for point in points[model]]).T
    slope, intercept = np.polyfit(x, y, 1)
    off = np.concatenate([residuals(points[other], points[model]) for model in points for other in {*points} - {model}])
    spread = float(np.sqrt(np.mean(off**2)))
    print(f"\nINTERCEPT, SLOPE, SPREAD = {intercept:.3f}, {slope:.3f}, {spread:.3f}")
    print(f"correlation of the logarithms: {np.corrcoef(x, y)[0, 1]:.3f}, {len(x)} manuscripts")
    own = np.concatenate([residuals(each, each) for each in points.values()])
    inside = np.mean(np.abs(off) <= NORMAL_80 * spread)
    print(f"spread about the law of the same model: {np.sqrt(np.mean(own**2)):.3f}; 80 % interval holds {inside:.0%}")
    print(f"text: {np.mean(gains):.3f}, {np.std(gains, ddof=1):.3f}, {len(gains)} manuscripts")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
