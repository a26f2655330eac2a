"""What the README's first screen shows, tried in the environment that runs this: ``make test-fresh``.

It needs the plain package alone: no extras, none of the tests' own packages.
"""

import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from PIL import Image, ImageDraw

FADA = str(Path(sysconfig.get_path("scripts")) / "fada")


def run(folder: Path, *command: str, fails_with: str | None = None) -> str:
    """Run a command, show it, and stop if it does not end as it should."""
    print("$ fada", *command, flush=True)
    done = subprocess.run([FADA, *command], cwd=folder, capture_output=True, text=True, encoding="utf-8", check=False)
    told = done.stdout + done.stderr
    as_expected = done.returncode == 0 if fails_with is None else done.returncode == 2 and fails_with in told
    if not as_expected or "Traceback" in told or "internal error" in told:
        sys.exit(f"{told}\nexit code {done.returncode}")
    return told


def main() -> None:
    """Try it in an empty folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for domain, text in {"1650": "le roy estoit bon", "1850": "le roi était bon"}.items():
            (folder / "letters" / domain).mkdir(parents=True)
            (folder / "letters" / domain / "a.txt").write_text(f"{text}\n" * 50, encoding="utf-8")
        image = Image.new("L", (400, 60), 230)
        ImageDraw.Draw(image).text((20, 20), "le roi etait bon", fill=20)
        image.save(folder / "line.png")
        run(folder, "transcribe", "line.png")
        run(folder, "transcribe", "line.png", "--text", "letters/1850", "--hot-word", "roi", "--out", "out.tsv")
        run(folder, "transcribe", "line.png", "--out", "out.hocr")
        run(folder, "targets", "build", "letters/1650", "letters/1850", "--letters-only", "-o", "targets.json")
        run(folder, "targets", "compare", "targets.json")
        run(folder, "emit", "medieval", "line.png", "--out", "emissions.npz")
        run(folder, "decode", "emissions.npz", "--targets", "targets.json", "--domain", "1850", "--out", "guided.tsv")
        run(folder, "evaluate", "out.tsv", "guided.tsv")
        run(folder, "report", "--reference", "out.tsv", "guided.tsv", "--out", "report.html")
        run(folder, "train", "--data", "line.png", "--out", "run", fails_with="fada[train]")
    print("The first screen works.")


if __name__ == "__main__":
    main()
