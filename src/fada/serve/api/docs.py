"""The page that documents the interface: made of its description, without a script, without the network."""

import json
from typing import Any

import jinja2

_PAGE = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(
    """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ info.title }}: interface</title>
<meta name="color-scheme" content="light dark"><link rel="icon" href="/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/docs.css"></head>
<body><header><a class="brand" href="/">fada</a></header>
<main><h1>{{ info.title }} <small>{{ info.version }}</small></h1>
<p>{{ info.description }} The page uses nothing but this interface; <a href="/openapi.json">openapi.json</a> describes
it for programs.</p>
<nav aria-label="Subjects">{% for tag in groups %}<a href="#{{ tag }}">{{ tag }}</a> {% endfor %}</nav>
{% for tag, operations in groups.items() %}
<section><h2 id="{{ tag }}">{{ tag }}</h2>
{% for one in operations %}
<details><summary><code><b>{{ one.method }}</b> {{ one.path }}</code> {{ one.summary }}</summary>
{% if one.parameters %}<h3>Parameters</h3>
<table><thead><tr><th>name</th><th>in</th><th>type</th><th>meaning</th></tr></thead><tbody>
{% for p in one.parameters %}
<tr><td><code>{{ p.name }}</code></td><td>{{ p.in }}</td><td>{{ p.type }}</td><td>{{ p.description or '' }}</td></tr>
{% endfor %}</tbody></table>{% endif %}
{% if one.body %}<h3>Body</h3><pre tabindex="0">{{ one.body }}</pre>{% endif %}
<h3>Answers</h3><ul>{% for status, text in one.answers %}<li><b>{{ status }}</b> {{ text }}</li>{% endfor %}</ul>
{% if one.answer %}<pre tabindex="0">{{ one.answer }}</pre>{% endif %}
</details>
{% endfor %}</section>
{% endfor %}</main></body></html>
"""
)


def documentation(description: dict[str, Any]) -> str:
    """The page."""
    groups: dict[str, list[dict[str, Any]]] = {}
    schemas = description.get("components", {}).get("schemas", {})
    for path, methods in description["paths"].items():
        for method, one in methods.items():
            body = _first(one.get("requestBody", {}).get("content", {}))
            answers = one["responses"]
            good: dict[str, Any] = next((answer for status, answer in answers.items() if status.startswith("2")), {})
            groups.setdefault((one.get("tags") or ["other"])[0], []).append(
                {
                    "method": method.upper(),
                    "path": path,
                    "summary": one.get("description") or one.get("summary", ""),
                    "parameters": [{**p, "type": _type(p.get("schema", {}))} for p in one.get("parameters", [])],
                    "body": _example(body, schemas),
                    "answers": [(status, answer["description"]) for status, answer in answers.items()],
                    "answer": _example(_first(good.get("content", {})), schemas),
                }
            )
    return _PAGE.render(info=description["info"], groups=groups)


def _first(content: dict[str, Any]) -> dict[str, Any]:
    return next((kind.get("schema", {}) for kind in content.values()), {})


def _type(schema: dict[str, Any]) -> str:
    several = schema.get("anyOf") or schema.get("oneOf")
    if several:
        return " or ".join(_type(one) for one in several)
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    return str(schema.get("type", schema.get("$ref", "any").rsplit("/")[-1]))


def _example(schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    shape = _shape(schema, schemas, ())
    return "" if shape is None else json.dumps(shape, ensure_ascii=False, indent=2)


def _shape(schema: dict[str, Any], schemas: dict[str, Any], seen: tuple[str, ...]) -> Any:
    """The names and types of a schema, nested as they are."""
    if not schema:
        return None
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/")[-1]
        return name if name in seen else _shape(schemas.get(name, {}), schemas, (*seen, name))
    if schema.get("type") == "object" and "properties" in schema:
        return {name: _shape(one, schemas, seen) for name, one in schema["properties"].items()}
    if schema.get("type") == "array" and "items" in schema:
        return [_shape(schema["items"], schemas, seen)]
    if "anyOf" in schema:
        shapes = [_shape(one, schemas, seen) for one in schema["anyOf"]]
        return next((shape for shape in shapes if isinstance(shape, dict | list)), _type(schema))
    return _type(schema)
