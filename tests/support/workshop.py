"""A folder with all that the examples of README and docs name, small; and the Python names they take as given."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import fada
from tests.support.training_lines import drawn_line, image_folder, image_lines
from tests.support.xml_pages import write_example

OLD = Path(__file__).parents[1] / "files" / "format-0.1"
RUNS = ("x", "hpgt", "french", "letters", "standard-0", "fada-0")
DOMAINS = ("13", "14", "1650", "1850", "old", "new")


def make_workshop(folder: Path) -> Path:
    """Write the files."""
    image_folder(folder / "lines", train=16, validation=6, test=5)
    for name in ("train", "validation"):
        shutil.copy(folder / "lines" / f"{name}.parquet", folder / f"{name}.parquet")
    for name in RUNS:
        shutil.copytree(OLD / "run", folder / "runs" / name)
        config = json.loads((OLD / "run" / "config.json").read_text(encoding="utf-8"))
        config["settings"] |= {"data": [str(folder / "lines")], "lam": 1.0 if name == "standard-0" else 0.7}
        (folder / "runs" / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
    shutil.copytree(OLD / "run" / "emissions", folder / "emissions")
    for source, name in (("test.npz", "emissions.npz"), ("validation.npz", "validation.npz"), ("symbols.json",) * 2):
        shutil.copy(OLD / "run" / "emissions" / source, folder / name)
    shutil.copy(OLD / "nbest.parquet", folder)
    shutil.copy(OLD / "run" / "tuned.json", folder)
    for year, text in (("1650", "auoir ueu la uie\n"), ("1850", "avoir vu la vie\n")):
        (folder / "letters" / year).mkdir(parents=True)
        (folder / "letters" / year / "a.txt").write_text(text * 40, encoding="utf-8")
    texts = {name: [f"abc dcba avoir veu {name}"] * 9 for name in DOMAINS}
    fada.TargetSet.from_texts(texts).save(folder / "targets.json")
    for name in ("a.json", "b.json", "more.json"):
        shutil.copy(folder / "targets.json", folder / name)
    for place in ("pages", "my_pages/14", "ground_truth", "read", "ocr"):
        write_example(folder / place, "alto4")
    write_example(folder, "alto4")
    (folder / "manuscripts.csv").write_text("manuscript,domain\npage,14\n", encoding="utf-8")
    drawn_line("abba").save(folder / "line.png")
    with (folder / "lines.csv").open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([("image", "text", "century"), ("line.png", "abba", "14")])
    (folder / "gt.txt").write_text("abc\nabd\n", encoding="utf-8")
    (folder / "ocr.txt").write_text("abc\nabb\n", encoding="utf-8")
    for name in ("references.tsv", "reference.tsv", "hypotheses.tsv", "kraken.tsv", "pylaia.tsv"):
        text = "abc" if name[0] == "r" else "abb"
        (folder / name).write_text(f"id\ttext\n1\t{text}\n2\tabd\n", encoding="utf-8")
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"id": ["1", "2"], "reference": ["abc", "abd"], "hypothesis": ["abc", "abb"], "page": ["p1", "p2"]}
    pq.write_table(pa.table(columns | {"domain": ["13", "14"]}), folder / "predictions.parquet")
    (folder / "scans").mkdir()
    for file in ("folio.jpg", "scans/folio.png", "book.pdf"):
        _photograph().save(folder / file)
    (folder / "credits.md").write_text("Drawn by Pillow.\n", encoding="utf-8")
    return folder


def _photograph() -> Image.Image:
    """A page of three printed lines."""
    page, font = Image.new("L", (700, 900), 230), ImageFont.load_default(size=34)
    for place, text in enumerate(("in principio creauit deus", "celum et terram terra", "autem erat inanis et uacua")):
        ImageDraw.Draw(page).text((90, 120 + 80 * place), text, fill=40, font=font)
    return page


def given(folder: Path) -> dict[str, Any]:
    """What a block of Python takes as given: emissions, texts, a loss and a batch, tiny models."""
    import torch

    from tests.support import tiny_models

    emissions = fada.Emissions.load(folder / "emissions.npz")
    tokenizer = tiny_models.byte_level_tokenizer()
    prompt = torch.tensor([[5, 6, 7]])
    return {
        "fada": fada,
        "json": json,
        "numpy": np,
        "symbols": list(emissions.symbols),
        "log_probs": emissions.log_probs[0],
        "line_id": "line1",
        "domains": ["13", "14"],
        "lines": list(image_lines(2)),
        "references": ["abc", "abd"],
        "hypotheses": ["abc", "abb"],
        "beam": ["abc", "abb"],
        "guided": ["abc", "abd"],
        "pages": ["p1", "p2"],
        "lines13": ["abc", "eab"] * 20,
        "lines14": ["bcd", "dea"] * 20,
        "paths": [folder / "line.png"],
        "validation": fada.Emissions.load(folder / "validation.npz"),
        "test": emissions,
        "targets": fada.TargetSet.load(folder / "targets.json"),
        "target": fada.TargetSet.load(folder / "targets.json")["14"],
        "tokenizer": tokenizer,
        "processor": tokenizer,
        "task_loss": torch.tensor([1.0, 2.0]),
        "lengths": torch.tensor([4, 4]),
        "log_prob_batch": torch.randn(2, 4, len(emissions.symbols)).log_softmax(-1),
        "logits": torch.randn(2, 3, len(tokenizer)),
        "labels": torch.tensor([[5, 6, -100], [7, 8, 9]]),
        "prompt": prompt,
        "inputs": {"input_ids": prompt, "max_new_tokens": 4},
    }
