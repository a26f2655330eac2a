"""Desks for tests: a project folder with documents whose emissions are made on the spot, and the real application."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from PIL import Image, ImageDraw
from starlette.testclient import TestClient

from fada.serve import lines, work
from fada.serve.app import create_app
from fada.serve.desk import Desk
from fada.serve.project import Limits, Project
from fada.serve.store import insert, now
from fada.serve.worker import _save
from tests.support.commands import FADA

SYMBOLS = ("", *"abcdefghijklmnopqrstuvwxyz ", "⁊", "ꝑ", "\u0303")
TEXTS = ("the quick brown fox", "jumps ouer the lazy", "dog ⁊ runs away")
SERVER = [*FADA, "serve"]


def spelt(text: str, symbols: Sequence[str] = SYMBOLS, *, seed: int = 0, doubt: float = 0.3) -> np.ndarray:
    """(frames, classes) log-probabilities in which `text` is the most probable reading, every third frame a letter."""
    rng = np.random.default_rng(seed)
    classes = [0]
    for character in text:
        classes += [symbols.index(character), 0, 0]
    noise = rng.dirichlet(np.full(len(symbols), 0.05), len(classes))
    certain = np.eye(len(symbols))[classes]
    mixed = (1 - doubt) * certain + doubt * noise
    return np.log(mixed / mixed.sum(1, keepdims=True) + 1e-12).astype(np.float32)


def line_picture(text: str, height: int = 40) -> Image.Image:
    """A line image."""
    image = Image.new("L", (12 * len(text) + 20, height), 240)
    ImageDraw.Draw(image).text((10, height // 4), text.encode("ascii", "replace").decode(), fill=20)
    return image


def put_document(
    desk: Desk,
    texts: Sequence[str] = TEXTS,
    *,
    model: str = "medieval",
    pages: int = 1,
    emitted: bool = True,
    symbols: Sequence[str] = SYMBOLS,
    doubt: float = 0.3,
    **values: str,
) -> int:
    """A document that was read: pages of lines, one below the other, with emissions (if any) that spell `texts`."""
    store, project = desk.store, desk.project
    desk.keep_alphabet(model, {"kind": "ctc", "symbols": list(symbols), "blank": 0})
    values = {"name": "a manuscript", "model": model, "direction": "ltr", "created": now(), **values}
    document = store.write(lambda c: insert(c, "documents", values))
    folder = project.source(document)
    folder.mkdir()
    width, height = 400, 60 * len(texts) + 20
    for number in range(1, pages + 1):
        file = folder / f"page{number}.png"
        image = Image.new("L", (width, height), 240)
        for place, text in enumerate(texts):
            image.paste(line_picture(text), (10, 60 * place + 10))
        image.save(file)
        page_values = {
            "document": document,
            "number": number,
            "name": f"page{number}",
            "file": file.relative_to(project.folder).as_posix(),
            "media": "image",
            "width": width,
            "height": height,
            "upright": 1,
            "state": "read",
        }
        page = store.write(partial(insert, table="pages", values=page_values))
        emissions: dict[int, str] = {}
        for place, text in enumerate(texts):
            top = 60 * place + 10
            outline = [[10, top], [390, top], [390, top + 40], [10, top + 40]]
            row = {"page": page, "place": place, "outline": outline, "baseline": [[10, top + 30], [390, top + 30]]}
            line = store.write(partial(_added, row=row))
            if not emitted:
                continue
            name = work.emission_name(desk.line(line), desk.page(page), model)
            _save(project.emission_file(document, name), spelt(text, symbols, seed=place, doubt=doubt))
            emissions[line] = name
        if emitted:
            work.store_readings(desk, desk.document(document), emissions, {})
    return document


def _added(connection: Any, row: dict[str, Any]) -> int:
    return lines.add(connection, row, "reader")


@contextmanager
def opened(folder: Path, *, limits: Limits | None = None, token: str | None = None, **options: Any) -> Iterator[Any]:
    """The application of a desk and a client of it."""
    desk = Desk(Project(folder), limits or Limits(), model=options.pop("model", "medieval"), **options)
    app = create_app(desk, token=token)
    with TestClient(app, base_url="http://127.0.0.1:8765", raise_server_exceptions=False) as client:
        cast(Any, client).desk = desk
        yield client


def finished(client: Any, job: int) -> dict[str, Any]:
    """A job when it has ended."""
    while True:
        found = client.get(f"/api/jobs/{job}").json()
        if found["state"] in ("done", "failed", "cancelled"):
            return found
        time.sleep(0.05)
