"""What fine-tuning a built-in model on one's own lines brings: the figures of `docs/training.md`.

    python recipes/fine_tune.py DATA/latin_script/de_17.parquet FOLDER [MODEL]

The lines are of letters in German of the 17th century (Linz, OÖLA, HA Steyr, box 1232), a hand and a language that no
built-in model has seen. Every fifth page is put aside; the other lines become what a user has, a folder of images with
`.gt.txt`, and the commands of the document follow: fine-tuning, reading the pages put aside, and comparing that with
what the model read before.
"""

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq


def write_lines(source: str, folder: Path) -> None:
    """The lines of Steyr: those to learn from in `my_lines`, every fifth page in `put_aside`."""
    rows = [row for row in pq.read_table(source).to_pylist() if "HA_Steyr" in row["manuscript"]]
    aside = sorted({row["page"] for row in rows})[::5]
    for number, row in enumerate(rows):
        place = folder / ("put_aside" if row["page"] in aside else "my_lines") / f"{row['page'][:4]}_{number:03}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.with_suffix(".jpg").write_bytes(row["image"]["bytes"])
        place.with_suffix(".gt.txt").write_text(row["text"], encoding="utf-8")


def main(source: str, folder: str, model: str = "medieval") -> None:
    """Write the lines and give the commands."""
    write_lines(source, Path(folder))
    for command in (
        f"transcribe {model} put_aside --knowledge none --beam 5 --out before.tsv",
        f"train --model {model} --data my_lines --epochs 8 --learning-rate 0.001 --out runs/mine",
        "transcribe runs/mine put_aside --out after.tsv",
        "evaluate put_aside before.tsv after.tsv",
    ):
        print("$ fada", command, flush=True)
        subprocess.run([sys.executable, "-m", "fada", *command.split()], cwd=folder, check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
