"""The emissions of many lines, to be stored."""

from fada.data.line import LineSet
from fada.decoding.emissions import Emissions
from fada.errors import FadaError
from fada.jobs.batches import batches, in_parts
from fada.models.ctc import CTCRecognizer
from fada.models.recognizer import Recognizer


def emit(recognizer: Recognizer, lines: LineSet, *, batch_size: int = 8) -> tuple[Emissions, list[str], list[str]]:
    """The emissions of every line that can be read, the reasons for those that cannot, and what is worth knowing."""
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
    if not parts:
        raise FadaError(f"no line could be read ({len(failed)} failed). First: {failed[0] if failed else 'no lines'}")
    emissions = Emissions.concatenate(parts)
    if texts and emissions.references is None:
        lines.note(
            f"{texts} lines have a transcription, but not all: none is stored with the emissions. To tune or evaluate, "
            "emit those lines on their own."
        )
    return emissions, failed, lines.notes
