"""Recipes: YAML files with the settings of a run, each with the place it comes from."""

import os
from pathlib import Path
from typing import Any

import yaml

from fada.errors import FadaError


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
