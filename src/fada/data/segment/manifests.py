"""IIIF manifests (presentation 2 and 3) whose images lie on this disk; nothing is fetched."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from fada.common.settings import read_json
from fada.data.places import Base
from fada.errors import FadaError


def images_of(manifest: Path) -> list[Path]:
    """The images of a manifest in the order of its pages.

    An image is what its canvas names below the folder of the manifest, or else a file of that name beside it.
    """
    content = read_json(manifest, "Expected a IIIF manifest.")
    try:
        names = [*_names(content)]
    except RecursionError:
        raise FadaError(f"{manifest}: nested too deeply. Expected a IIIF manifest.") from None
    if not names:
        raise FadaError(f"{manifest}: no images of canvases in it, expected a IIIF manifest (presentation 2 or 3).")
    found = [(name, _local(name, manifest.parent)) for name in names]
    missing = [name for name, file in found if file is None]
    if missing:
        raise FadaError(
            f"{manifest}: {len(missing)} of {len(found)} images are not here (the first: {missing[0]:.200}). Nothing "
            "is fetched from the net: put them beside the manifest, under the names that their addresses end in."
        )
    return [file for _, file in found if file is not None]


def _names(content: Any) -> Iterator[str]:
    """What the canvases call their images, one each."""
    for canvas in _canvases(content):
        for body in _bodies(canvas):
            name = _first(body)
            if name:
                yield name
                break


def _canvases(content: Any) -> Iterator[Any]:
    yield from _list(content, "items")
    yield from _list(next(iter(_list(content, "sequences")), None), "canvases")


def _bodies(canvas: Any) -> Iterator[Any]:
    for page in _list(canvas, "items"):
        yield from (note.get("body") for note in _list(page, "items") if isinstance(note, dict))
    yield from (note.get("resource") for note in _list(canvas, "images") if isinstance(note, dict))


def _first(body: Any) -> str | None:
    """The address of an image, or of the first of those to choose from."""
    if isinstance(body, list):
        return next((name for one in body if (name := _first(one))), None)
    if not isinstance(body, dict):
        return None
    choice = body.get("default") or body.get("items")
    name = _first(choice) if choice else body.get("id") or body.get("@id")
    return name if isinstance(name, str) else None


def _list(content: Any, key: str) -> list[Any]:
    found = content.get(key) if isinstance(content, dict) else None
    return found if isinstance(found, list) else []


def _local(name: str, folder: Path) -> Path | None:
    """The file that an address stands for, inside the folder of the manifest."""
    try:
        address = urlsplit(name)
    except ValueError:  # no address
        return None
    path = unquote(address.path)
    asked = [path] if address.scheme in ("", "file") else []
    for one in (*asked, path.rpartition("/")[2]):
        with suppress(FadaError):
            return Path(Base(folder).find(folder, one)).resolve()
    return None
