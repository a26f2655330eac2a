"""The model made one's own: `fada adapt` on the confirmed lines of a document, in a process of its own."""

import json
import re
import shutil
import subprocess
import sys
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import Any

from fada.data.line import LineSet
from fada.errors import FadaError
from fada.serve import work
from fada.serve.desk import Desk
from fada.serve.export import transcriptions
from fada.serve.jobs import Cancelled, Running
from fada.serve.store import Row, update

FEWEST = 5
_FOLDS = 3
_STEPS = "folds/steps.json"
"""Written by `fada adapt` while it trains."""


def ask(desk: Desk, document: int, page: int | None) -> Row:
    """A job that adapts the document's model to its confirmed lines, and reads it again with the result."""
    row = desk.document(document)
    confirmed = desk.store.rows(
        "SELECT count(*) AS n FROM lines JOIN pages ON pages.id = lines.page "
        "WHERE pages.document = ? AND lines.state = 'confirmed' AND trim(lines.text) != ''",
        document,
    )[0]["n"]
    if confirmed < FEWEST:
        raise FadaError(f"{confirmed} confirmed lines, expected at least {FEWEST}: confirm some more, then adapt.")
    unfinished = "SELECT id FROM jobs WHERE document = ? AND kind = 'adapt' AND state IN ('queued', 'running')"
    if desk.store.row(unfinished, document):
        raise FadaError("this document's model is being adapted already. Wait for it, or cancel it.")
    return desk.jobs.add("adapt", document, page=page, name=_free_name(desk, row["name"]))


def _free_name(desk: Desk, name: str) -> str:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    stem = re.sub(r"[^a-z0-9]+", "-", plain.rsplit(".", 1)[0]).strip("-")[:40] or "document"
    number = 1
    while (desk.project.folder / "models" / f"{stem}-{number}").exists():
        number += 1
    return f"{stem}-{number}"


def adapt(desk: Desk, job: Running) -> dict[str, Any]:
    """The work of that job; interrupted, it goes on where it stopped."""
    document = desk.document(job.document or 0)
    folder = desk.project.folder / "runs" / f"adapt-{job.id}"
    folder.mkdir(exist_ok=True)
    lines = folder / "lines.parquet"
    if not lines.exists():
        from fada.data.formats.parquet import write_parquet

        found = [result.line for result in transcriptions(desk, document["id"], "confirmed") if result.line is not None]
        write_parquet(LineSet.of([line for line in found if (line.text or "").strip()], document["name"]), lines)
    out = folder / "model"
    target = desk.project.folder / "models" / job.asked["name"]
    if not target.exists():
        _run(job, desk.project.model(document["model"]), lines, out)
        record = json.loads((out / "adapt.json").read_text(encoding="utf-8"))
        if record["kept"]:
            out.rename(target)
    else:
        record = json.loads((target / "adapt.json").read_text(encoding="utf-8"))
    names = ("lines", "before", "after", "p_value", "kept")
    result = {name: record.get(name) for name in names} | {"model": None}
    if record["kept"]:
        result["model"] = target.name
        desk.store.write(lambda c: update(c, "documents", document["id"], {"model": target.name}))
        read_with(desk, job, document["id"])
    shutil.rmtree(folder, ignore_errors=True)
    return result


def _run(job: Running, model: str, lines: Path, out: Path) -> None:
    """`fada adapt` until it ends; ended when the job is cancelled."""
    command = [sys.executable, "-m", "fada", "adapt", model, "--lines", str(lines), "--out", str(out)]
    said = ""
    with subprocess.Popen(
        [*command, "--folds", str(_FOLDS)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    ) as process:
        try:
            while process.returncode is None:
                if job.stopped:
                    raise Cancelled
                job.tell(*_steps(out), "adapting the model to the confirmed lines")
                with suppress(subprocess.TimeoutExpired):
                    said = process.communicate(timeout=0.3)[1]
        finally:
            if process.poll() is None:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=5)
                process.kill()
    if process.returncode:
        told = [line.removeprefix("fada: ") for line in said.splitlines() if line.startswith("fada: ")]
        raise FadaError(told[-1].strip() if told else f"adapting ended with code {process.returncode}. Try again.")


def _steps(out: Path) -> tuple[int, int]:
    """How far the trainings are: steps done, and of how many."""
    try:
        told = json.loads((out / _STEPS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0, 0
    return told["done"], told["total"]


def read_with(desk: Desk, job: Running, number: int) -> None:
    """Read all lines of a document with its present model, the open page first."""
    document = desk.document(number)
    pages = desk.store.rows(
        "SELECT id FROM pages WHERE document = ? ORDER BY id != ?, number", number, job.asked.get("page") or 0
    )
    for done, page in enumerate(pages):
        job.check()
        job.tell(done, len(pages), "reading with the new model", force=True)
        work.emit(desk, job, document, desk.lines_of(page["id"]))
        desk.tell_page(page["id"])
    work.look(desk, job, number)
