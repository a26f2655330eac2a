"""The knowledge that comes with `medieval`, and the figures that its defaults come from.

    python recipes/knowledge.py build DATA LINES OUT
    python recipes/knowledge.py weights DATA LINES EMISSIONS.npz... [-o table.json]
    python recipes/knowledge.py over DATA LINES EMISSIONS.npz... [--learnt LANGUAGE]
    python recipes/knowledge.py evidence DATA LINES MODEL EMISSIONS.npz... [--learnt LANGUAGE]

DATA is the folder with `texts`, LINES what `recipes/medieval.py` wrote, OUT the folder `knowledge` of the model.

`build` writes a `.fada` file for each language, and for each of its centuries with enough text, from the training and
validation lines and those files of `texts` that name no manuscript of `recipes/unseen.yaml`; and what the model was
trained on, the training lines alone.

`weights` decodes manuscripts that are not in `recipes/unseen.yaml` with language models of 2,000 characters and more of
their language, never of the manuscript itself, at several weights: the table from which the constants of
`fada.decoding.defaults` come. `over` does so at the default weights with all text of the language, with and without
the validation lines, for several shares of what the recogniser has learnt that are divided out
(`fada.decoding.knowledge.OVER`), several weights and length bonuses; each is compared with the row `FORMER` by a paired
randomisation over manuscripts, and the last row is what the others of a manuscript would have chosen for it. With
`--learnt fr` for emissions of a model that was trained on the French lines alone. `evidence` tells which
language and century each manuscript is found to be in by the knowledge of
MODEL, made anew without the manuscript itself, and the error rates without and with that; manuscripts that are the only
one of their language are left out. EMISSIONS are what `fada emit` stores of lines called `…/manuscript/page/line`.
"""

import argparse
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from medieval import SIGN_SEMICOLON, SMALL_ET, unseen

from fada.decoding.ctc import CTCBeamDecoder
from fada.decoding.defaults import BEAM, certainty_of, weights_for
from fada.decoding.emissions import Emissions
from fada.decoding.evidence import Automatic
from fada.decoding.knowledge import TRAINING, TRAINING_PAIRS, About, Knowledge, knowledge_of_model, write_knowledge
from fada.decoding.lm import CharNgram
from fada.decoding.search import BeamSearch
from fada.decoding.weights import Weights
from fada.evaluation.edits import score_lines
from fada.models.folders import resolve
from fada.targets.target_set import TargetSet

HERE = Path(__file__).parent
ENOUGH = 20_000
"""Characters of a century that give it a file of its own."""
CREMMA_16 = "Thibault Clérice, Alix Chagué, Anaïs Mazoue. *CREMMA MSS 16*. github.com/HTR-United/CREMMA-MSS-16"
"""Whom to name for the letters of the 16th century among the texts, beside those of the lines."""
ORDER, SMOOTHING = 6, "kneser-ney"
FOLDS = 5
FLIPS = 20_000
"""Of signs, for a paired test."""
LINES_PER_MANUSCRIPT, FEWEST_LINES = 16, 6
SIZES = (2_000, 8_000, 30_000, 10**9)
WEIGHTS = (0.1, 0.2, 0.3, 0.45, 0.6, 0.8)
BONUS = 1.8
FORMER = (False, 0.4, 1.2, 1.2)
OVERS = (
    FORMER,
    (False, 0.4, 1.45, 1.2),
    (True, 0.0, 1.0, 1.8),
    (True, 0.4, 1.2, 1.2),
    (True, 0.4, 1.45, 1.2),
    (True, 0.4, 1.7, 1.2),
)
"""Whether with the validation lines, share of what the recogniser has learnt, times the default weight without that,
length bonus per weight."""


@dataclass(frozen=True)
class Body:
    """Lines of one manuscript, or of a file of `texts` with several."""

    domain: str
    manuscripts: frozenset[str]
    lines: list[str]
    learnt: list[str] = field(default_factory=list)
    """Those of the lines that the model has learnt to read."""

    @property
    def language(self) -> str:
        """Code of its language."""
        return self.domain.partition("-")[0]


def bodies(data: Path, lines: Path, *, validation: bool = True) -> list[Body]:
    """All text that may be used, with the validation lines or without."""
    left_out = unseen()
    learnt: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in pq.read_table(lines / "train.parquet", columns=["text", "domain", "manuscript"]).to_pylist():
        learnt[row["domain"], row["manuscript"]].append(row["text"])
    found = defaultdict(list, {key: list(texts) for key, texts in learnt.items()})
    for name in ("catmus_fr", "latin_script") if validation else ():
        for row in pq.read_table(data / name / "validation.parquet").drop_columns("image").to_pylist():
            if row["manuscript"] not in left_out:
                domain = f"{row.get('language') or 'fr'}-{row['century']}"
                found[domain, row["manuscript"]].append(row["text"].replace(SIGN_SEMICOLON, SMALL_ET))
    result = [Body(key[0], frozenset([key[1]]), texts, learnt.get(key, [])) for key, texts in found.items()]
    trained = {domain.partition("-")[0] for domain, _ in found}
    for row in (data / "texts" / "README.md").read_text(encoding="utf-8").splitlines():
        if match := re.match(r"\| `([\w-]+)\.txt` \| \d+ \|.*\| (.*) \|$", row):
            domain, sources = match[1], frozenset(re.findall(r"`([^`]+)`", match[2]))
            if not sources & left_out and domain.partition("-")[0] in trained:
                text = (data / "texts" / f"{domain}.txt").read_text(encoding="utf-8")
                result.append(Body(domain, sources, text.splitlines()))
    assert not {name for body in result for name in body.manuscripts} & left_out
    return sorted(result, key=lambda body: (body.domain, sorted(body.manuscripts)))


def build(data: Path, lines: Path, out: Path) -> None:
    """Write the files, and tell what is in them."""
    every = bodies(data, lines)
    named = (HERE / "medieval.credits.md").read_text(encoding="utf-8").partition("\n* ")[2].partition("\n\n")[0]
    credits_ = [*(" ".join(one.split()) for one in named.split("\n* ")), CREMMA_16]
    texts = [text for body in every for text in body.learnt]
    out.mkdir(parents=True, exist_ok=True)
    TargetSet.from_texts({"medieval": texts}).save(out / TRAINING)
    CharNgram.train(texts, 2, SMOOTHING).save(out / TRAINING_PAIRS)
    domains = [*sorted({body.language for body in every}), *sorted({body.domain for body in every})]
    for name in domains:
        chosen = [body for body in every if name in (body.language, body.domain)]
        own = [text for body in chosen for text in body.lines]
        language, _, century = name.partition("-")
        if century and sum(map(len, own)) < ENOUGH:
            continue
        known = Knowledge.from_texts(own, targets_of(chosen), name=name, order=ORDER, smoothing=SMOOTHING)
        about = About(
            name=name,
            language=language,
            century=int(century) if century else None,
            characters=known.characters,
            bits=held_out_bits(chosen) or known.about.bits,
            sources=tuple(sorted({manuscript for body in chosen for manuscript in body.manuscripts})),
            credits=tuple(credits_),
            licence="CC BY 4.0",
        )
        path = out / f"{name}.fada"
        write_knowledge(Knowledge(known.targets, known.prior, known.global_lm, about=about), path, small=True)
        print(f"{name}: {known.characters} characters, {about.bits:.2f} bits, {path.stat().st_size} bytes", flush=True)


def targets_of(chosen: Sequence[Body]) -> TargetSet:
    """Character frequencies by century."""
    texts = defaultdict[str, list[str]](list)
    for body in chosen:
        texts[body.domain] += body.lines
    return TargetSet.from_texts(texts)


def held_out_bits(chosen: Sequence[Body]) -> float | None:
    """Bits per character of manuscripts under a model of the others; None if there is but one."""
    if len(chosen) < 2:
        return None
    bits = characters = 0.0
    for fold in range(min(FOLDS, len(chosen))):
        others = [text for i, body in enumerate(chosen) if i % FOLDS != fold for text in body.lines]
        model = CharNgram.train(others, ORDER, SMOOTHING)
        for i, body in enumerate(chosen):
            if i % FOLDS == fold:
                bits -= sum(model.log_prob(text, end=True) for text in body.lines) / np.log(2)
                characters += sum(len(text) + 1 for text in body.lines)
    return round(bits / characters, 4)


@dataclass(frozen=True)
class Document:
    """Lines of a manuscript with their emissions."""

    manuscript: str
    domain: str
    references: list[str]
    log_probs: list[np.ndarray]

    def cer(self, texts: Sequence[str]) -> float:
        """In percent."""
        return score_lines(self.references, texts).rates()["cer"]

    def decoded_cer(self, decoder: CTCBeamDecoder) -> float:
        """In percent, of what a decoder reads."""
        return self.cer([best[0].text for best in decoder.decode_batch(self.log_probs)])


def documents(emissions: Emissions) -> Iterator[Document]:
    """Some lines of every manuscript that may be looked at."""
    left_out, found = unseen(), defaultdict[tuple[str, str], list[int]](list)
    for i, line in enumerate(emissions.ids):
        found[line.split("/")[-3], (emissions.domains or [])[i]].append(i)
    for (manuscript, domain), rows in sorted(found.items()):
        if manuscript in left_out or len(rows) < FEWEST_LINES:
            continue
        random.Random(manuscript).shuffle(rows)
        rows = rows[:LINES_PER_MANUSCRIPT]
        references = [str((emissions.references or [])[i]) for i in rows]
        yield Document(manuscript, domain, references, [emissions.log_probs[i] for i in rows])


def study_weights(data: Path, lines: Path, stored: Sequence[Path], out: Path | None) -> None:
    """Relative change of the error rate by weight, amount of text and certainty."""
    every, rows = bodies(data, lines), []
    for path in stored:
        emissions = Emissions.load(path)
        plain = CTCBeamDecoder(emissions.symbols, emissions.blank, BEAM)
        for document in documents(emissions):
            language = document.domain.partition("-")[0]
            text = [
                text
                for body in every
                if body.language == language and document.manuscript not in body.manuscripts
                for text in body.lines
            ]
            random.Random(document.manuscript).shuffle(text)
            before = document.decoded_cer(plain)
            certainty, whole = certainty_of(document.log_probs), sum(map(len, text))
            for size in SIZES:
                ends = np.cumsum([len(each) for each in text])
                if not text or (size > 1.2 * whole and size < SIZES[-1]):
                    continue
                used = text[: int(np.searchsorted(ends, size)) + 1]
                model = CharNgram.train(used, ORDER, SMOOTHING)
                for weight in WEIGHTS:
                    cer = document.decoded_cer(plain.replace(lm=model, lm_weight=weight, length_bonus=BONUS * weight))
                    rows.append(
                        {
                            "emissions": path.stem,
                            "manuscript": document.manuscript,
                            "domain": document.domain,
                            "certainty": round(certainty, 4),
                            "characters": sum(map(len, used)),
                            "weight": weight,
                            "plain": round(before, 3),
                            "cer": round(cer, 3),
                        }
                    )
            if out is not None:
                out.write_text(json.dumps(rows), encoding="utf-8")
    print_weights(rows)


def print_weights(rows: Sequence[dict]) -> None:
    """Mean and worst change in percent, for every weight, by amount of text and certainty."""
    print("| emissions | characters | certainty | manuscripts |" + "".join(f" {w:g} |" for w in WEIGHTS) + " default |")
    print("|---|---|---|---|" + "---|" * (len(WEIGHTS) + 1))
    sizes, bands = (0, 4_000, 15_000, 100_000, 10**9), (0.0, 0.8, 0.87, 0.92, 0.96, 1.01)
    for name in sorted({row["emissions"] for row in rows}):
        for least, most in pairwise(sizes):
            for low, high in pairwise(bands):
                inside = [
                    row
                    for row in rows
                    if row["emissions"] == name
                    and least <= row["characters"] < most
                    and low <= row["certainty"] < high
                    and row["plain"] > 0
                ]
                if not inside:
                    continue
                cells = []
                for weight in WEIGHTS:
                    changes = [100 * (r["cer"] / r["plain"] - 1) for r in inside if r["weight"] == weight]
                    cells.append(f" {np.mean(changes):+.1f} (worst {max(changes):+.0f}) |")
                curves = defaultdict[tuple, dict[float, float]](dict)
                for row in inside:
                    by = (row["manuscript"], row["domain"], row["characters"], row["certainty"])
                    curves[by][row["weight"]] = 100 * (row["cer"] / row["plain"] - 1)
                changes = [
                    float(np.interp(weights_for(by[2], by[3]).lm_weight, (0, *curve), (0, *curve.values())))
                    for by, curve in curves.items()
                ]
                cells.append(f" {np.mean(changes):+.1f} (worst {max(changes):+.0f}) |")
                count = len({row["manuscript"] for row in inside})
                print(f"| {name} | {least}-{most} | {low}-{high} | {count} |" + "".join(cells), flush=True)


def study_over(data: Path, lines: Path, stored: Sequence[Path], learnt: str | None) -> None:
    """Change of the error rate with what the recogniser has learnt divided out: mean of documents, how many gain."""
    every = {validation: bodies(data, lines, validation=validation) for validation in (False, True)}
    rows = []
    for emissions in map(Emissions.load, stored):
        for document in documents(emissions):
            language = document.domain.partition("-")[0]
            others = {key: [b for b in some if document.manuscript not in b.manuscripts] for key, some in every.items()}
            texts = {key: [t for b in some if b.language == language for t in b.lines] for key, some in others.items()}
            if not texts[False]:
                continue
            read = [text for body in others[True] if learnt in (None, body.language) for text in body.learnt]
            assumed = CharNgram.train(read, 2, SMOOTHING)
            models = {key: CharNgram.train(text, ORDER, SMOOTHING) for key, text in texts.items()}
            plain = CTCBeamDecoder(emissions.symbols, emissions.blank, BEAM)
            before = document.decoded_cer(plain)
            row = []
            for validation, share, times, bonus in OVERS:
                characters = sum(map(len, texts[validation]))
                weight = times * weights_for(characters, certainty_of(document.log_probs)).lm_weight
                model = models[validation].over(assumed, share)
                known = plain.replace(lm=model, lm_weight=weight, length_bonus=bonus * weight)
                after = document.decoded_cer(known)
                row.append(100 * (after / max(before, 0.1) - 1))
            rows.append(row)
    print_over(np.array(rows))


def print_over(changes: np.ndarray) -> None:
    """A row for each setting, and one for that which is best on all manuscripts but the one that is read."""
    former, all_but_one = changes[:, OVERS.index(FORMER)], changes.sum(axis=0) - changes
    chosen = changes[np.arange(len(changes)), all_but_one.argmin(axis=1)]
    print(
        "| validation lines | share | times the weight | bonus | documents | change (mean) | standard error | worse "
        "| the worst | against the former | p |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    told = [[str(cell) for cell in setting] for setting in OVERS]
    for setting, values in [*zip(told, changes.T, strict=True), (["best of the others", "", "", ""], chosen)]:
        error, gained = np.std(values, ddof=1) / np.sqrt(len(values)), values - former
        signs = np.random.default_rng(0).choice([-1, 1], (FLIPS, len(values)))
        p = (1 + np.sum(np.abs((signs * gained).mean(axis=1)) >= abs(gained.mean()) - 1e-12)) / (FLIPS + 1)
        cells = [*setting, str(len(values)), f"{values.mean():+.1f} %", f"{error:.1f}", str((values > 0).sum())]
        print(f"| {' | '.join(cells)} | {values.max():+.1f} % | {gained.mean():+.2f} | {p:.3f} |")


def study_evidence(data: Path, lines: Path, model: Path, stored: Sequence[Path], learnt: str | None) -> None:
    """The language found for each manuscript, and the error rates without and with it."""
    every, candidates = bodies(data, lines), knowledge_of_model(resolve(str(model)), centuries=False)
    if learnt is not None:
        read = [text for body in every if body.language == learnt for text in body.learnt]
        pairs = CharNgram.train(read, 2, SMOOTHING)
        candidates = {name: known.with_prior(None, pairs) for name, known in candidates.items()}
    found_of = defaultdict[tuple[str, str], list[tuple[bool, float, float]]](list)
    dated: list[tuple[str, int, float]] = []
    for path in stored:
        emissions = Emissions.load(path)
        for document in documents(emissions):
            language = document.domain.partition("-")[0]
            others = [b for b in every if b.language == language and document.manuscript not in b.manuscripts]
            text = [text for body in others for text in body.lines]
            if not text:
                continue
            known = Knowledge.from_texts(text, targets_of(others), name=language, order=ORDER, smoothing=SMOOTHING)
            about = known.about.model_copy(update={"bits": candidates[language].about.bits})
            like = candidates[language]
            without = {**candidates, language: replace(known, about=about).with_prior(like.prior, like.assumed)}
            decision = Automatic(without).decide(emissions.alphabet, document.log_probs)
            ids = [str(i) for i in range(len(document.log_probs))]
            own = Emissions(ids, document.log_probs, emissions.symbols, emissions.blank)
            before = document.cer(BeamSearch(own).choose(Weights(beam=BEAM)))
            after = document.cer(BeamSearch(own, decision.knowledge).choose(decision.weights))
            found = decision.posterior
            best = None if found is None else found.best
            found_of[path.stem, language].append((best == language, before, after))
            if found is not None and best == language and document.domain in dict(found.centuries):
                (name, certainty), century = found.centuries[0], int(document.domain.partition("-")[2])
                dated.append((path.stem, abs(int(name.partition("-")[2]) - century), certainty))
            told = f"{document.domain} {len(ids)} lines: {decision}; certainty {decision.certainty:.3f}"
            print(f"{path.stem} {document.manuscript} {told}; CER {before:.2f} -> {after:.2f}", flush=True)
    print("| emissions | language | manuscripts | found | CER, plain | CER, language found | worse |")
    print("|---|---|---|---|---|---|---|")
    for name in dict.fromkeys(name for name, _ in found_of):
        parts = {language: rows for (other, language), rows in found_of.items() if other == name}
        for language, rows in {**parts, "all": [row for part in parts.values() for row in part]}.items():
            plain, knowing = np.mean([row[1:] for row in rows], axis=0)
            right, worse = sum(row[0] for row in rows), sum(row[2] > row[1] for row in rows)
            print(f"| {name} | {language} | {len(rows)} | {right} | {plain:.2f} | {knowing:.2f} | {worse} |")
        off = [years for other, years, _ in dated if other == name]
        mean = np.mean([certainty for other, _, certainty in dated if other == name] or [0])
        print(
            f"{name}: the century is told for {len(off)}, right for {off.count(0)}, within one for "
            f"{sum(years <= 1 for years in off)}; mean certainty {mean:.2f}"
        )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, names in (
        ("build", ["data", "lines", "out"]),
        ("weights", ["data", "lines"]),
        ("over", ["data", "lines"]),
        ("evidence", ["data", "lines", "model"]),
    ):
        part = verbs.add_parser(verb)
        for name in names:
            part.add_argument(name, type=Path)
        if verb != "build":
            part.add_argument("emissions", type=Path, nargs="+")
        if verb == "weights":
            part.add_argument("-o", "--out", type=Path)
        if verb in ("over", "evidence"):
            part.add_argument("--learnt")
    given = parser.parse_args()
    if given.verb == "build":
        build(given.data, given.lines, given.out)
    elif given.verb == "weights":
        study_weights(given.data, given.lines, given.emissions, given.out)
    elif given.verb == "over":
        study_over(given.data, given.lines, given.emissions, given.learnt)
    else:
        study_evidence(given.data, given.lines, given.model, given.emissions, given.learnt)


if __name__ == "__main__":
    main()
