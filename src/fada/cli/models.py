"""`fada models`: what can be trained, and what a model is."""

import typer

from fada.cli.output import AS_CSV, AS_JSON, chosen_format, print_rows

group = typer.Typer(help="Recognition models: list what can be trained, describe one.", no_args_is_help=True)


@group.command("list")
def list_models(as_json: bool = AS_JSON, as_csv: bool = AS_CSV) -> None:
    """Models that are built new, and examples of those that are loaded from a folder or the hub."""
    from fada.models.registry import BUILT, LOADED

    rows = [{"model": name, "made": "built", "what": what} for name, what in BUILT.items()]
    rows += [{"model": name, "made": "loaded", "what": what} for name, what in LOADED.items()]
    print_rows(rows, "Models for fada train --model", chosen_format(as_json, as_csv))


@group.command()
def describe(
    name: str = typer.Argument(help="One of `fada models list`, a model folder, a run folder, or a hub name."),
    as_json: bool = AS_JSON,
    as_csv: bool = AS_CSV,
) -> None:
    """Kind, size, alphabet and settings of a model."""
    from fada.models.registry import describe as describe_model

    rows = [{"property": key, "value": str(value)} for key, value in describe_model(name).items()]
    print_rows(rows, name, chosen_format(as_json, as_csv))
