"""The options that tell of words and language models of one's own: the same for every command that decodes."""

import typer

LM = typer.Option(None, "--lm", help="Character n-gram model: .npz of fada, ARPA, or a KenLM binary.")
LM_WEIGHT = typer.Option(None, "--lm-weight", min=0, help="Weight of the language model. [0.5, or as stored]")
WORDS = typer.Option([], "--words", help="List of words that are used: one a line, with a tab its count; repeatable.")
HOT_WORD = typer.Option([], "--hot-word", help="A word that is expected, such as a name; repeatable.")
WORDS_SHARE = typer.Option(0.05, "--words-share", min=0.01, max=0.99, help="How much the words count beside the model.")
