"""`fada targets`: character distributions per domain, from any body of text."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fada.cli.options import SHARD, TEXTS, ClusterOptions, ReadingOptions, with_cluster, with_reading
from fada.cli.output import AS_CSV, AS_JSON, Format, chosen_format, echo, echo_first, print_json, print_rows
from fada.errors import FadaError

if TYPE_CHECKING:
    from fada.targets.distribution import CharDistribution
    from fada.targets.target_set import TargetSet

group = typer.Typer(no_args_is_help=True, help="Character distributions per domain: build, show, compare, edit.")


@group.command()
@with_reading(*TEXTS)
@with_cluster()
def build(
    reading: ReadingOptions,
    where: ClusterOptions,
    sources: list[str] = typer.Argument(
        help="Text files, folders of them, tables (CSV, TSV, JSONL, parquet), ALTO or PAGE, glob patterns, or - for "
        "standard input."
    ),
    out: Path = typer.Option(Path("targets.json"), "--out", "-o", help="The target file to write."),
    form: str = typer.Option("NFC", help="Unicode form: NFC, NFD, NFKC, NFKD, none."),
    case: str = typer.Option("lower", help="lower, or keep."),
    marks: str = typer.Option("keep", help="Diacritics: keep, or fold (é counts as e)."),
    spaces: str = typer.Option("keep", help="keep, collapse (runs to one), or drop."),
    letters_only: bool = typer.Option(False, "--letters-only", help="Count letters and their marks, nothing else."),
    overwrite: bool = typer.Option(False, "--overwrite", help="Also replace a target file that was edited."),
    shard: str | None = SHARD,
    as_json: bool = AS_JSON,
    as_csv: bool = AS_CSV,
) -> None:
    """Count the characters of every domain and write a target file.

    Of lines that are divided into train, validation and test, those to train on are counted, unless --split says
    otherwise (--split all for all of them). An edited file is not replaced without --overwrite.
    """
    from fada.common.files import check_file
    from fada.common.say import progress_bar
    from fada.jobs.count import Counting, count_on, count_part
    from fada.jobs.shards import Shard
    from fada.targets.target_set import TargetSet
    from fada.text.normalizer import TextNormalizer

    part = Shard.parse(shard) if shard else None
    out = part.part(out) if part else out
    if not overwrite:
        _keep_edited(out)
    check_file(out)
    options = reading.given()
    everything = options.get("split") == "all"
    if everything:
        del options["split"]
    settings = {"form": form, "case": case, "marks": marks, "spaces": spaces, "letters_only": letters_only}
    normalizer = TextNormalizer.from_dict(settings)
    counting = Counting(sources, normalizer, everything, options)
    cluster = where.cluster()
    if cluster is not None and part is not None:
        raise FadaError("--shard and --ray: a cluster divides the texts itself. Give one of them.")
    if cluster is not None:
        with cluster.running(out) as running:
            targets, notes = count_on(running, running.count, counting)
    else:
        with progress_bar() as progress:
            task = progress.add_task("counting, MB", total=None)

            def on_bytes(size: int) -> None:
                progress.advance(task, size / 1e6)

            corpus = counting.corpus(on_bytes)
            if "-" not in sources:
                progress.update(task, total=sum(file.size for file in corpus.files()) / 1e6 / (part.of if part else 1))
            if part:
                counted = count_part(counting, part, on_bytes)
                counted.save(part, counting, out)
                echo(f"{counted.count} of {counted.total} {counted.unit} counted: {out}")
                return
            targets, notes = TargetSet.from_pairs(corpus, normalizer), corpus.notes
    echo_first(notes, "left out: ")
    targets.save(out)
    _print_summary(targets, f"{out}: {normalizer.describe()}", chosen_format(as_json, as_csv))


@group.command()
def show(
    file: Path = typer.Argument(help="A target file."),
    domain: list[str] = typer.Option([], "--domain", "-d", help="Only this domain; repeatable."),
    top: int = typer.Option(20, min=1, help="How many characters, the most frequent first."),
    every: bool = typer.Option(False, "--all", help="Every character."),
    as_json: bool = AS_JSON,
    as_csv: bool = AS_CSV,
) -> None:
    """Frequencies in percent with bars, ± one standard error: what was counted on little text shows it."""
    from fada.targets.target_set import TargetSet

    loaded = TargetSet.load(file)
    targets = TargetSet({name: loaded[name] for name in domain}) if domain else loaded
    output = chosen_format(as_json, as_csv)
    if output is not Format.TABLE:
        print_rows(targets.rows(), output=output)
        return
    _print_summary(targets, f"{file}: {targets.normalizer.describe()}", output)
    order = sorted(range(len(targets.symbols)), key=lambda i: -targets.overall.frequencies[i])
    _print_frequencies(targets, order if every else order[:top])


@group.command()
def compare(
    files: list[Path] = typer.Argument(help="Target files: every domain is compared with every other."),
    distance: list[str] = typer.Option(
        ["sorted_w2", "aligned_w2", "js"],
        help="sorted_w2, aligned_w2, w1, w2, js or kl (of the row from the column); repeatable.",
    ),
    as_json: bool = AS_JSON,
    as_csv: bool = AS_CSV,
) -> None:
    """Pearson correlation and distances between domains."""
    from fada.targets.target_set import TargetSet

    stems = [file.stem for file in files]
    labels = [stem if stems.count(stem) == 1 else str(file) for file, stem in zip(files, stems, strict=True)]
    targets = TargetSet.side_by_side({label: TargetSet.load(file) for label, file in zip(labels, files, strict=True)})
    matrices = {"pearson": targets.pearson(), **{name: targets.distances(name) for name in distance}}
    output = chosen_format(as_json, as_csv)
    names = targets.domains
    if output is Format.JSON:
        print_json({"domains": names, **{measure: matrix.tolist() for measure, matrix in matrices.items()}})
    elif output is Format.CSV:
        print_rows(
            [
                {"measure": measure, "row": row, "column": column, "value": float(matrix[i, j])}
                for measure, matrix in matrices.items()
                for i, row in enumerate(names)
                for j, column in enumerate(names)
            ],
            output=output,
        )
    else:
        for measure, matrix in matrices.items():
            rows = [
                {"": name, **dict(zip(names, map(float, values), strict=True))}
                for name, values in zip(names, matrix, strict=True)
            ]
            print_rows(rows, title=measure, digits=3 if measure == "pearson" else 4)


@group.command()
def edit(
    file: Path = typer.Argument(help="A target file, changed in place unless --out is given."),
    out: Path | None = typer.Option(None, "--out", "-o", help="Write here instead."),
    domain: list[str] = typer.Option([], "--domain", "-d", help="Only this domain; repeatable. Otherwise all."),
    assign: list[str] = typer.Option([], "--frequency", help="A character's frequency, from 0 to 1: e=0; repeatable."),
    scale: list[str] = typer.Option([], "--multiply", help="Multiply a character's frequency: e=0.5; repeatable."),
    mix: str | None = typer.Option(None, help="A new domain between others: 13:0.7,14:0.3 (needs --as)."),
    name: str | None = typer.Option(
        None, "--as", help="The name of the mixture; or of a changed copy of one domain, which itself stays as it is."
    ),
    smooth: float | None = typer.Option(None, help="Add so much to every count."),
    normalize: bool = typer.Option(False, "--normalize", help="Rescale frequencies that do not sum to one."),
    as_json: bool = AS_JSON,
    as_csv: bool = AS_CSV,
) -> None:
    """Change frequencies; the rest is rescaled so that each domain sums to one.

    Order: mix, smooth, multiply, frequency. With --mix the changes are made to the mixture, unless --domain says
    otherwise. Without --mix, --as makes a changed copy of one domain.
    Characters that are hard to type go by name: space=0, U+0301=0.
    """
    from fada.targets.target_set import TargetSet

    if not (assign or scale or mix or normalize or smooth is not None):
        raise FadaError("nothing to change: give --frequency, --multiply, --mix, --smooth or --normalize.")
    targets = TargetSet.load(file, normalize=normalize)
    chosen = domain or list(targets.domains)
    if mix:
        if not name:
            raise FadaError("--mix makes a new domain: name it with --as.")
        weights = _numbers(mix.split(","), ":", "--mix", "domains and weights, as in 13:0.7,14:0.3")
        targets = targets.with_domain(name, targets.mix(weights))
        chosen, name = domain or [name], None
    if name and len(chosen) > 1:
        raise FadaError(
            f"--as {name} names one new domain, and {len(chosen)} would be changed ({', '.join(chosen)}): choose one "
            "with --domain, or leave out --as to change them in place."
        )
    for each in chosen:
        p = targets[each] if smooth is None else targets[each].smoothed(smooth)
        p = p.scaled(_assignments(scale, "--multiply")) if scale else p
        p = p.with_frequency(_assignments(assign, "--frequency")) if assign else p
        targets = targets.with_domain(name or each, p)
    targets.save(out or file)
    _print_summary(targets, str(out or file), chosen_format(as_json, as_csv))


@group.command()
def merge(
    files: list[Path] = typer.Argument(help="Target files counted with the same normaliser."),
    out: Path = typer.Option(..., "--out", "-o", help="The target file to write."),
    as_json: bool = AS_JSON,
    as_csv: bool = AS_CSV,
) -> None:
    """Add the counts of several target files: exactly what counting all of their text would have given."""
    from functools import reduce

    from fada.targets.target_set import TargetSet

    targets = reduce(TargetSet.merge, map(TargetSet.load, files))
    targets.save(out)
    _print_summary(targets, str(out), chosen_format(as_json, as_csv))


def _keep_edited(path: Path) -> None:
    """Refuse to replace a target file that somebody has edited, by command or by hand."""
    from fada.common.files import is_stream
    from fada.targets.file import read

    if is_stream(path) or not path.is_file():
        return
    try:
        records = read(path)
        why = "was changed by hand" if records.by_hand else f"was edited ({', '.join(records.edits)})"
        if not (records.by_hand or records.edits):
            return
    except FadaError as error:
        why = f"is there and cannot be read as a target file ({error})"
    raise FadaError(f"{path} {why}: give another --out, or --overwrite to replace it.")


def _print_summary(targets: "TargetSet", title: str, output: "Format") -> None:
    from fada.text.characters import visible

    def most(p: "CharDistribution") -> list[str]:
        return [p.symbols[i] for i in (-p.frequencies).argsort(kind="stable")[:8]]

    rows = [
        {
            "domain": name,
            "characters": round(p.total, 1) if p.total % 1 else int(p.total),
            "distinct": int((p.counts > 0).sum()),
            "most frequent": " ".join(map(visible, most(p))) if output is Format.TABLE else "".join(most(p)),
            **({"edited": p.describe_edits()} if any(q.edits for q in targets.values()) else {}),
        }
        for name, p in targets.items()
    ]
    print_rows(rows, title=title, output=output, digits=1)


def _print_frequencies(targets: "TargetSet", order: list[int]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from fada.common.say import printable
    from fada.text.characters import visible

    console = Console()
    peak = max(float(p.frequencies.max()) for p in targets.values())
    labels, numbers, shortest_bar, edges = 13, len("12.34 ±0.12 "), 5, 3
    columns = min(max((console.width - labels) // (numbers + shortest_bar + edges), 1), len(targets))
    width = min((console.width - labels) // columns - numbers - edges, 40)
    for start in range(0, len(targets), columns):
        names = targets.domains[start : start + columns]
        table = Table(title=None if start else "percent ± standard error")
        for name in ("character", *names):
            table.add_column(Text(printable(name)), no_wrap=True)
        for i in order:
            cells = [_cell(targets[name], i, peak, width) for name in names]
            table.add_row(*map(Text, (visible(targets.symbols[i]), *cells)))
        console.print(table)


def _cell(p: "CharDistribution", i: int, peak: float, width: int) -> str:
    """Percent, standard error, and a bar of at most `width` characters, full at the frequency `peak`."""
    eighths = round(p.frequencies[i] / peak * max(width, 0) * 8)
    bar = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8]
    return f"{100 * p.frequencies[i]:5.2f} ±{100 * p.standard_errors[i]:.2f} {bar}".rstrip()


def _assignments(pairs: list[str], option: str) -> dict[str, float]:
    """``["e=0", "space=0.2"]`` as characters and numbers."""
    from fada.text.characters import from_visible

    named = _numbers(pairs, "=", option, "a character and a number, as in e=0.5")
    return {from_visible(name): number for name, number in named.items()}


def _numbers(pairs: list[str], separator: str, option: str, expected: str) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for pair in pairs:
        # The last separator: the character may be one itself.
        name, found, number = pair.rpartition(separator)
        name = name.strip() or name
        if name in numbers:
            raise FadaError(f"{option}: {name!r} is given twice.")
        try:
            numbers[name] = float(number)
        except ValueError:
            found = ""
        if not (found and name):
            raise FadaError(f"{option} {pair}: expected {expected}.")
    return numbers
