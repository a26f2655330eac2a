"""Frequencies of texts by domain, and the reports of runs."""

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, File, UploadFile
from fastapi import Path as PathParameter
from fastapi.responses import HTMLResponse

from fada.errors import FadaError
from fada.serve.api.common import ERRORS, OfDesk
from fada.serve.api.knowledge import text_of
from fada.serve.desk import Desk, MissingError
from fada.serve.schema import FrequencyTable, RunHead
from fada.text.characters import natural_key

router = APIRouter(tags=["exploring"], responses=ERRORS)
_MOST_CHARACTERS = 300
_MOST_FILES = 100
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "font-src data:"
)
"""A report is one file with its own script and style; it gets no origin, so it cannot speak to the desk."""


@router.post("/frequencies")
def frequencies(
    files: Annotated[list[UploadFile], File(description="Plain text, UTF-8; the name of a file is its domain.")],
) -> FrequencyTable:
    """Character frequencies of texts by domain, how alike the domains are, and which characters drive the shift."""
    from fada.targets.figures import shift_pair, shift_rows
    from fada.targets.target_set import TargetSet

    if len(files) > _MOST_FILES:
        raise FadaError(f"{len(files)} texts, expected at most {_MOST_FILES}.")
    texts: dict[str, list[str]] = {}
    for file in files:
        name, text = text_of(file)
        texts.setdefault(Path(name).stem or name, []).extend(text.splitlines())
    ordered = {name: texts[name] for name in sorted(texts, key=natural_key)}
    if empty := [name for name, lines in ordered.items() if not "".join(lines).strip()]:
        raise FadaError(f"{empty[0]}: there is no text in it.")
    targets = TargetSet.from_texts(ordered)
    overall = targets.overall
    shown = sorted(range(len(overall.symbols)), key=lambda i: -overall.counts[i])[:_MOST_CHARACTERS]
    pair = shift_pair(targets) if len(targets) > 1 else None
    shift = [{**row, "from": pair[0], "to": pair[1]} for row in shift_rows(targets, pair)[:40]] if pair else []
    return FrequencyTable(
        domains=list(targets),
        characters=[overall.symbols[i] for i in shown],
        table=targets.frequencies[:, shown].tolist(),
        correlations=targets.pearson().tolist(),
        shift=shift,
    )


def _runs(desk: Desk) -> dict[str, Path]:
    """Folders with a report below the folder `runs` of the project; links are not followed."""
    place = desk.project.folder / "runs"
    found = [f for f in sorted(place.glob("*/report.html")) if not f.is_symlink() and not f.parent.is_symlink()]
    return {file.parent.name: file for file in found}


@router.get("/runs")
def list_runs(desk: OfDesk) -> list[RunHead]:
    """Runs with a report, from the folder `runs` of the project."""
    return [RunHead(id=name, name=name, report=True) for name in _runs(desk)]


@router.get("/runs/{run}/report", response_model=None, responses={200: {"content": {"text/html": {}}}})
def run_report(desk: OfDesk, run: Annotated[str, PathParameter(max_length=200)]) -> HTMLResponse:
    """The report of a run, shut off from the desk."""
    found = _runs(desk).get(run)
    if found is None:
        raise MissingError(f"there is no run {run!r} with a report.")
    return HTMLResponse(found.read_text(encoding="utf-8"), headers={"content-security-policy": REPORT_POLICY})
