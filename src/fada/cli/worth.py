"""`fada worth`: before any work, what it would bring."""

import typer

from fada.cli.options import NO_DOMAIN, KnowledgeOptions, ReadingOptions, with_knowledge, with_reading
from fada.cli.output import AS_JSON, echo, print_json, print_rows

SHOWN = 10


@with_reading()
@with_knowledge(*NO_DOMAIN)
def worth(
    reading: ReadingOptions,
    known: KnowledgeOptions,
    model: str = typer.Argument(help="Model folder, run folder, hub name, or a model that comes with fada."),
    inputs: list[str] = typer.Argument(help="Lines of one manuscript (any source of lines), with or without text."),
    threads: int | None = typer.Option(None, min=1, help="CPU threads."),
    as_json: bool = AS_JSON,
) -> None:
    """Tell before any work what it would bring: the error to expect, what text can add, which lines to correct first.

    Nothing is needed but the lines. Without a text the language is found among those that the model knows, and the
    rate to expect with text is that of `fada transcribe` as it is. Lines are looked at as it looks at them.
    """
    from fada.cli.transcribe import show_problems
    from fada.experiments.worth import worth as run
    from fada.jobs.prepare import open_model
    from fada.models.folders import resolve
    from fada.models.looks import USUAL

    recognizer, lines = open_model(model, inputs, threads, **reading.given())
    recognizer.use_looks(USUAL)
    emissions = recognizer.emit(lines)
    show_problems([str(one) for one in lines.skipped], lines.notes)
    given, domain = known.told().of_emissions(resolve(model), emissions, reading.domain)
    told = run(emissions, given)
    if as_json:
        print_json({**told.to_dict(), "domain": domain})
        return
    echo(f"{told.lines} lines, {told.characters:,} characters read; domain: {domain}")
    rows = [{"what you have": "nothing: reading without text", "CER to expect (80 % interval)": str(told.predicted)}]
    rows += [{"what you have": n, "CER to expect (80 % interval)": str(rate)} for n, rate in told.expected.items()]
    print_rows(rows)
    echo(f"the recogniser leaves {told.open_bits:.2f} bits per character open")
    if told.frequency_bits is not None:
        echo(f"character frequencies can tell at most {told.frequency_bits:.2f} bits per character of them")
    if told.text_bits is not None and told.text_bits <= 0:
        echo(
            "the text says less of these lines than the frequencies of their letters: it is too short, or not of their "
            "language or spelling, and no gain is to be expected of it"
        )
    elif told.text_bits is not None:
        echo(f"the text tells {told.text_bits:.2f} bits per character more than the frequencies of what was read")
    echo(f"correct first: {', '.join(told.correct_first[:SHOWN])}")
