"""The emissions of many lines, to be stored."""

from fada.data.line import LineSet
from fada.decoding.emissions import Emissions
from fada.errors import FadaError
from fada.jobs.batches import batches, in_parts
from fada.models.ctc import CTCRecognizer
from fada.models.recognizer import Recognizer


def emit(
    recognizer: Recognizer, lines: LineSet, *, batch_size: int = 8, may_be_empty: bool = False
) -> tuple[Emissions, list[str], list[str]]:
    """The emissions of every line that can be read, the reasons for those that cannot, and what is worth knowing.

    Args:
        may_be_empty: whether no line at all is fine, as for a shard of few lines.
    """
    if not isinstance(recognizer, CTCRecognizer):
        raise FadaError("only CTC models have emissions; use `fada transcribe` for this one.")
    parts: list[Emissions] = []
    failed: list[str] = []
    texts = 0
    for batch in batches(lines, lambda line: False, batch_size, "emitting"):
        texts += sum(line.text is not None for line in batch)
        for readable, _, error in in_parts(batch, lambda b: recognizer.emit(b, batch_size=batch_size)):
            if error is None:
                parts.append(readable)
            else:
                failed.append(error)
    failed += [str(skipped) for skipped in lines.skipped]
    if not parts and may_be_empty:
        return Emissions([], [], recognizer.symbols, recognizer.blank), failed, lines.notes
    if not parts:
        raise FadaError(f"no line could be read ({len(failed)} failed). First: {failed[0] if failed else 'no lines'}")
    emissions = Emissions.concatenate(parts)
    if texts and emissions.references is None:
        lines.note(
            f"{texts} lines have a transcription, but not all: none is stored with the emissions. To tune or evaluate, "
            "emit those lines on their own."
        )
    return emissions, failed, lines.notes
