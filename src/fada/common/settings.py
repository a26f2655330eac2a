"""Settings from files and options: what is wrong in them, as a sentence."""

import json
import os
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from fada.common.kinds import refuse_kind
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


class _Plain(yaml.SafeLoader):
    """No aliases, a few lines of which can stand for gigabytes, and no key twice: one would be lost."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.composer.ComposerError(None, None, f"the alias *{event.anchor} is not taken", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in names:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key.value} stands twice", key.start_mark)
            names.add(key.value)
        return super().construct_mapping(node, deep)


def read_recipe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The settings of a recipe; keys are checked where they are used."""
    try:
        values = yaml.load(_text(path), _Plain)
    except FileNotFoundError:
        raise FadaError(f"{path}: no such recipe.") from None
    except RecursionError:
        raise FadaError(f"{path}: nested too deeply, expected `key: value` lines.") from None
    except ValueError as error:  # a date or a number that Python has not
        raise FadaError(f"{path}: not valid YAML ({error}).") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}, line {mark.line + 1}" if mark else str(path)
        raise FadaError(f"{where}: not valid YAML ({getattr(error, 'problem', error)}).") from None
    if not isinstance(values, dict):
        found = "nothing" if values is None else type(values).__name__
        raise FadaError(f"{path}: expected `key: value` lines, found {found}.")
    return values


class TwiceError(ValueError):
    """A key that stands twice in a JSON object."""


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, for `object_pairs_hook`; a key that stands twice is an error: the last one would win."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise TwiceError(f"the key {twice!r} stands twice; remove one of the two")
    return found


def read_json(path: str | os.PathLike[str], remedy: str = "", *, unique: bool = False) -> Any:
    """What a JSON file of ours or of a user holds; a file that is not JSON is named, with what to do (`remedy`).

    `unique` refuses keys that stand twice, in what is written by hand.
    """
    try:
        return json.loads(_text(path), object_pairs_hook=unique_keys if unique else None)
    except (ValueError, RecursionError) as error:
        why = error if isinstance(error, ValueError) else "nested too deeply"
        raise FadaError(f"{path}: not readable as JSON ({why}). {remedy}".rstrip()) from None


def _text(path: str | os.PathLike[str]) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        refuse_kind(error.object, path, "settings as JSON or YAML")
        raise FadaError(f"{path}: not UTF-8 text (byte {error.start} is 0x{error.object[error.start]:02x}).") from None
