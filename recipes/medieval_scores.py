"""Error rates of models on lines that `medieval` did not learn from: best path and beam search without any knowledge,
and as `fada transcribe` reads a manuscript, with the language that is found.

    python recipes/medieval_scores.py DATA MODEL... [-o scores.json] [--manuscripts LANGUAGE] [--looks 5]

Prints CER in percent of every manuscript of the arena and the demo (`recipes/unseen.yaml`), of the other pages of seen
manuscripts (test split of latin_script without them), and of the French test lines. With `--manuscripts la` only of the
other pages in this language, one row for each manuscript, the worst first, with its share of all errors. With
`--looks 5` every line is looked at five times, with `--looks auto` those that the network is unsure of, as `fada
transcribe` does. The last row is the CPU time of straightening and network.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
import yaml

from fada import load_recognizer, read_lines
from fada.data.line import Line
from fada.decoding.ctc import CTCBeamDecoder
from fada.decoding.evidence import Automatic
from fada.decoding.knowledge import knowledge_of_model
from fada.decoding.search import BeamSearch
from fada.evaluation.edits import score_lines
from fada.models.ctc import CTCRecognizer
from fada.models.folders import resolve
from fada.models.looks import Looks

BEAM = 20
KINDS = ("greedy", f"beam {BEAM}", "language found")


def line_sets(data: Path) -> dict[str, list[Line]]:
    """The lines of each row."""
    listed = yaml.safe_load((Path(__file__).parent / "unseen.yaml").read_text(encoding="utf-8"))
    arena = [one["manuscript"] for one in listed["arena"]]
    demo = [one["manuscript"] for one in listed["demo"]]
    of: dict[str, list[Line]] = {name: [] for name in (*arena, *demo)}
    seen: list[Line] = []
    for split in ("train", "validation", "test"):
        for line in read_lines(data / "latin_script" / f"{split}.parquet"):
            if line.extra["manuscript"] in of:
                of[str(line.extra["manuscript"])].append(line)
            elif split == "test":
                seen.append(line)
    rows = {f"arena {name}": of[name] for name in arena} | {f"demo {name}": of[name] for name in demo}
    for language in sorted({str(line.extra["language"]) for line in seen}):
        rows[f"seen {language}"] = [line for line in seen if line.extra["language"] == language]
    french = list(read_lines(data / "catmus_fr" / "test.parquet"))
    for century in sorted({str(line.extra["century"]) for line in french}):
        rows[f"french {century}"] = [line for line in french if line.extra["century"] == century]
    return rows


def cers(recognizer: CTCRecognizer, known: Automatic, lines: Sequence[Line]) -> dict[str, float]:
    """CER in percent of each of `KINDS`."""
    decoder = CTCBeamDecoder(recognizer.symbols, blank=recognizer.blank, beam_size=BEAM)
    references: list[str] = []
    read: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name in dict.fromkeys(line.extra["manuscript"] for line in lines):
        manuscript = [line for line in lines if line.extra["manuscript"] == name]
        emissions = recognizer.emit(manuscript)
        frames = emissions.log_probs
        decision = known.decide(emissions.alphabet, frames)
        found = BeamSearch(emissions, decision.knowledge).choose(decision.weights)
        greedy = [decoder.greedy(scores).text for scores in frames]
        beam = [nbest[0].text for nbest in decoder.decode_batch(frames)]
        references += [str(line.text) for line in manuscript]
        for kind, texts in zip(KINDS, (greedy, beam, found), strict=True):
            read[kind] += texts
    return {kind: score_lines(references, texts).rates()["cer"] for kind, texts in read.items()}


def print_manuscripts(recognizer: CTCRecognizer, lines: Sequence[Line]) -> None:
    """What each manuscript adds to the errors in its language, by beam search."""
    frames = recognizer.emit(lines).log_probs
    decoder = CTCBeamDecoder(recognizer.symbols, blank=recognizer.blank, beam_size=BEAM)
    read = [found[0].text for found in decoder.decode_batch(frames)]
    scored = score_lines([str(line.text) for line in lines], read)
    names = np.array([str(line.extra["manuscript"]) for line in lines])
    sizes = np.array([len(str(line.text)) for line in lines])
    rates = {name: float(scored.rates(names == name)["cer"]) for name in dict.fromkeys(names.tolist())}
    errors = {name: rate / 100 * sizes[names == name].sum() for name, rate in rates.items()}
    print("| manuscript | lines | CER | share of the errors |\n|---|---|---|---|")
    for name in sorted(rates, key=lambda name: -errors[name]):
        share = errors[name] / sum(errors.values())
        print(f"| {name} | {(names == name).sum()} | {rates[name]:.1f} | {share:.0%} |")
    print(f"| all | {len(lines)} | {scored.rates()['cer']:.2f} | |")


def opened(model: str, looks: Looks) -> CTCRecognizer:
    """A model that looks so often at every line."""
    recognizer = load_recognizer(model)
    assert isinstance(recognizer, CTCRecognizer)
    recognizer.use_looks(looks)
    return recognizer


def milliseconds(recognizer: CTCRecognizer, lines: Sequence[Line]) -> float:
    """CPU time of the emissions of a line, those of all threads."""
    before = time.process_time()
    recognizer.emit(lines)
    return 1000 * (time.process_time() - before) / len(lines)


def main(
    data: Path,
    models: list[str],
    out: Annotated[Path | None, typer.Option("--out", "-o")] = None,
    manuscripts: str | None = None,
    looks: str = "1",
) -> None:
    """Print the table."""
    rows = line_sets(data)
    often: Looks = "auto" if looks == "auto" else int(looks)
    if manuscripts:
        for model in models:
            recognizer = opened(model, often)
            print_manuscripts(recognizer, rows[f"seen {manuscripts}"])
        return
    groups = {name: [row for row in rows if row.startswith(name)] for name in ("arena", "seen", "french")}
    pooled = {f"{name}: all lines": [line for row in chosen for line in rows[row]] for name, chosen in groups.items()}
    found = {}
    for model in models:
        recognizer, known = opened(model, often), Automatic(knowledge_of_model(resolve(model)))
        scores = {name: cers(recognizer, known, lines) for name, lines in (rows | pooled).items()}
        for name, chosen in groups.items():
            means = {kind: float(np.mean([scores[row][kind] for row in chosen])) for kind in KINDS}
            scores[f"{name}: mean of rows"] = means
        found[model] = scores
    sizes = {name: len(lines) for name, lines in (rows | pooled).items()}
    sizes |= {f"{name}: mean of rows": sizes[f"{name}: all lines"] for name in groups}
    head = " | ".join(f"{model}: {' | '.join(KINDS)}" for model in models)
    print(f"| | lines | {head} |\n|---|---|" + "---|" * len(KINDS) * len(models))
    for name in next(iter(found.values())):
        cells = [f"{found[model][name][kind]:.2f}" for model in models for kind in KINDS]
        print(f"| {name} | {sizes[name]} | {' | '.join(cells)} |")
    timed = rows[groups["seen"][0]][:64]
    times = [f"{milliseconds(opened(model, often), timed):.0f}" + " | " * (len(KINDS) - 1) for model in models]
    print(f"| CPU milliseconds a line | {len(timed)} | {' | '.join(times)} |")
    if out:
        out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
