"""`fada knowledge`: what is known of a language or domain, in one file."""

from pathlib import Path

import typer

from fada.cli.options import ReadingOptions, with_reading
from fada.cli.output import Format, chosen_format, echo, print_json, print_rows
from fada.errors import FadaError

group = typer.Typer(
    help="What is known of a language or domain, in one file: its language model and how often it uses each character.",
    no_args_is_help=True,
)


@group.command("build")
@with_reading("text_column", "encoding", "split")
def build(
    reading: ReadingOptions,
    texts: list[str] = typer.Argument(help="Text files, tables, ALTO or PAGE files, or folders of them."),
    out: Path = typer.Option(..., "--out", "-o", help="The .fada file to write."),
    name: str | None = typer.Option(
        None, "--name", help="Of the domain: la for a language, la-13 for a century of it. By default that of the file."
    ),
    licence: str | None = typer.Option(None, "--licence", help="Of the texts."),
    credit: list[str] = typer.Option([], "--credit", help="Whom to name for the texts; repeatable."),
    lm_order: int = typer.Option(6, "--lm-order", min=1, help="Longest n-gram of the language model."),
) -> None:
    """Make a .fada file from texts, for --knowledge. All texts together are one domain.

    Of texts with splits only the train split is read, unless --split says otherwise.
    """
    from dataclasses import replace

    from fada.common.files import check_file
    from fada.decoding.knowledge import SUFFIX, Knowledge, read_texts, write_knowledge

    if out.suffix != SUFFIX:
        raise FadaError(f"{out}: expected a name that ends in {SUFFIX}.")
    check_file(out)
    name = name or out.stem
    lines = [text for part in read_texts(texts, **reading.given()).values() for text in part]
    known = Knowledge.from_texts(lines, name=name, order=lm_order)
    told = {"sources": tuple(texts), "licence": licence, "credits": tuple(credit)}
    about = known.about.model_copy(update=told)
    write_knowledge(replace(known, about=about), out)
    bits = "" if about.bits is None else f", {about.bits:.2f} bits for a character of other text of its kind"
    echo(f"{out}: {about.name}, {about.characters} characters of text{bits}")


@group.command("list")
def show_all(
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    as_csv: bool = typer.Option(False, "--csv", help="Print the table as CSV."),
) -> None:
    """The knowledge that comes with fada."""
    from fada.decoding.knowledge import built_in_knowledge, read_about

    shown = chosen_format(as_json, as_csv)
    found = [read_about(path) for path in built_in_knowledge().values()]
    if shown is Format.JSON:
        print_json([about.model_dump(mode="json") for about in found])
        return
    rows = [
        {
            "name": about.name,
            "language": about.language or "",
            "century": "" if about.century is None else about.century,
            "characters": about.characters,
            "bits": about.bits,
            "sources": len(about.sources),
        }
        for about in found
    ]
    print_rows(rows, "knowledge that comes with fada", shown)


@group.command("show")
def show(
    file: str = typer.Argument(help="A .fada file, or the name of a built-in one."),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """What a .fada file is made from, and whom to name for it."""
    from fada.decoding.knowledge import read_about, resolve_knowledge

    about = read_about(resolve_knowledge(file))
    if as_json:
        print_json(about.model_dump(mode="json"))
        return
    for name, value in about.model_dump(exclude={"version"}).items():
        told = ", ".join(value) if isinstance(value, tuple) else value
        if told not in (None, ""):
            echo(f"{name}: {told}")
