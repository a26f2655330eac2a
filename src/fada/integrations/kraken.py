"""Guided decoding inside kraken 7, through the seam it offers: ``decoder(outputs, lengths)``.

kraken calls its decoder with the softmax output of a batch and the lengths of its lines, and expects for every line a
list of ``(label, first frame, last frame, confidence)``. Its own is best path decoding; this one is the guided beam
search::

    from kraken.configs import RecognitionInferenceConfig
    from kraken.models import load_models
    import fada.integrations.kraken

    net = load_models("model.safetensors")[0]
    config = RecognitionInferenceConfig(
        decoder=fada.integrations.kraken.decoder(targets["14"], lam=0.5, codec=net.codec)
    )

kraken needs an environment of its own; ``docs/decoding.md`` has the recipe. Nothing here imports it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fada.decoding.ctc import CTCBeamDecoder
from fada.decoding.weights import BEAM
from fada.distances import LAM
from fada.errors import FadaError
from fada.targets.distribution import CharDistribution
from fada.text.alphabet import Alphabet

Labelling = list[tuple[int, int, int, float]]
"""(label, first frame, last frame, confidence) of each label of a line."""


def symbols_of(codec: Any) -> list[str]:
    """The text of each class of a kraken model: its blank is class 0, the labels of its codec follow.

    Args:
        codec: kraken's ``PytorchCodec``; only its mapping ``l2c`` from tuples of labels to text is read.
    """
    mapping = {tuple(int(x) for x in labels): str(text) for labels, text in codec.l2c.items()}
    several = [labels for labels in mapping if len(labels) != 1]
    if several:
        raise FadaError(
            f"the codec writes {mapping[several[0]]!r} with {len(several[0])} labels, expected one for each text: "
            "a character can only be guided when it is one class of the model."
        )
    labels = {labels[0]: text for labels, text in mapping.items()}
    return [labels.get(i, "") for i in range(max(labels, default=0) + 1)]


def decoder(
    target: CharDistribution | None,
    lam: float = LAM,
    codec: Any = None,
    *,
    symbols: Sequence[str] | None = None,
    beam_size: int = BEAM,
    **settings: Any,
) -> Callable[..., list[Labelling]]:
    """A callable for kraken's ``decoder(outputs, lengths)``.

    Args:
        target: distribution to align to, or None for plain beam search.
        lam: λ of Eq. 2.
        codec: the model's codec (``net.codec``), which says what text each class is.
        symbols: the text of each class, blank first, instead of `codec`.
        beam_size: hypotheses kept per frame.
        settings: further arguments of :class:`fada.CTCBeamDecoder` (``scale``, ``distance``, ``lm``, ``forbidden``, …).

    Returns:
        a function of `outputs`, (N, C, W) or (C, W) probabilities as torch tensor or numpy array, and of `lengths`,
        (N,) or None; it returns one labelling for each line.
    """
    if symbols is None:
        if codec is None:
            raise FadaError("the decoder must know the text of each class: pass codec=net.codec.")
        symbols = symbols_of(codec)
    alphabet = Alphabet(tuple(symbols), blank=0)
    search = CTCBeamDecoder(alphabet, beam_size=beam_size, target=target, lam=lam, **settings)

    def decode(outputs: Any, lengths: Any = None) -> list[Labelling]:
        probabilities = _as_numpy(outputs)
        if probabilities.ndim == 2:
            probabilities = probabilities[None]
        if probabilities.ndim != 3 or probabilities.shape[1] < len(alphabet):
            raise FadaError(
                f"outputs of shape {probabilities.shape}, expected (lines, {len(alphabet)} classes, frames): "
                "was the decoder made with the codec of this model?"
            )
        frames = [probabilities.shape[2]] * len(probabilities) if lengths is None else _as_numpy(lengths).tolist()
        if len(frames) != len(probabilities) or any(not 0 <= n <= probabilities.shape[2] for n in frames):
            raise FadaError(f"lengths {frames} do not fit outputs of shape {probabilities.shape}.")
        # A model may have more classes than its codec has labels; kraken drops them too.
        with np.errstate(divide="ignore"):
            lines = [np.log(p[: len(alphabet), :n].T) for p, n in zip(probabilities, frames, strict=True)]
        found = [nbest[0] for nbest in search.decode_batch(lines, alignment=True)] if lines else []
        parts = (zip(best.labels, best.label_frames, best.label_confidences, strict=True) for best in found)
        return [[(label, start, end - 1, sure) for label, (start, end), sure in line] for line in parts]

    return decode


def _as_numpy(values: Any) -> np.ndarray:
    if hasattr(values, "detach"):
        values = values.detach().float().cpu().numpy() if values.is_floating_point() else values.detach().cpu().numpy()
    return np.asarray(values)
