"""Make the example figures of the documentation from text that is put together here, word by word.

Run with: python docs/images/make_figures.py (needs the package wordfreq, of the extra `synth`)

It writes `letters/1650` and `letters/1850` (French words, the older ones with u for v, i for j and few accents) and
`greek/10` to `greek/16` (Greek words, more and more of them accented), then runs the commands that it prints.
"""

import os
import random
import shlex
import shutil
import tempfile
import unicodedata
from pathlib import Path

from typer.testing import CliRunner
from wordfreq import top_n_list, word_frequency

from fada.cli import app
from fada.text import TextNormalizer

IMAGES = Path(__file__).resolve().parent
OLD_SPELLING = str.maketrans("vj", "ui")


def without_accents(word: str) -> str:
    """The word without its diacritics."""
    return TextNormalizer(case="keep", marks="fold")(word)


def write_text(path: Path, language: str, lines: int, accented: float, old: bool = False, seed: int = 0) -> None:
    """Lines of eight words drawn by their frequency; `accented` is the share of words that keep their accents."""
    rng = random.Random(seed)
    script = {"fr": "LATIN", "el": "GREEK"}[language]
    words = [word for word in top_n_list(language, 4000) if all(script in unicodedata.name(c) for c in word)]
    weights = [word_frequency(word, language) for word in words]
    text = []
    for _ in range(lines):
        drawn = rng.choices(words, weights, k=8)
        drawn = [word if rng.random() < accented else without_accents(word) for word in drawn]
        text.append(" ".join(word.translate(OLD_SPELLING) if old else word for word in drawn))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(text) + "\n", encoding="utf-8")


def run(command: str) -> None:
    """Show a command and run it."""
    print(f"$ {command}")
    result = CliRunner().invoke(app, shlex.split(command)[1:], catch_exceptions=False)
    print(result.output)


def main() -> None:
    """Write the texts, run the commands, keep the pictures."""
    write_text(Path("letters/1650/letters.txt"), "fr", 600, accented=0.25, old=True, seed=1)
    write_text(Path("letters/1850/letters.txt"), "fr", 600, accented=1.0, seed=2)
    run("fada targets build letters/1650 letters/1850 --letters-only -o targets.json")
    run("fada analyze targets.json --from 1650 --to 1850 --top 20 --out figures")
    shutil.copy("figures/shift.png", IMAGES / "analyze.png")
    for century in range(10, 17):
        path, share = Path(f"greek/{century}/lines.txt"), (century - 10) / 6
        write_text(path, "el", 300 if century < 16 else 40, accented=share, seed=century)
    run("fada targets build greek --letters-only -o greek.json")
    run("fada analyze greek.json --out greek-figures")
    for name in ("heatmap", "pearson", "trends", "shift"):
        shutil.copy(f"greek-figures/{name}.png", IMAGES / f"{name}.png")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        main()
        os.chdir(IMAGES)
