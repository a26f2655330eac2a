"""Language models of other programs: ARPA files and KenLM binaries of characters, as a model that the search walks."""

import json
import math
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fada.common.say import progress_bar
from fada.decoding.lm import CharNgram
from fada.decoding.lm_train import END, UNKNOWN, from_grams
from fada.errors import FadaError, missing_extra

_MAGIC = b"mmap lm http://kheafield.com/code"
_HEADER = struct.Struct("<52s4x3f3IQB3xfiII")
"""Of a KenLM binary: what tells that it was written by a machine like this one, the order, a multiplier, the kind of
model, whether it holds its words, a version; the number of n-grams of each order follows."""
_SANE = (_MAGIC + b" format version 5\n\0", 0.0, 1.0, -0.5, 1, 2**32 - 1, 0, 1)
_KINDS, _ORDERS = range(6), range(1, 33)
_ARPA = "Give the ARPA file that it was built from."
_SPACES = ("<space>", "▁", "<sp>", "|")
_SENTENCE = 2
_LN10 = math.log(10)
_NO_WORD = "\ufffe no word of any model"


def is_kenlm(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a binary that KenLM's ``build_binary`` wrote."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def read_lm(path: str | os.PathLike[str], characters: Iterable[str]) -> CharNgram:
    """A language model from a file: ours (``.npz``), a KenLM binary, or ARPA, also gzipped.

    Args:
        characters: all that the recogniser can write; for KenLM binaries.
    """
    if Path(path).suffix.lower() == ".npz":
        return CharNgram.load(path)
    return read_kenlm(path, characters) if is_kenlm(path) else CharNgram.from_arpa(path)


def read_kenlm(path: str | os.PathLike[str], characters: Iterable[str]) -> CharNgram:
    """A KenLM binary whose words are single characters, exactly as it scores the given characters.

    A binary cannot be listed. But it says how long an n-gram it used for a character after a context, so its n-grams
    are found by asking for every character after every context that occurs.

    Args:
        characters: those that are asked for; all others are unknown ones. A space is ``<space> ▁ <sp>`` or ``|``.
    """
    counts = _claimed(Path(path)) if is_kenlm(path) else None
    if find_spec("kenlm") is None:
        raise missing_extra("kenlm", "kenlm", f"{path}: a KenLM binary")
    with tempfile.TemporaryDirectory(prefix="fada-") as folder:
        # In a process of its own: KenLM follows whatever a damaged file says, anywhere in memory.
        asked = json.dumps({"path": str(path), "characters": sorted({*"".join(characters)}), "counts": counts})
        command = [sys.executable, "-m", "fada.decoding.lm_files", asked, f"{folder}/lm.npz"]
        done = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8", errors="replace", check=False)
        if done.returncode == _SENTENCE:
            raise FadaError(done.stdout.strip())
        if done.returncode:
            raise FadaError(f"{path}: KenLM broke down over it (code {done.returncode}): it is damaged. {_ARPA}")
        return CharNgram.load(f"{folder}/lm.npz")


def _claimed(path: Path) -> tuple[int, ...]:
    """How many n-grams of each order a KenLM binary says it holds; FadaError if it cannot hold them."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER.size)
            *sane, order, _, kind, _, _ = _HEADER.unpack(head)
            counts = struct.unpack(f"<{order}Q", file.read(8 * order))
    except (OSError, struct.error) as error:
        raise FadaError(f"{path}: not a whole KenLM binary ({error}). {_ARPA}") from None
    size = path.stat().st_size
    if tuple(sane) != _SANE or order not in _ORDERS or kind not in _KINDS or sum(counts) > 8 * size:
        raise FadaError(f"{path}: not a sound KenLM binary: {size:,} bytes for n-grams {counts}. {_ARPA}")
    return counts


def _listed(path: str | os.PathLike[str], characters: Sequence[str], counts: Sequence[int] | None) -> CharNgram:
    """What :func:`read_kenlm` gives; in a process of its own."""
    import kenlm

    try:
        model = kenlm.Model(os.fspath(Path(path)))
    except (OSError, RuntimeError) as error:
        raise FadaError(f"{path}: not read by KenLM ({error}). {_ARPA}") from None
    space = next((one for one in _SPACES if one in model), None)
    asked = {c: (space or "") if c == " " else c for c in characters}
    words = {c: word for c, word in asked.items() if word and word in model}
    letters = [c for c in words if not c.isspace()]
    if not letters:
        raise FadaError(
            f"{path}: a language model in which none of the recogniser's characters is a word. It is probably one of "
            "words; expected one of characters, trained on text with spaces between them and <space> for a space."
        )
    vocabulary = tuple(words)
    names = {END: "</s>", **{number + 2: words[c] for number, c in enumerate(vocabulary)}}
    grams = _grams(model, names, len(vocabulary) + 2, counts)
    if grams is None:
        raise FadaError(f"{path}: more n-grams than it says it holds: it is damaged. {_ARPA}")
    return CharNgram([from_grams(vocabulary, grams)])


def _grams(
    model: Any, names: dict[int, str], start: int, counts: Sequence[int] | None
) -> list[dict[tuple[int, ...], tuple[float, float]]] | None:
    """All n-grams of the named words with log-probability and back-off weight; `start` begins a line.

    None if there are more than `counts` of an order, where those are known.
    """
    import kenlm

    def state_of(context: tuple[int, ...]) -> Any:
        state = kenlm.State()
        begins = context[:1] == (start,)
        (model.BeginSentenceWrite if begins else model.NullContextWrite)(state)
        for number in context[begins:]:
            state, before = kenlm.State(), state
            model.BaseScore(before, names[number], state)
        return state

    def score(state: Any, number: int) -> Any:
        return model.BaseFullScore(state, names.get(number, _NO_WORD), kenlm.State())

    grams: list[dict[tuple[int, ...], tuple[float, float]]] = [{} for _ in range(model.order)]
    grams[0][UNKNOWN,] = (_LN10 * score(state_of(()), UNKNOWN).log_prob, 0.0)
    grams[0][start,] = (-100 * _LN10, 0.0)
    contexts: list[tuple[int, ...]] = [()]
    with progress_bar() as progress:
        for length in range(model.order):
            further: list[tuple[int, ...]] = [(start,)] if length == 0 and model.order > 1 else []
            for context in progress.track(contexts, description=f"reading KenLM, {length + 1}-grams"):
                state, unseen = state_of(context), UNKNOWN
                for number in names:
                    found = score(state, number)
                    if found.ngram_length == length + 1:
                        grams[length][*context, number] = (_LN10 * found.log_prob, 0.0)
                        if counts is not None and len(grams[length]) > counts[length]:
                            return None
                        if number != END and length + 1 < model.order:
                            further.append((*context, number))
                    else:
                        unseen = number
                if context:
                    weight = score(state, unseen).log_prob - score(state_of(context[1:]), unseen).log_prob
                    value, _ = grams[length - 1][context]
                    grams[length - 1][context] = (value, _LN10 * weight)
            contexts = further
    return grams


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    try:
        _listed(given["path"], given["characters"], given["counts"]).save(sys.argv[2])
    except FadaError as error:
        os.write(1, str(error).encode("utf-8", "backslashreplace"))
        sys.exit(_SENTENCE)
