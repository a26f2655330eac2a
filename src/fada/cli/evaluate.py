"""`fada evaluate`: error rates per domain with intervals, systems side by side, an exit code for other people's CI."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import typer

from fada.cli.options import EQUIVALENCES, NO_DOMAIN, KnowledgeOptions, ReadingOptions, with_knowledge, with_reading
from fada.cli.output import Format, chosen_format, echo, print_json, print_rows, readable
from fada.errors import FadaError

if TYPE_CHECKING:
    from fada.common.tables import Cells
    from fada.evaluation.edits import TextOptions
    from fada.evaluation.predictions import Systems
    from fada.evaluation.systems import SystemsEvaluation

Lists: TypeAlias = "dict[str, dict[str, list[Cells]]]"
"""Rows by what they list and by system."""
THRESHOLD_EXCEEDED = 3
"""Exit code when the error rate is above ``--max-cer``; 1 is a failure of ours, 2 the user's mistake."""
FEW_CLUSTERS = 5
"""Intervals of fewer pages hold the truth clearly less often than 95 times in 100, whatever the pages."""


@with_reading("domain", "domain_from", "encoding", "id_column", "read_as")
@with_knowledge(*NO_DOMAIN)
def evaluate(
    reading: ReadingOptions,
    known: KnowledgeOptions,
    sources: list[Path] = typer.Argument(
        help="A run folder; a table (parquet, CSV, TSV, JSONL); stored emissions (.npz); or two: references and "
        "hypotheses (text files, tables, ALTO, PAGE, hOCR), of one system or several. With --seeds any number of the "
        "first kinds."
    ),
    reference_column: str | None = typer.Option(None, help="Column of the reference text."),
    hypothesis_column: list[str] = typer.Option([], help="Column of the hypothesis; repeat for several systems."),
    domain_column: str | None = typer.Option(None, help="Column of the domain (century, region, …)."),
    system: list[str] = typer.Option([], help="Evaluate only this system; repeatable."),
    baseline: str | None = typer.Option(None, help="System the others are tested against; the first if not given."),
    split: str | None = typer.Option(None, help="Only rows of this split."),
    by: list[str] = typer.Option([], help="Also per value of this column, worst first (page, length); repeatable."),
    clusters: str | None = typer.Option(None, help="Resample whole values of this column (page) instead of lines."),
    average: str = typer.Option("micro", help="micro: all edits over all characters; macro: mean of the lines' rates."),
    units: str = typer.Option("codepoints", help="codepoints, or graphemes (a letter with its marks is one)."),
    normalization: str = typer.Option(
        "", help="Forgive, with commas: nfc, case, diacritics, punctuation, uv, ij, spaces. Exact if not given."
    ),
    equivalences: Path | None = EQUIVALENCES,
    pages: bool = typer.Option(False, "--pages", help="Compare whole pages, however they are divided into lines."),
    skip_empty: bool = typer.Option(
        False, "--skip-empty", help="Leave out lines whose reference is empty: nobody has transcribed them yet."
    ),
    bootstrap: int = typer.Option(1000, min=0, help="Resamples for the 95 % intervals; 0 for none."),
    resamples: int = typer.Option(10_000, min=0, help="Resamples for the paired tests."),
    seed: int = typer.Option(0, help="Seed of the resampling."),
    seeds: bool = typer.Option(False, "--seeds", help="The sources are runs that differ in their seed: mean and SEM."),
    tuned: Path | None = typer.Option(None, help="For emissions: decode with these tuned weights too (fada tune)."),
    lines: Path | None = typer.Option(
        None, help="For emissions: references and domains by line id, if they do not hold them (any source of lines)."
    ),
    confusions: int = typer.Option(0, min=0, help="Show so many of the most frequent confusions."),
    characters: int = typer.Option(0, min=0, help="Show so many characters most helped and most hurt by each system."),
    worst: int = typer.Option(0, min=0, help="Show so many of the worst lines."),
    max_cer: float | None = typer.Option(None, help="Exit with code 3 if the CER (percent) of any system is above."),
    output: Path | None = typer.Option(None, "--out", "-o", help="Write the whole result as JSON."),
    as_json: bool = typer.Option(False, "--json", help="Print the whole result as JSON."),
    as_csv: bool = typer.Option(False, "--csv", help="Print the main table as CSV."),
) -> None:
    """Error rates (CER, WER, NED in percent) overall and per domain, with 95 % intervals and paired tests.

    Exit codes: 0 done, 2 a mistake in the input, 3 the error rate is above --max-cer.
    """
    from fada.common.files import write_json
    from fada.evaluation.edits import parse_normalization
    from fada.evaluation.predictions import PREDICTIONS
    from fada.evaluation.scores import Scoring
    from fada.evaluation.sources import read_systems
    from fada.evaluation.systems import evaluate_systems, seed_rows

    if not seeds and len(sources) > 1 and any((source / PREDICTIONS).is_file() for source in sources):
        raise FadaError(f"{len(sources)} sources: give one run folder, or add --seeds for runs that differ in theirs.")
    columns = {
        "--reference-column": reference_column,
        "--hypothesis-column": hypothesis_column,
        "--domain-column": domain_column,
        "--split": split,
    }
    for_emissions: dict[str, Path | str | list[str] | None] = {
        "--tuned": tuned,
        "--targets": known.targets,
        "--text": known.text,
        "--knowledge": known.knowledge,
    }
    _check_emissions(sources, seeds, [name for name in columns if columns[name]], for_emissions)

    def load(source: Path, *hypotheses: Path) -> "Systems":
        if _is_emissions(source):
            from fada.tuning.decode import decode_tuned, open_search, usual_weights
            from fada.tuning.tuned import Tuned

            weights = None if tuned is None else Tuned.load(tuned)
            order, share = (6, 0.5) if weights is None else (weights.lm_order, weights.lm_share)
            told = known.told().of_domain(reading.domain)
            by_default = weights is None
            smoothing = "kneser-ney" if by_default and told.says_text else None
            knowledge = told.load(order=order, share=share, smoothing=smoothing)
            search = open_search(source, knowledge, lines, domain=reading.domain)
            usual = usual_weights(search, guided=known.targets is not None) if by_default else None
            return decode_tuned(search, weights, str(source), usual).only(system)
        return read_systems(
            source,
            *hypotheses,
            reference_column=reference_column,
            hypothesis_columns=hypothesis_column,
            domain_column=domain_column,
            systems=system,
            split=split,
            pages=pages,
            reading=reading.given(),
        )

    loaded = [load(source) for source in sources] if seeds else [load(*sources)]
    if skip_empty:
        loaded = [systems.transcribed() for systems in loaded]
    # average and units are checked by the library, which names the choices
    forgiven = parse_normalization(normalization, equivalences)
    scoring = Scoring(average, units, forgiven, bootstrap, resamples, seed)  # type: ignore[arg-type]
    results = [evaluate_systems(systems, baseline, scoring, groups=by, clusters=clusters) for systems in loaded]
    systems, result = loaded[0], results[0]
    lists = _lists(systems, result, worst, confusions, characters, scoring.text_options)
    value: dict[str, Any] = {"sources": [str(source) for source in sources], "left_out": systems.left_out}
    value |= {"note": systems.note} if systems.note else {}
    if seeds:
        value |= {"over_seeds": seed_rows(results), "runs": [each.to_dict() for each in results]}
    else:
        value |= {**result.to_dict(), **lists}
    if output is not None:
        write_json(output, value)

    shown = chosen_format(as_json, as_csv)
    first = next(iter(result.evaluations.values()))
    rows = seed_rows(results) if seeds else first.rows() if len(result.evaluations) == 1 else result.rows()
    if shown is Format.JSON:
        print_json(value)
    elif shown is Format.CSV:
        print_rows(rows, output=shown)
    else:
        print_rows(readable(rows), first.describe())
        if not seeds:
            _print_details(result, lists, by)
        if clusters and bootstrap and not seeds and first.clusters < FEW_CLUSTERS:
            echo(
                f"only {first.clusters} of {clusters!r} to resample: one gives no interval, and those of so few are "
                "too narrow.",
                err=True,
            )
        for told in (systems.note, result.unreadable):
            if told:
                echo(told, err=True)
        if not normalization and (note := systems.unicode_note()):
            echo(note, err=True)
        for told in (systems.left_out_note(), systems.empty_note()):
            if told:
                echo(told, err=True)

    above = [
        (name, e.cer) for r in results for name, e in r.evaluations.items() if max_cer is not None and e.cer > max_cer
    ]
    for name, cer in above:
        echo(f"{name}: CER {cer:.2f} % is above {max_cer:g} %", err=True)
    if above:
        raise typer.Exit(THRESHOLD_EXCEEDED)


def _is_emissions(source: Path) -> bool:
    return source.suffix.lower() == ".npz"


def _check_emissions(
    sources: list[Path], seeds: bool, columns: list[str], for_emissions: dict[str, Path | str | list[str] | None]
) -> None:
    """Refuse options that would have no effect: those for emissions on other sources, and the other way round."""
    given = [name for name, value in for_emissions.items() if value]
    emissions = [source for source in sources if _is_emissions(source)]
    others = [source for source in sources if not _is_emissions(source)]
    if given and others:
        raise FadaError(
            f"{', '.join(given)}: for stored emissions (.npz), and {others[0]} holds finished texts. Give the "
            "emissions instead, or leave it out."
        )
    if emissions and len(sources) > 1 and not seeds:
        other = next(source for source in sources if source is not emissions[0])
        raise FadaError(
            f"{emissions[0]} and {other}: stored emissions are evaluated against the references stored with them. "
            "Give them alone, or add --seeds for runs that differ in their seed."
        )
    if emissions and columns:
        raise FadaError(f"{', '.join(columns)}: {emissions[0]} is not a table and has no columns. Leave it out.")


def _lists(
    systems: "Systems",
    result: "SystemsEvaluation",
    worst: int,
    confusions: int,
    characters: int,
    options: "TextOptions",
) -> "Lists":
    """The lists asked for, by kind and system."""
    from fada.evaluation import confusions as found
    from fada.evaluation.systems import character_rows

    lists: Lists = {"worst lines": {}, "confusions": {}, "characters": {}}
    for name, texts in systems.systems.items():
        if worst:
            lines = found.worst_lines(systems.references, texts, systems.ids, systems.domains, limit=worst, **options)
            lists["worst lines"][name] = [vars(line) for line in lines]
        if confusions:
            pairs = found.confusions(systems.references, texts, **options)[:confusions]
            lists["confusions"][name] = [pair.row() for pair in pairs]
        if characters and name != result.baseline:
            lists["characters"][name] = character_rows(systems, result.baseline, name, characters, **options)
    return lists


def _print_details(result: "SystemsEvaluation", lists: "Lists", by: list[str]) -> None:
    for name, evaluation in result.evaluations.items():
        if len(result.evaluations) > 1 and evaluation.per_domain:
            print_rows(readable(evaluation.rows()), f"{name}, per domain")
        for column in by:
            print_rows(readable(evaluation.group_rows(column)), f"{name}, worst {column} first")
    for name, comparison in result.comparisons.items():
        if comparison.per_domain:
            print_rows(readable(comparison.rows()), f"{name} against {result.baseline}, per domain")
    for kind, by_system in lists.items():
        for name, rows in by_system.items():
            print_rows(readable(rows), f"{name}: {kind}")
