"""Settings from files and options: what is wrong in them, as a sentence."""

import os
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from fada.errors import FadaError

Model = TypeVar("Model", bound=BaseModel)


def validated(model: type[Model], values: Any, where: object) -> Model:
    """`values` as a `model`; the first mistake is named, with the place `where` the values come from."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"])) or "settings"
        found = "" if first["type"] == "missing" else f" (found {first['input']!r:.80})"
        unknown = first["type"] == "extra_forbidden" and len(first["loc"]) == 1
        known = f" Known settings: {', '.join(model.model_fields)}." if unknown else ""
        raise FadaError(f"{where}, {name}: {first['msg']}{found}.{known}") from None


def read_recipe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The settings of a recipe; keys are checked where they are used."""
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FadaError(f"{path}: no such recipe.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}, line {mark.line + 1}" if mark else str(path)
        raise FadaError(f"{where}: not valid YAML ({getattr(error, 'problem', error)}).") from None
    if not isinstance(values, dict):
        found = "nothing" if values is None else type(values).__name__
        raise FadaError(f"{path}: expected `key: value` lines, found {found}.")
    return values
