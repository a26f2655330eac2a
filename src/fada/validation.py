"""Settings from files and options: what is wrong in them, as a sentence."""

from typing import Any, TypeVar

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
