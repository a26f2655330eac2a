"""IIIF manifests with local images: both versions, in their order; nothing fetched, nothing outside."""

import json
from pathlib import Path
from typing import Any

import pytest

from fada import FadaError
from fada.data.segment.photographs import find_files


def manifest(folder: Path, names: list[str], version: int) -> Path:
    """A manifest whose canvases show these images."""
    content: dict[str, Any]
    if version == 3:
        bodies: list[Any] = [{"id": name, "type": "Image"} for name in names]
        bodies[0] = {"type": "Choice", "items": [bodies[0], {"id": "infrared.png", "type": "Image"}]}
        notes = [{"type": "Annotation", "motivation": "painting", "body": body} for body in bodies]
        content = {"items": [{"type": "Canvas", "items": [{"items": [note]}]} for note in notes]}
    else:
        resources: list[Any] = [{"@id": name, "@type": "dctypes:Image"} for name in names]
        resources[0] = {"@type": "oa:Choice", "default": resources[0], "item": []}
        content = {"sequences": [{"canvases": [{"images": [{"resource": resource}]} for resource in resources]}]}
    file = folder / "manifest.json"
    file.write_text(json.dumps(content))
    return file


@pytest.mark.parametrize("version", [2, 3])
def test_the_images_of_a_manifest_are_its_pages_in_their_order(tmp_path: Path, version: int) -> None:
    (tmp_path / "images").mkdir()
    for name in ("images/b 1.png", "a.png", "c.png"):
        (tmp_path / name).touch()
    names = ["images/b%201.png", "https://example.org/iiif/a.png", (tmp_path / "c.png").as_uri()]
    found = find_files(manifest(tmp_path, names, version))
    assert found == [tmp_path / "images/b 1.png", tmp_path / "a.png", tmp_path / "c.png"]


@pytest.mark.parametrize("version", [2, 3])
def test_what_is_remote_or_outside_gets_a_sentence(tmp_path: Path, version: int) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret.png").touch()
    (inside / "a.png").touch()
    names = ["a.png", "https://example.org/iiif/f1/full/full/0/default.jpg", "../secret.png"]
    with pytest.raises(FadaError, match=r"2 of 3 images are not here \(the first: https://example.org"):
        find_files(manifest(inside, names, version))
    with pytest.raises(FadaError, match=r"1 of 1 images are not here \(the first: http://\[a"):
        find_files(manifest(inside, ["http://[a/b.png"], version))


@pytest.mark.parametrize("content", ["{}", "[]", '{"items": [1, {"items": [2, {"items": [{"body": 3}]}]}]}'])
def test_another_json_file_gets_a_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "other.json").write_text(content)
    with pytest.raises(FadaError, match="expected a IIIF manifest"):
        find_files(tmp_path / "other.json")
