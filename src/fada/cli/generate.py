"""`fada generate`: a language model that follows a target."""

from pathlib import Path

import typer

from fada.cli.lipogram import MODEL
from fada.cli.options import affordable
from fada.cli.output import AS_CSV, AS_JSON, chosen_format, print_rows


def generate(
    prompt: str = typer.Argument(..., help="What the model continues."),
    model: str | None = MODEL,
    targets: Path = typer.Option(..., "--targets", help="Target file, as `fada targets` writes it."),
    domain: str | None = typer.Option(
        None, "--domain", "-d", help="Domain in the target file; all pooled if not given."
    ),
    lam: float = typer.Option(0.5, "--lam", help="Weight of the model against the target, above 0 up to 1."),
    scale: float = typer.Option(1.0, "--scale", help="Factor of the distance; 1 is the paper."),
    warmup: float = typer.Option(0.0, "--warmup", min=0, help="Characters over which the guidance sets in."),
    distance: str = typer.Option("aligned_w2", "--distance", help="aligned_w2, sorted_w2, js, kl or w1."),
    forbid: str | None = typer.Option(None, "--forbid", "--forbidden", "-f", help="Characters not to be written."),
    beams: int = typer.Option(5, "--beam", "--beams", "-b", min=1, callback=affordable, help="Beam size."),
    sample: bool = typer.Option(False, "--sample", help="Draw tokens at random instead of searching."),
    seed: int = typer.Option(0, "--seed", help="Of sampling."),
    tokens: int = typer.Option(100, "--tokens", min=1, help="Longest text, in tokens."),
    nbest: int = typer.Option(1, "--nbest", min=1, help="Texts to print, best first."),
    as_json: bool = AS_JSON,
    as_csv: bool = AS_CSV,
) -> None:
    """Continue a prompt so that the characters follow a target distribution."""
    from fada.models.language import SMOLLM2, continue_prompt, load_language_model
    from fada.targets.target_set import TargetSet

    target_set = TargetSet.load(targets)
    target = target_set.overall if domain is None else target_set[domain]
    found = continue_prompt(
        *load_language_model(model or SMOLLM2),
        prompt,
        target,
        lam=lam,
        num_beams=1 if sample else beams,
        distance=distance,
        scale=scale,
        warmup=warmup,
        forbidden=forbid or "",
        sample=sample,
        seed=seed,
        max_new_tokens=tokens,
        nbest=nbest,
    )
    rows = [{"text": h.text, "score": h.score, "log_prob": h.log_prob, "distance": h.distance} for h in found]
    print_rows(rows, None, chosen_format(as_json, as_csv), digits=4)
