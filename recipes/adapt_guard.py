"""When `fada adapt` gives the old model back: cross-validation against the real change, on other manuscripts.

    python recipes/adapt_guard.py [DATA]

prints what is in `adapt_guard.json` beside it; with the data, the cases that are missing there are run first, each the
most of a minute of one core.

No manuscript of `recipes/unseen.yaml` is used. Corrected lines are drawn from some pages, the change is measured on at
most 48 lines of other pages. The manuscripts of each kind are those with the lowest SHA-256 of their names, of one
language after the other:

* foreign: the French model on manuscripts it never saw (training lines of `latin_script`; `catmus_fr_more`);
* seen: either model on other pages of manuscripts it was trained on, with little left to learn;
* known: the French model on its own readings as corrections: nothing is to be learnt;
* wrong: the French model on foreign manuscripts, each line with the text of the next one;
* other hand: the corrected lines are of one manuscript, the pages read of another in the same language. No
  cross-validation can see that.

Every rule is then applied to the outcomes: how often it gives the old model back, how often wrongly, and what is read
in the mean (of the logarithms of the error rates).
"""

import hashlib
import json
import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations, islice, zip_longest
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from medieval import split_of, unseen

from fada import read_lines
from fada.common.files import write_json
from fada.data.line import Line
from fada.errors import FadaError
from fada.evaluation.edits import score_lines
from fada.evaluation.scores import compare
from fada.experiments.division import divided, drawn
from fada.models import registry
from fada.training.adapt import Adapting
from fada.training.folds import AdaptSettings
from fada.training.lines import LineDataset
from fada.training.reading import read_texts

FEW, MORE = 8, 24
LEAST, TESTED = 40, 48
FOREIGN = 10
HONEST = ("foreign", "seen")
"""Kinds of cases that a user who does nothing wrong may have."""
KINDS = (*HONEST, "known", "wrong", "other hand")
Manuscripts = dict[str, list[Line]]


@dataclass(frozen=True)
class Case:
    """Corrected lines, and the lines that a model is read with afterwards."""

    kind: str
    model: str
    manuscript: str
    corrected: Sequence[Line]
    test: Sequence[Line]
    draw: int = 0

    @property
    def name(self) -> str:
        """In the file and the table."""
        lines = f"{len(self.corrected)} {'other lines' if self.draw else 'lines'}"
        return f"{self.kind}, {self.model}, {lines}, {self.manuscript}"


def manuscripts(paths: Sequence[Path], least: int) -> Manuscripts:
    """Those of so many lines, of one language after the other."""
    left_out = unseen()
    of: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for path in paths:
        for line in read_lines(path):
            of[str(line.extra.get("language") or "fr"), str(line.extra["manuscript"])].append(line)
    able: dict[str, list[str]] = defaultdict(list)
    for (language, name), lines in of.items():
        if name not in left_out and len(lines) >= least:
            able[language].append(name)
    by_hash = [
        [(language, name) for name in sorted(able[language], key=lambda n: hashlib.sha256(n.encode()).hexdigest())]
        for language in sorted(able)
    ]
    return {one[1]: of[one] for row in zip_longest(*by_hash) for one in row if one}


def foreign(data: Path, count: int) -> list[Case]:
    """The French model on manuscripts that it never saw."""
    found = manuscripts([data / "latin_script" / "train.parquet", data / "catmus_fr_more" / "train.parquet"], LEAST)
    cases = []
    for name, lines in found.items():
        with suppress(FadaError):  # all of its lines are on the pages to correct
            pool, test = divided(lines, count)
            cases.append(Case("foreign", "french", name, drawn(pool, count, 0), test[:TESTED]))
    return cases


def seen(data: Path, model: str, sources: Sequence[str]) -> Iterator[Case]:
    """A model on other pages of manuscripts it was trained on: corrected of the validation pages, read of the test."""
    pools = manuscripts([data / name / "validation.parquet" for name in sources], FEW)
    tests = manuscripts([data / name / "test.parquet" for name in sources], 2 * FEW)
    for name, lines in pools.items():
        if model == "medieval":
            lines = [line for line in lines if split_of("validation", f"{name}/{line.extra['page']}") == "validation"]
        if name in tests and len(lines) >= FEW:
            for draw in (0, 1) if model == "medieval" else (0,):
                yield Case("seen", model, name, drawn(lines, FEW, draw), tests[name][:TESTED], draw)


def cases(data: Path) -> Iterator[Case]:
    """In an order in which a part of them tells something, too."""
    few, more = foreign(data, FEW), foreign(data, MORE)
    rounds = [
        few[:FOREIGN],
        [*seen(data, "medieval", ["latin_script", "catmus_fr"]), *seen(data, "french", ["catmus_fr"])],
        [
            replace(few[0], kind="known", corrected=own_readings(few[0].corrected)),
            more[0],
            replace(few[1], kind="wrong", corrected=shifted(few[1].corrected)),
            *islice(other_hands(few), 2),
            more[1],
            replace(few[2], kind="wrong", corrected=shifted(few[2].corrected)),
        ],
    ]
    yield from (one for row in zip_longest(*rounds) for one in row if one)


def own_readings(lines: Sequence[Line]) -> list[Line]:
    """What the French model reads, as if somebody had corrected it."""
    texts = read(registry.load_network("french"), lines)
    return [replace(line, text=text) for line, text in zip(lines, texts, strict=True)]


def shifted(lines: Sequence[Line]) -> list[Line]:
    """Every line with the text of the next."""
    return [replace(line, text=after.text) for line, after in zip(lines, [*lines[1:], lines[0]], strict=True)]


def other_hands(of: Sequence[Case]) -> Iterator[Case]:
    """The lines of one manuscript, the test of another in its language."""
    for one, other in combinations(of, 2):
        if one.test[0].extra["language"] == other.test[0].extra["language"]:
            yield replace(one, kind="other hand", test=other.test, manuscript=f"{one.manuscript}; {other.manuscript}")


def read(network: Any, lines: Sequence[Line]) -> list[str]:
    """By best path, as `fada adapt` judges."""
    return read_texts(network, LineDataset(network, lines, ()))


def outcome(case: Case, replay: Sequence[Line]) -> dict[str, Any]:
    """What cross-validation says, and what is so: edits of every line, and characters."""
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        begun = Adapting(case.model, case.corrected, Path(folder) / "out", AdaptSettings(), replay=replay)
        begun.train()
        crossed = begun.read()
    texts = [str(line.text) for line in case.test]
    old = score_lines(texts, read(registry.load_network(case.model), case.test))
    new = score_lines(texts, read(crossed.adapted, case.test))
    sides = [score_lines(crossed.references, side) for side in (crossed.before, crossed.after)]
    difference = compare(crossed.references, crossed.before, crossed.after).overall["cer"]
    return {
        "kind": case.kind,
        "lines": len(case.corrected),
        "characters": sides[0].characters.tolist(),
        "before": sides[0].edits.tolist(),
        "after": sides[1].edits.tolist(),
        "p": difference.p,
        "real": [old.rates()["cer"], new.rates()["cer"]],
        "seconds": round(time.process_time() - started, 1),
    }


def change(one: dict[str, Any]) -> float:
    """Real change: log(CER after / CER before) of the other pages."""
    before, after = one["real"]
    return math.log(after / before)


def measured(one: dict[str, Any]) -> tuple[float, float]:
    """The same as cross-validation has it, and its variance by leaving out one line after the other."""
    before, after = np.array(one["before"]), np.array(one["after"])
    each = [math.log((after.sum() - a + 0.5) / (before.sum() - b + 0.5)) for a, b in zip(after, before, strict=True)]
    whole = math.log((after.sum() + 0.5) / (before.sum() + 0.5))
    return whole, float(np.var(each) * (len(each) - 1))


def is_worse(one: dict[str, Any]) -> bool:
    """Whether cross-validation shows no gain."""
    return sum(one["after"]) >= sum(one["before"])


def shrunken(one: dict[str, Any], others: Sequence[dict[str, Any]]) -> bool:
    """Whether no gain is to be expected of what cross-validation says and what other manuscripts gained."""
    gains = [change(other) for other in others]
    seen, variance = measured(one)
    return bool(np.mean(gains) / np.var(gains) + seen / max(variance, 1e-6) >= 0)


Rule = Callable[[dict[str, Any], Sequence[dict[str, Any]]], bool]
RULES: dict[str, Rule] = {
    "never": lambda one, others: False,
    "no gain shown": lambda one, others: is_worse(one),
    "more errors, p < 0.2": lambda one, others: is_worse(one) and one["p"] < 0.2,
    "more errors, p < 0.05": lambda one, others: is_worse(one) and one["p"] < 0.05,
    "no gain expected (shrinkage)": shrunken,
}
"""When the old model is given back; `others` are the honest cases of other manuscripts."""


def print_rules(found: dict[str, dict[str, Any]]) -> None:
    """What each rule makes of the outcomes, and how often cross-validation that shows no gain is right."""
    print(
        "\n| the old model is given back if | given back | of them, the new one was better | kept though worse | ",
        end="",
    )
    print(" | ".join(KINDS) + " |\n|" + "---|" * (4 + len(KINDS)))
    judged = {name: one for name, one in found.items() if one["kind"] in HONEST}
    for title, rule in RULES.items():
        back = {}
        for name, one in found.items():
            manuscript = name.rpartition(", ")[2]
            back[name] = rule(one, [o for n, o in judged.items() if n.rpartition(", ")[2] != manuscript])
        wrongly = sum(back[name] and change(one) < 0 for name, one in judged.items())
        missed = sum(not back[name] and change(one) > 0 for name, one in judged.items())
        cells = []
        for kind in KINDS:
            of_kind = [0.0 if back[name] else change(one) for name, one in found.items() if one["kind"] == kind]
            cells.append(f"{100 * (math.exp(np.mean(of_kind)) - 1):+.1f} %" if of_kind else "")
        counts = f"{sum(back[name] for name in judged)} of {len(judged)} | {wrongly} | {missed}"
        print(f"| {title} | {counts} | {' | '.join(cells)} |")
    unsure = [one for one in judged.values() if one["p"] >= 0.05 and one["lines"] == FEW]
    for title, chosen in {
        "gain": [o for o in unsure if not is_worse(o)],
        "no gain": [o for o in unsure if is_worse(o)],
    }.items():
        better = sum(change(one) < 0 for one in chosen)
        print(f"\n{FEW} lines, {title} shown, p of 0.05 or more: other pages read better in {better} of {len(chosen)}")


def print_cases(found: dict[str, dict[str, Any]]) -> None:
    """One row for each."""
    print("| case | CER before | cross-validated | p | other pages before | after |\n|---|---|---|---|---|---|")
    for name, one in found.items():
        before, after = (100 * sum(one[side]) / sum(one["characters"]) for side in ("before", "after"))
        cells = f"{before:.1f} | {after:.1f} | {one['p']:.3f} | {one['real'][0]:.1f} | {one['real'][1]:.1f}"
        print(f"| {name} | {cells} |")


def main(
    data: Annotated[Path | None, typer.Argument()] = None,
    out: Annotated[Path, typer.Option("--out", "-o")] = Path(__file__).with_suffix(".json"),
) -> None:
    """Adapt where there are data, print the tables."""
    torch.set_num_threads(1)
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    if data is not None:
        replay = drawn(list(read_lines(data / "catmus_fr" / "train.parquet")), 80, 0)
        for case in cases(data):
            if case.name not in found:
                found[case.name] = outcome(case, replay if case.model == "french" else ())
                write_json(out, found)
    print_cases(found)
    print_rules(found)


if __name__ == "__main__":
    typer.run(main)
