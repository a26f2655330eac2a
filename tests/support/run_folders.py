"""Run folders as training writes them, with as many lines and systems as the tests of tables and report need."""

import io
import json
import random
import re
import shutil
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont, features
from rapidfuzz.distance import Levenshtein

from fada import TargetSet
from fada.data.columns import LineColumns
from fada.data.formats.parquet import write_parquet
from fada.data.line import Line
from fada.decoding.weights import BEAM, Weights
from fada.distances import sorted_w2
from fada.evaluation.predictions import GREEDY_SETTINGS, PREDICTIONS, SCORE_COLUMNS, Systems
from fada.training.settings import TrainSettings
from fada.tuning.tuned import Evidence, Gain, Point, Tuned
from tests.support.training_lines import image_folder, image_lines

GREEK = (
    "καὶ τὸ τῆς ἐν τοῦ δὲ τὴν τῶν ὁ τὸν εἰς ὅτι θεοῦ λόγος ἀρχῇ ἦν πρὸς ἄνθρωπος φωνῆς εἰσπράττονται δίκας συμφώνως "
    "ἀφῆκαν ψυχὴ πνεῦμα οὐρανός γῆ φῶς ἡμέρα νύξ ὕδωρ βασιλεύς πόλις ἐκκλησία ἅγιος μαρτύριον ἐπίσκοπος γράμματα βίβλος"
)
ARABIC = "في كتاب الله والسلام على من قال العلم نور القلب هذا باب ذكر أهل المدينة ثم كان الملك يكتب إلى الناس"
LATIN = "et in terra pax hominibus dn\u0303s noster q\u0303 est deus o\u0308ner u\u0303de gra\u0303 plena vertu\u0301t"
CONFUSIONS = {
    "ὁ": "ὀ",
    "ὸ": "ό",
    "ῆ": "ή",
    "ν": "υ",
    "ς": "σ",
    "ὲ": "έ",
    "α": "ο",
    "ے": "ي",
    "ق": "ف",
    "ب": "ت",
    "e": "c",
}
NASTY = "</script><img src=x onerror=\"window.hacked=1\"> & 'quoted' <!-- {{ 7*7 }} \u2028 ]]>"
LICENCE, CITATION = "CC-BY-4.0", "@misc{codices, title={Lines & <b>glyphs</b>}, year={2025}}"
CENTURIES = ("10", "11", "12", "13", "14", "15", "16")

MakeRun = Callable[..., Path]
"""What the fixture `make_run` gives: :func:`make_run` of the run that was trained once for all tests."""


def train_run(folder: Path) -> Path:
    """A run of the smallest model, of lines with a licence and a citation that needs escaping."""
    from fada.training.train import train

    image_folder(folder / "lines", train=12, validation=4, test=4)
    write_parquet(
        image_lines(12, prefix="train"), folder / "lines" / "train.parquet", licence=LICENCE, citation=CITATION
    )
    settings = {"data": [str(folder / "lines")], "model": "crnn:tiny", "epochs": 2, "threads": 1}
    return train(TrainSettings.of({**settings, "out": folder / "run"})).folder


@dataclass(frozen=True)
class Made:
    """What a run that is made for a test is like.

    Attributes:
        images: also write the lines with their images to this parquet file.
        drawn_images: draw only so many and use them again and again, to save time.
    """

    lines: int = 60
    seed: int = 0
    lam: float = 1.0
    dataset: str = "Codices"
    model: str = "crnn:base"
    systems: Sequence[str] = ("greedy", "beam", "fada")
    images: Path | None = None
    drawn_images: int | None = None
    domain_token: bool = False
    nasty: bool = False
    rtl: bool = True
    tuned: bool = False


def make_run(trained: Path, folder: Path, **asked: Any) -> Path:
    """A copy of a run with other settings (:class:`Made`) and more lines.

    Each further system makes fewer mistakes, as does λ < 1.
    """
    made = Made(**asked)
    references = _references(made.lines, made.rtl)
    if made.nasty:
        references[0] = ("nasty <b>id</b>", NASTY, "<i>13</i>")
        references[1] = ("empty", "", "13")
    shutil.copytree(trained, folder, ignore=shutil.ignore_patterns("model", "emissions", PREDICTIONS))
    changed = {
        "data": [str(made.images or folder.parent / f"{made.dataset}.parquet")],
        "out": folder,
        "model": made.model,
    }
    changed |= {"tagging": "given" if made.domain_token else "none", "lam": made.lam, "seed": made.seed}
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    settings = TrainSettings.of({**config["settings"], **changed})
    config |= {
        "settings": settings.model_dump(mode="json", exclude={"resume"}),
        "seed": made.seed,
        "data": settings.data,
    }
    config["lines"]["test"] = made.lines
    (folder / "config.json").write_text(json.dumps(config, ensure_ascii=False), encoding="utf-8")
    targets = TargetSet.from_texts(
        {d: [text for _, text, domain in references if domain == d] or ["α"] for _, _, d in references}
    )
    targets.save(folder / "targets.json")
    rng = random.Random(f"{made.seed} {made.lam}")
    read: dict[str, list[str]] = {system: [] for system in made.systems}
    scores: dict[str, dict[str, list[float | None]]] = {s: {name: [] for name in SCORE_COLUMNS} for s in made.systems}
    scale = {True: 0.85, False: 1.0}[made.lam < 1] * (1.05 if made.domain_token else 1.0)
    for _, reference, domain in references:
        target = targets[domain]
        base = _misread(reference, (0.16 - 0.012 * (int(domain) - 10) if domain.isdigit() else 0.1) * scale, rng)
        for place, system in enumerate(made.systems):
            hypothesis = base if place == 0 else _repaired(base, reference, 0.12 * place, rng)
            log_prob = -0.2 * len(reference) - 2 * rng.random()
            covering = target.covering(target.normalizer(hypothesis))
            distance = float(sorted_w2(covering.vector_of(hypothesis), covering.frequencies))
            guided = "fada" in system.lower()
            rest = (distance, 0.5 * log_prob - 0.5 * distance) if guided else (None, log_prob)
            read[system].append(hypothesis)
            for name, value in zip(SCORE_COLUMNS, (log_prob, *rest), strict=True):
                scores[system][name].append(value)
    ids, texts, domains = map(list, zip(*references, strict=True))
    known = {system: settings_of(system) for system in made.systems}
    Systems(LineColumns(ids, texts, domains), read, known, scores).save(folder / PREDICTIONS)
    if made.tuned:
        write_tuned(folder / "tuned.json")
    if made.images is not None and not made.images.exists():
        drawn = [line_image(text, random.Random(line_id)) for line_id, text, _ in references[: made.drawn_images]]
        write_parquet(
            [Line(i, text, domain, drawn[n % len(drawn)]) for n, (i, text, domain) in enumerate(references)],
            made.images,
        )
    return folder


def settings_of(system: str) -> Mapping[str, Any]:
    """How a system of this name decodes."""
    if system == "greedy":
        return GREEDY_SETTINGS
    size = re.search(r"beam ?(\d+)", system)
    terms: dict[str, Any] = {"lam": 0.5} if "fada" in system.lower() else {}
    further: dict[str, dict[str, Any]] = {
        "prior correction": {"prior_weight": 0.5},
        "6-gram": {"lm": "global", "lm_weight": 0.5},
    }
    terms |= further.get(system, {})
    return Weights(beam=int(size[1]) if size else BEAM, **terms).model_dump()


def write_tuned(path: Path, warning: str | None = None) -> None:
    """The result of a tuning: two scales, λ from 0.1 to 1, the best at 0.4 with scale 100."""
    curve = [
        Point.model_validate(
            {
                "lam": lam,
                "scale": scale,
                "distance": "sorted_w2",
                "error": 13.9 - depth * (1 - ((lam - 0.4) / 0.6) ** 2),
                "difference": -depth * (1 - ((lam - 0.4) / 0.6) ** 2),
                "se": 0.12 * (1 - lam),
            }
        )
        for scale, depth in ((1.0, 0.05), (100.0, 0.6))
        for lam in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    ]
    curve.append(Point(error=13.9, difference=0.0, se=0.0))
    gain = Gain(difference=-0.55, se=0.1, low=-0.75, high=-0.35, p=0.001)
    evidence = Evidence(
        metric="cer",
        lines=200,
        clusters=200,
        folds=5,
        plain=13.9,
        chosen=13.3,
        held_out=13.35,
        gain=gain,
        guidance_gain=gain,
        best=Point(weights=Weights(lam=0.4, scale=100.0)),
        warning=warning,
        curve=curve,
    )
    Tuned(weights=Weights(lam=0.4, scale=100.0), evidence=evidence).save(path)


def line_image(text: str, rng: random.Random) -> bytes:
    """A line in ink on old paper: 64 pixels high, PNG."""
    size = 38
    engine = ImageFont.Layout.RAQM if features.check("raqm") else ImageFont.Layout.BASIC
    right_to_left = any(unicodedata.bidirectional(c) in {"R", "AL"} for c in text)
    font = ImageFont.truetype(
        _font("DejaVuSans.ttf" if right_to_left else "DejaVuSerif-Italic.ttf"), size, layout_engine=engine
    )
    width = max(60, int(font.getlength(text)) + 40)
    ink = Image.new("L", (width, 64), 255)
    ImageDraw.Draw(ink).text((20, 8), text, font=font, fill=40)
    noise = np.random.default_rng(rng.randrange(2**32))
    paper = 214 + 14 * np.sin(np.linspace(rng.random() * 6, 6 + rng.random() * 6, width))[None, :]
    page = (
        paper
        + noise.normal(0, 7, (64, width))
        - (255 - np.asarray(ink.filter(ImageFilter.GaussianBlur(0.8)), float)) * 0.75
    )
    buffer = io.BytesIO()
    Image.fromarray(np.clip(page, 0, 255).astype(np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def _font(name: str) -> str:
    import matplotlib

    return str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name)


def _references(count: int, rtl: bool) -> list[tuple[str, str, str]]:
    rng = random.Random(7)
    result = []
    for i in range(count):
        words, domain = (
            (ARABIC, "Andalus")
            if rtl and i % 9 == 4
            else (LATIN, "Latin")
            if i % 11 == 6
            else (GREEK, CENTURIES[i % 7])
        )
        text = " ".join(rng.choice(words.split()) for _ in range(rng.randint(6, 9)))
        result.append((f"bodl-barocci-{102 + i // 40}-f{i // 20 + 1:03d}r-l{i % 20 + 1:02d}-{i}", text, domain))
    return result


def _misread(text: str, rate: float, rng: random.Random) -> str:
    out = []
    for c in text:
        chance = rng.random()
        if chance < rate * 0.75:
            out.append(CONFUSIONS.get(c, c if c == " " else rng.choice(text)))
        elif chance < rate * 0.9:
            pass
        else:
            out.append(c)
            if chance > 1 - rate * 0.1:
                out.append(rng.choice(text))
    return "".join(out)


def _repaired(text: str, reference: str, share: float, rng: random.Random) -> str:
    parts = []
    for code in Levenshtein.opcodes(text, reference):
        right = reference[code.dest_start : code.dest_end]
        parts.append(right if rng.random() < share else text[code.src_start : code.src_end])
    return _misread("".join(parts), 0.004, rng)
