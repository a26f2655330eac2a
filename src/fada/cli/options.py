"""The options that say how lines are read: one group, the same for every command that reads them."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

PANEL = "Reading"

SHARD = typer.Option(
    None,
    "--shard",
    help="3/64: only the third of 64 parts of the lines, written to out.003-of-064.tsv for --out out.tsv; "
    "`fada merge` joins the parts.",
)


def _option(name: str, help: str, **more: Any) -> Any:
    return typer.Option(f"--{name}", help=help, rich_help_panel=PANEL, **more)


@dataclass(frozen=True)
class ReadingOptions:
    """How lines are read, as asked for on the command line; see :class:`fada.data.reading.Reading`."""

    split: Annotated[str | None, _option("split", "Only this split.")] = None
    text_column: Annotated[str | None, _option("text-column", "Column of the transcription.")] = None
    image_column: Annotated[str | None, _option("image-column", "Column of the image.")] = None
    audio_column: Annotated[str | None, _option("audio-column", "Column of the sound.")] = None
    id_column: Annotated[str | None, _option("id-column", "Column of the line's id.")] = None
    domain_column: Annotated[str | None, _option("domain-column", "Column of the domain: century, region, accent.")] = (
        None
    )
    domain: Annotated[str | None, _option("domain", "The domain of all lines.")] = None
    domain_from: Annotated[
        str | None,
        _option(
            "domain-from",
            "'folder': the first below the source; 'folder:2', 'folder:-1': another one; 'file': the file's name; a "
            "table manuscript,domain (.csv, .json); or a regular expression over the path.",
        ),
    ] = None
    read_as: Annotated[str | None, _option("read-as", "The source's format, if it is mistaken.")] = None
    images: Annotated[Path | None, _option("images", "Folder of the page images, if not where ALTO or PAGE say.")] = (
        None
    )
    encoding: Annotated[
        str | None, _option("encoding", "Of manifests, texts and .gt.txt, if not UTF-8: latin-1, cp1252.")
    ] = None
    grow: Annotated[
        float, _option("grow", "Widen outlines by this share of the height, where they cut accents off.", min=0, max=2)
    ] = 0.0
    allow_outside: Annotated[bool, _option("allow-outside", "Follow paths that leave the source's folder.")] = False

    def given(self) -> dict[str, Any]:
        """What was asked for, as :func:`fada.read_lines` takes it; what is as by default is left out."""
        names = {"read_as": "format"}
        values = {names.get(one.name, one.name): getattr(self, one.name) for one in fields(self)}
        defaults = {names.get(one.name, one.name): one.default for one in fields(self)}
        return {name: value for name, value in values.items() if value != defaults[name]}


def given(context: typer.Context) -> dict[str, Any]:
    """The options that the user gave a command, by the names of its parameters."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name: value for name, value in context.params.items() if getattr(sources[name], "name", "") != "DEFAULT"}


TEXTS = ("text_column", "domain_column", "domain", "domain_from", "encoding", "split")
"""The options that matter where only texts are read."""


def with_reading(*only: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of :class:`ReadingOptions`, which it gets as its argument `reading`.

    Args:
        only: some of the options; all by default.
    """
    hints = get_type_hints(ReadingOptions, include_extras=True)
    chosen = [one for one in fields(ReadingOptions) if not only or one.name in only]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        options = [
            inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
            for one in chosen
        ]
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in signature.parameters.values()
            if parameter.name != "reading"
        ]

        @wraps(command)
        def run(**values: Any) -> None:
            reading = ReadingOptions(**{one.name: values.pop(one.name) for one in chosen})
            command(reading=reading, **values)

        run.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *options]}
        return run

    return decorate
