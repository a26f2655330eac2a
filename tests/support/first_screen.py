"""What the README shows, tried in the environment that runs this: that of the plain package and nothing else.

``make test-fresh`` runs it: no extras, none of the tests' own packages. Commands and Python are taken from the README
as they are printed; what needs an extra has to say which.
"""

import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from PIL import Image, ImageDraw

README = Path(__file__).parents[2] / "README.md"
FADA = str(Path(sysconfig.get_path("scripts")) / "fada")
LINES = [f"le roi {word} bon" for word in ("etait", "estoit", "fut", "sera", "est", "dit", "vit", "vint")]
NEEDS = {"adapt": "fada[train]", "analyze": "fada[analysis]", "train": "fada[train]"}
"""Commands that the plain package cannot do, and what they say."""


def run(folder: Path, *command: str) -> None:
    """Run a command, show it, and stop if it does not end as it should."""
    print("$ fada", *command, flush=True)
    done = subprocess.run([FADA, *command], cwd=folder, capture_output=True, text=True, encoding="utf-8", check=False)
    told, extra = done.stdout + done.stderr, NEEDS.get(command[0])
    as_expected = done.returncode == 0 if extra is None else done.returncode == 2 and extra in told
    if not as_expected or "Traceback" in told or "internal error" in told:
        sys.exit(f"{told}\nexit code {done.returncode}")


def write_files(folder: Path) -> None:
    """The files that the README names: a line, an ALTO page with its image, two folders of letters, an edition."""
    for name, text in {"letters/1650/a": "le roy estoit bon", "letters/1850/a": "le roi était bon"}.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / f"{name}.txt").write_text(f"{text}\n" * 50, encoding="utf-8")
    (folder / "edition.txt").write_text("\n".join(LINES * 50), encoding="utf-8")
    page = Image.new("L", (400, 60 * len(LINES)), 230)
    for number, text in enumerate(LINES):
        ImageDraw.Draw(page).text((20, 60 * number + 20), text, fill=20)
    page.crop((0, 0, 400, 60)).save(folder / "line.png")
    texts = "".join(
        f'<TextLine ID="l{i}" HPOS="0" VPOS="{60 * i}" WIDTH="400" HEIGHT="60"><String CONTENT="{text}"/></TextLine>'
        for i, text in enumerate(LINES)
    )
    for name in ("pages", "corrected"):
        (folder / name).mkdir()
        page.save(folder / name / "p1.png")
        (folder / name / "p1.xml").write_text(
            '<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#"><Description><sourceImageInformation>'
            "<fileName>p1.png</fileName></sourceImageInformation></Description><Layout>"
            f'<Page ID="p" WIDTH="400" HEIGHT="{page.height}"><PrintSpace>{texts}</PrintSpace></Page></Layout></alto>',
            encoding="utf-8",
        )


def try_readme(folder: Path, text: str) -> None:
    """The commands of its first table, then every block that is not marked, in their order."""
    for command in re.findall(r"^\|[^|]*\| `fada ([^`]+)` \|", text, re.MULTILINE):
        run(folder, *shlex.split(command))
    for reason, kind, code in re.findall(r"(<!-- not run: .+? -->\n)?```(bash|python)\n(.*?)```", text, re.DOTALL):
        if reason:
            continue
        if kind == "python":
            print(f">>> {code.splitlines()[0]} ...", flush=True)
            subprocess.run([sys.executable, "-I", "-c", code], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        for line in code.splitlines() if kind == "bash" else ():
            run(folder, *shlex.split(line, comments=True)[1:])


def main() -> None:
    """Try it in an empty folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        run(folder, "warm")
        run(folder, "emit", "medieval", "line.png", "--out", "emissions.npz")
        try_readme(folder, README.read_text(encoding="utf-8"))
        run(folder, "transcribe", "line.png", "--hot-word", "roi", "--out", "out.hocr")
        run(folder, "transcribe", "pages", "--out", "out.tsv")
        run(folder, "decode", "emissions.npz", "--targets", "targets.json", "--domain", "1850", "--out", "guided.tsv")
        run(folder, "evaluate", "pages", "out.tsv")
        run(folder, "report", "--reference", "pages", "out.tsv", "--out", "report.html")
        run(folder, "train", "--data", "pages", "--out", "run")
    # What these sentences advise finds the package although no index has it: pip takes the installed one.
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--dry-run"]
    subprocess.run([*install, *NEEDS.values()], check=True)
    print("The README works.")


if __name__ == "__main__":
    main()
