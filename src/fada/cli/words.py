"""The options that tell of words and language models of one's own: the same for every command that decodes."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fada.cli.output import echo

if TYPE_CHECKING:
    from fada.decoding.wordlist import Words

LM_DEFAULT = 0.5
"""Weight of a language model that is named, where nothing says otherwise."""

LM = typer.Option(None, "--lm", help="Character n-gram model: .npz of fada, ARPA, or a KenLM binary.")
LM_WEIGHT = typer.Option(None, "--lm-weight", min=0, help="Weight of the language model. [0.5, or as stored]")
WORDS = typer.Option([], "--words", help="List of words that are used: one a line, with a tab its count; repeatable.")
HOT_WORD = typer.Option([], "--hot-word", help="A word that is expected, such as a name; repeatable.")
WORDS_SHARE = typer.Option(0.05, "--words-share", min=0.01, max=0.99, help="How much the words count beside the model.")


def words_of(files: list[Path], hot: list[str], share: float, characters: str, encoding: str | None) -> "Words | None":
    """The words of lists and the hot ones, None without any; says which of them the model cannot write."""
    if not files and not hot:
        return None
    from fada.decoding.wordlist import Words

    words = Words.of(files, hot, characters, share, encoding)
    if words.impossible:
        more = f" and {len(words.impossible) - 3} more" if len(words.impossible) > 3 else ""
        echo(f"words that the model cannot write, left out: {', '.join(words.impossible[:3])}{more}", err=True)
    return words


def told_of(lm: Path | None, files: list[Path], hot: list[str]) -> dict[str, str]:
    """Which language model and which words were told, to be recorded with what was read with them."""
    told = {"language_model": str(lm or ""), "words": ", ".join(map(str, files)), "hot_words": ", ".join(hot)}
    return {name: value for name, value in told.items() if value}
