"""Run folders like those of a training, made up and deterministic: for the tests of tables and report."""

import io
import json
import random
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, ImageDraw, ImageFilter, ImageFont, features
from rapidfuzz.distance import Levenshtein

from fada import TargetSet
from fada.data.formats.parquet import write_parquet
from fada.data.line import Line
from fada.distances import sorted_w2
from fada.tuning.tuned import Evidence, Tuned

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
CENTURIES = ("10", "11", "12", "13", "14", "15", "16")


def make_run(
    folder: Path,
    *,
    lines: int = 60,
    seed: int = 0,
    lam: float = 1.0,
    dataset: str = "Codices",
    model: str = "crnn",
    systems: Sequence[str] = ("greedy", "beam", "fada"),
    images: Path | None = None,
    drawn_images: int | None = None,
    domain_token: bool = False,
    nasty: bool = False,
    rtl: bool = True,
    tuned: bool = False,
    **settings: Any,
) -> Path:
    """Write a run folder. Each further system makes fewer mistakes; λ < 1 makes fewer, too.

    Args:
        images: also write the lines with their images to this parquet file.
        drawn_images: draw only so many and use them again and again, to save time.
    """
    references = _references(lines, rtl)
    if nasty:
        references[0] = ("nasty <b>id</b>", NASTY, "<i>13</i>")
        references[1] = ("empty", "", "13")
    targets = TargetSet.from_texts(
        {d: [text for _, text, domain in references if domain == d] or ["α"] for _, _, d in references}
    )
    rng = random.Random(f"{seed} {lam}")
    rows: dict[str, list[Any]] = {name: [] for name in ("id", "domain", "reference", "system", "hypothesis")}
    rows |= {"log_prob": [], "distance": [], "score": []}
    scale = {True: 0.85, False: 1.0}[lam < 1] * (1.05 if domain_token else 1.0)
    for line_id, reference, domain in references:
        target = targets[domain]
        base = _misread(reference, (0.16 - 0.012 * (int(domain) - 10) if domain.isdigit() else 0.1) * scale, rng)
        for place, system in enumerate(systems):
            hypothesis = base if place == 0 else _repaired(base, reference, 0.12 * place, rng)
            log_prob = -0.2 * len(reference) - 2 * rng.random()
            covering = target.covering(target.normalizer(hypothesis))
            distance = float(sorted_w2(covering.vector_of(hypothesis), covering.frequencies))
            values = (line_id, domain, reference, system, hypothesis, log_prob)
            guided = "fada" in system.lower()
            rest = (distance, 0.5 * log_prob - 0.5 * distance) if guided else (None, log_prob)
            for name, value in zip(rows, (*values, *rest), strict=True):
                rows[name].append(value)
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(rows), folder / "predictions.parquet")
    targets.save(folder / "targets.json")
    config = {
        "fada_version": "0.1.0",
        "seed": seed,
        "settings": {
            "data": [str(images or "lines")],
            "dataset": dataset,
            "model": model,
            "tagging": "token" if domain_token else "none",
            "lam": lam,
            "distance": "sorted_w2",
            "scale": 1.0,
            "epochs": 30,
            "batch_size": 4,
            "beam_size": 5,
            "seed": seed,
            "out": str(folder),
            **settings,
        },
        "model": {"kind": "ctc", "parameters": 2_000_000},
        "lines": {"test": lines},
        "licence": "CC-BY-4.0",
        "citation": "@misc{codices, title={Lines & <b>glyphs</b>}, year={2025}}",
        "versions": {"torch": "2.13.0", "numpy": np.__version__},
    }
    (folder / "config.json").write_text(json.dumps(config, ensure_ascii=False), encoding="utf-8")
    history = [
        {
            "epoch": epoch,
            "loss": 3.2 * 0.8**epoch + 0.21,
            "task_loss": 3.0 * 0.8**epoch + 0.2,
            "alignment_loss": 0.04 * 0.9**epoch + 0.006,
            "validation": {"cer": 78 * 0.82**epoch + 12.4 * scale + 0.3 * rng.random()},
        }
        for epoch in range(1, 25)
    ]
    (folder / "metrics.json").write_text(json.dumps({"history": history}), encoding="utf-8")
    if tuned:
        write_tuned(folder / "tuned.json")
    if images is not None and not images.exists():
        drawn = [line_image(text, random.Random(line_id)) for line_id, text, _ in references[:drawn_images]]
        write_parquet(
            [Line(i, text, domain, drawn[n % len(drawn)]) for n, (i, text, domain) in enumerate(references)], images
        )
    return folder


def write_tuned(path: Path, warning: str | None = None) -> None:
    """The result of a tuning: two scales, λ from 0.1 to 1, the best at 0.4 with scale 100."""
    curve = [
        {
            "lam": lam,
            "scale": scale,
            "distance": "sorted_w2",
            "error": 13.9 - depth * (1 - ((lam - 0.4) / 0.6) ** 2),
            "difference": -depth * (1 - ((lam - 0.4) / 0.6) ** 2),
            "se": 0.12 * (1 - lam),
        }
        for scale, depth in ((1.0, 0.05), (100.0, 0.6))
        for lam in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    ]
    curve.append({"lam": 1.0, "error": 13.9, "difference": 0.0, "se": 0.0})
    gain: dict[str, float | None] = {"difference": -0.55, "se": 0.1, "low": -0.75, "high": -0.35, "p": 0.001}
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
        best={"lam": 0.4, "scale": 100.0},
        warning=warning,
        curve=curve,
    )
    Tuned(lam=0.4, scale=100.0, evidence=evidence).save(path)


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
