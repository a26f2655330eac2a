"""`fada tune`: the weights of guided decoding from stored emissions, with the evidence for them."""

from pathlib import Path

import typer

from fada.cli.options import ClusterOptions, KnowledgeOptions, affordable, with_cluster, with_knowledge
from fada.cli.output import Format, chosen_format, echo, print_json, print_rows, readable
from fada.errors import FadaError


@with_knowledge()
@with_cluster()
def tune(
    known: KnowledgeOptions,
    where: ClusterOptions,
    source: Path = typer.Argument(
        help="A run folder (any model), validation emissions (.npz), or n-best lists (parquet, JSONL)."
    ),
    test: Path | None = typer.Option(
        None, help="The emissions to report on: refused if they share lines with the validation set; used by --rivals."
    ),
    lines: Path | None = typer.Option(
        None, help="References and domains by line id, if the emissions do not hold them (any source of lines)."
    ),
    lm_order: int = typer.Option(6, min=1, help="Longest n-gram of the language model."),
    lm_share: float = typer.Option(0.5, min=0, max=1, help="Share of the domain's own model in the per-domain model."),
    domain_column: str | None = typer.Option(None, help="Column of the domain in --text."),
    lam: list[float] = typer.Option([], help="λ to try; repeatable. Default: 0.05, 0.10, …, 0.95."),
    scale: list[float] = typer.Option([], help="Factor of the distance; repeatable. Default: 1, 10, 100."),
    distance: list[str] = typer.Option([], help="Distance; repeatable. Default: sorted_w2, aligned_w2."),
    beam: list[int] = typer.Option([], callback=affordable, help="Beam size; repeatable. Default: 5."),
    paper: bool = typer.Option(False, "--paper", help="Only the paper's grid: 19 values of λ, sorted W2, scale 1."),
    prior: bool = typer.Option(True, help="Try prior correction."),
    trials: int = typer.Option(0, min=0, help="Further settings by optuna (TPE), over all weights jointly."),
    study: Path | None = typer.Option(None, help="SQLite file of the optuna study; resumed if it exists."),
    store: Path | None = typer.Option(None, help="File that keeps every setting decoded; resumed if it exists."),
    exact: bool = typer.Option(
        False, "--exact", help="Decode with every setting, also with those that are far from the best by rescoring."
    ),
    folds: int = typer.Option(10, min=2, help="Folds of the cross-validation."),
    page: str | None = typer.Option(
        None, help="Regular expression whose first group (or match) in a line's id is its page; pages stay together."
    ),
    rule: str = typer.Option(
        "best", help="best, or one_se: the plainest setting within one standard error of the best."
    ),
    metric: str = typer.Option("cer", help="What is chosen by: cer, wer or ned. All three are shown."),
    normalization: str = typer.Option("", help="As in fada evaluate."),
    rivals: bool = typer.Option(False, "--rivals", help="Also compare all rivals on the test emissions, in one table."),
    out: Path | None = typer.Option(None, "--out", "-o", help="The tuned weights; tuned.json beside the source."),
    curve: Path | None = typer.Option(None, help="Drawing of the error rates over λ (.png, .svg, .pdf)."),
    threads: int | None = typer.Option(None, min=1, help="Threads of the decoder; all cores if not given."),
    seed: int = typer.Option(0, help="Seed of folds, tests and search."),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    as_csv: bool = typer.Option(False, "--csv", help="Print the table as CSV."),
) -> None:
    """Choose λ and the other weights on validation lines; never on the lines you will report on.

    The result is a small JSON file for `--tuned`. If nothing is better than plain beam search beyond noise, λ = 1 is
    what it recommends, and it says so. In a run folder the test lines are decoded with it too, for `fada report`.
    """
    from contextlib import nullcontext

    from fada.common.files import write_json
    from fada.evaluation.predictions import PREDICTIONS
    from fada.evaluation.scores import Scoring
    from fada.runs.run import Run
    from fada.tuning.choose import Tuning, clusters_from_ids
    from fada.tuning.choose import tune as choose_weights
    from fada.tuning.curve import draw_curve, tuning_rows
    from fada.tuning.decode import TUNED, open_search
    from fada.tuning.grid import Grid

    run = Run(source) if source.is_dir() else None
    own = run.folder / "targets.json" if run is not None and run.has("targets.json") else None
    told = known.told().of_domain(known.domain)
    knowledge = told.load(own, order=lm_order, share=lm_share, domain_column=domain_column)
    if knowledge.targets is None and knowledge.global_lm is None:
        raise FadaError(f"{source}: nothing to tune. Give a target file (--targets) or some text (--text).")
    tested = None if test is None else open_search(test, knowledge, lines, threads, known.domain)
    if run is None:
        validation = open_search(source, knowledge, lines, threads, known.domain)
    else:
        if known.domain is not None:
            raise FadaError(
                f"--domain {known.domain}: {source} is a run, which knows the domains of its lines. Leave it out."
            )
        validation = run.search("validation", knowledge, threads)
        if tested is None and run.reported == "test" and (run.has("emissions/test.npz") or run.has("model")):
            tested = run.search("test", knowledge, threads)
    if rivals and (tested is None or "nbest" in (tested.kind, validation.kind)):
        raise FadaError("--rivals compares on test emissions of a CTC model: give them with --test.")
    grid = Grid.of(lam=lam, scale=scale, distance=distance, beam=beam, paper=paper)
    settings = Tuning(
        grid=grid,
        prior=prior and not paper,
        folds=folds,
        rule=rule,  # type: ignore[arg-type]  # checked by the library, which names the choices
        metric=metric,  # type: ignore[arg-type]
        normalization=normalization,
        trials=trials,
        study=study,
        store=store,
        exact=exact,
        seed=seed,
    )
    path = out or (source.parent if run is None else run.folder) / "tuned.json"
    cluster, pages = where.cluster(), clusters_from_ids(validation.ids, page)
    with nullcontext() if cluster is None else cluster.running(path) as workers:
        tuned = choose_weights(validation, settings, test=tested, clusters=pages, workers=workers)
    tuned.save(path)
    if curve is not None:
        draw_curve(tuned, curve)
    added = None
    if run is not None and test is None and tested is not None and out is None and run.has(PREDICTIONS):
        run.add_tuned(tuned, tested)
        added = f"{run.folder / PREDICTIONS}: the system {TUNED!r} decodes the test lines with these weights."
    table = None
    if rivals and tested is not None:
        from fada.tuning.rivals import compare_rivals

        scoring = Scoring(normalization=normalization, seed=seed)
        pages = clusters_from_ids(tested.ids, page)
        table = compare_rivals(validation, tested, grid=grid, clusters=pages, scoring=scoring)
        write_json(path.with_name("rivals.json"), table.to_dict())
        table.systems.save(path.with_name("rivals.parquet"))

    shown = chosen_format(as_json, as_csv)
    if shown is Format.JSON:
        print_json({**tuned.model_dump(mode="json"), **({"rivals": table.to_dict()} if table else {})})
        return
    rows = tuning_rows(tuned) if table is None else table.rows()
    print_rows(rows if shown is Format.CSV else readable(rows), "validation" if table is None else "test", shown)
    unknown = knowledge.unknown_domains(validation.domains)
    if unknown and shown is Format.TABLE:
        echo(f"no target for domain {', '.join(unknown)}: guided to the overall distribution.", err=True)
    for sentence in [*tuned.sentences(), *([added] if added else [])]:
        echo(sentence, err=True)
    echo(f"{path} ({tuned.evidence.seconds if tuned.evidence else 0:.1f} s)", err=True)
