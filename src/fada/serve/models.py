"""The recognisers that a desk can choose from."""

import json
from pathlib import Path
from typing import Any

from fada.errors import FadaError
from fada.models.folders import PRETRAINED, is_model_folder
from fada.models.registry import LOADED
from fada.serve.desk import Desk

_LANGUAGES = {
    "medieval": ["Latin", "French", "Italian", "Castilian", "Catalan", "Occitan", "Navarro-Aragonese"],
    "french": ["French"],
    "trocr-greek": ["Greek"],
}


def available(desk: Desk) -> list[dict[str, Any]]:
    """The models of the package, those adapted at this desk, and the one that the server was started with."""
    found = {folder.name: folder for folder in sorted(PRETRAINED.iterdir()) if is_model_folder(folder)}
    own = {f.name: f for f in sorted((desk.project.folder / "models").iterdir()) if is_model_folder(f)}
    given = {} if desk.default_model in found else {desk.default_model: Path(desk.default_model)}
    return [_told(name, folder) for name, folder in {**given, **found, **own}.items()]


def _told(name: str, folder: Path) -> dict[str, Any]:
    config = next((f for f in (folder / "config.json", folder / "model" / "config.json") if f.is_file()), None)
    kind = json.loads(config.read_text(encoding="utf-8")).get("model_type") if config else None
    description = LOADED.get(name, "")
    if (folder / "adapt.json").is_file():
        record = json.loads((folder / "adapt.json").read_text(encoding="utf-8"))
        description = f"adapted here: CER {record.get('before', 0):.1f} % → {record.get('after', 0):.1f} %"
    return {
        "name": name,
        "description": description,
        "kind": "tokens" if kind in ("vision-encoder-decoder", "whisper") else "ctc",
        "languages": _LANGUAGES.get(name, []),
    }


def check(desk: Desk, name: str) -> str:
    """Refuse a model that cannot be chosen."""
    known = [model["name"] for model in available(desk)]
    if name not in known:
        raise FadaError(f"no model {name!r} here. There are: {', '.join(known)}.")
    return name
