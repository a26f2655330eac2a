"""The whole way by the command line: ALTO pages, targets, training, tuning, decoding, report.

Every step takes the domains from where the one before left them: their names and what was read stay the same.
"""

import json
import random
import re
from pathlib import Path

import pytest
from PIL import Image

from fada import Emissions, TargetSet
from fada.runs.run import load_run
from tests.support.commands import run_fada
from tests.support.training_lines import ALPHABETS, drawn_line

HEIGHT, WIDTH = 44, 160
PAGES = {"train": 3, "validation": 1, "test": 1}
CENTURIES = {"13": "old", "14": "new"}


def write_page(file: Path, texts: list[str]) -> None:
    """An ALTO file with its image, one line below the other."""
    file.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new("L", (WIDTH, HEIGHT * len(texts)), 230)
    lines = []
    for i, text in enumerate(texts):
        drawn = drawn_line(text)
        image.paste(drawn, (0, HEIGHT * i))
        box = f'HPOS="0" VPOS="{HEIGHT * i}" WIDTH="{drawn.width}" HEIGHT="{drawn.height}"'
        lines.append(f'<TextLine ID="l{i}" {box}><String CONTENT="{text}" {box}/></TextLine>')
    image.save(file.with_suffix(".png"))
    file.write_text(
        '<?xml version="1.0" encoding="UTF-8"?><alto xmlns="http://www.loc.gov/standards/alto/ns-v4#"><Description>'
        "<MeasurementUnit>pixel</MeasurementUnit><sourceImageInformation>"
        f"<fileName>{file.stem}.png</fileName></sourceImageInformation></Description><Layout>"
        f'<Page ID="p" WIDTH="{image.width}" HEIGHT="{image.height}"><PrintSpace><TextBlock ID="b">{"".join(lines)}'
        "</TextBlock></PrintSpace></Page></Layout></alto>",
        encoding="utf-8",
    )


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, list[str]]]]:
    """Pages of two centuries, in folders ``split/century``, and the texts on them by split and century."""
    folder, rng = tmp_path_factory.mktemp("walk"), random.Random(0)
    texts: dict[str, dict[str, list[str]]] = {}
    for split, pages in PAGES.items():
        for century, letters in CENTURIES.items():
            for page in range(pages):
                words = ["".join(rng.choices(ALPHABETS[letters].strip(), k=rng.randint(3, 7))) for _ in range(6)]
                write_page(folder / split / century / f"{split}-{century}-{page}.xml", words)
                texts.setdefault(split, {}).setdefault(century, []).extend(words)
    return folder, texts


@pytest.mark.slow
def test_from_pages_to_the_report_domains_keep_their_names_and_the_tuned_system_stands(
    texts: tuple[Path, dict[str, dict[str, list[str]]]],
) -> None:
    folder, written = texts
    run_folder, targets = folder / "run", folder / "targets.json"
    run_fada("targets", "build", folder / "train", "--domain-from", "folder", "--out", targets)
    counted = TargetSet.load(targets)
    assert set(counted) == set(CENTURIES)
    for century in CENTURIES:
        used = dict(zip(counted[century].symbols, counted[century].frequencies, strict=True))
        assert {symbol for symbol, share in used.items() if share} == set("".join(written["train"][century]))

    places = ["--data", folder / "train", "--validation", folder / "validation", "--test", folder / "test"]
    settings = ["--model", "crnn:tiny", "--epochs", 4, "--batch-size", 6, "--learning-rate", 5e-3, "--lam", 0.9]
    run_fada("train", *places, "--domain-from", "folder", "--targets", targets, *settings, "--out", run_folder)
    run = load_run(run_folder)
    assert run.targets == counted
    for split in PAGES:
        assert {line.domain for line in run.lines(split)} == set(CENTURIES)  # type: ignore[arg-type]

    grid = ["--lam", 0.3, "--lam", 0.6, "--scale", 100, "--distance", "aligned_w2", "--folds", 2]
    tuned = json.loads(run_fada("tune", run_folder, *grid, "--json").stdout)
    run = load_run(run_folder)
    assert list(run.predictions) == ["greedy", "beam5", "tuned"]
    assert run.tuned_system == "tuned"
    assert run.tuned is not None
    assert tuned["lam"] == run.tuned.weights.lam
    for century, expected in written["test"].items():
        rows = [i for i, domain in enumerate(run.predictions.domains or []) if domain == century]
        assert sorted(run.predictions.references[i] for i in rows) == sorted(expected)

    emissions = run_folder / "emissions" / "test.npz"
    decoded = folder / "decoded.tsv"
    run_fada("decode", emissions, "--targets", targets, "--tuned", run_folder / "tuned.json", "--out", decoded)
    heading, *cells = [row.split("\t") for row in decoded.read_text(encoding="utf-8").splitlines()]
    columns = dict(zip(heading, zip(*cells, strict=True), strict=True))
    assert list(columns["id"]) == run.predictions.ids
    assert list(columns["domain"]) == run.predictions.domains == Emissions.load(emissions).domains
    assert list(columns["text"]) == run.predictions["tuned"].hypotheses

    told = json.loads(run_fada("evaluate", run_folder, "--bootstrap", 0, "--resamples", 0, "--json").stdout)
    assert set(told["evaluations"]) == {"greedy", "beam5", "tuned"}
    run_fada("report", run_folder, "--resamples", 20, "--tables", folder / "tables", "--out", folder / "report.html")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert '<th scope="row"><bdi>tuned</bdi>' in page
    for century in CENTURIES:
        assert f"<bdi>{century}</bdi>" in page


@pytest.mark.slow
def test_a_built_in_model_is_fine_tuned_on_ones_own_lines_as_the_document_prints_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    document = (Path(__file__).parents[1] / "docs" / "training.md").read_text(encoding="utf-8")
    train, transcribe = re.findall(
        r"^fada (train --model medieval .*|transcribe runs/mine .*)$", document, re.MULTILINE
    )
    (tmp_path / "my_lines").mkdir()
    for number, word in enumerate(["lire", "eleß", "relire", "iles", "reel", "ciel", "sire", "celer", "riß", "selle"]):
        drawn_line(word).save(tmp_path / "my_lines" / f"{number}.png")
        (tmp_path / "my_lines" / f"{number}.gt.txt").write_text(f"{word}\n", encoding="utf-8")
    write_page(tmp_path / "pages" / "p1.xml", ["lire", "celer"])
    run_fada(*train.split())
    assert "ß" in load_run("runs/mine").recognizer.characters
    run_fada(*transcribe.split(), "--out", "read")
    assert 'CONTENT="' in (tmp_path / "read" / "p1.xml").read_text(encoding="utf-8")
