"""The same file whatever the batch, the number of threads, and where a job was interrupted."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fada.data.source import read_lines
from fada.decoding.knowledge import Knowledge
from fada.decoding.weights import Weights
from fada.models.crnn import CRNNRecognizer
from fada.models.recognizer import Recognizer
from fada.models.trocr import TrOCRRecognizer
from tests.support.jobs import transcribe

TEXTS = {"13": ["le roi marc", "la reine dit"], "14": ["li rois dist", "au roi artus"]}
ALL = [text for lines in TEXTS.values() for text in lines]
GUIDED = Weights(lam=0.5, scale=10.0, beam=3)


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lines")
    rng = np.random.default_rng(0)
    for i, width in enumerate([60, 410, 200, 130, 333, 90, 250, 180, 305, 77, 150]):
        place = folder / ("13" if i % 2 else "14")
        place.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (40, width), dtype=np.uint8)).save(place / f"{i}.png")
    return folder


@pytest.fixture(scope="module", params=["crnn", "trocr"])
def recognizer(request: pytest.FixtureRequest) -> Recognizer:
    torch.manual_seed(3)
    return CRNNRecognizer.build(ALL, "tiny") if request.param == "crnn" else TrOCRRecognizer.build_tiny(ALL, width=160)


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def written(recognizer: Recognizer, lines: Path, out: Path, **options: Any) -> bytes:
    source = read_lines(lines, domain_from="folder", untranscribed=True)
    transcribe(recognizer, source, out, weights=GUIDED, knowledge=Knowledge.from_texts(TEXTS, order=2), **options)
    return out.read_bytes()


def test_batch_and_threads_change_nothing(recognizer: Recognizer, lines: Path, tmp_path: Path) -> None:
    expected = None
    # A token model's operations share threads, which takes minutes where other programs keep them waiting.
    side_by_side = 2 if recognizer.rows == 1 else 1
    for threads, batch_size in ((1, 8), (1, 1), (side_by_side, 64), (side_by_side, 8), (side_by_side, 3)):
        torch.set_num_threads(threads)
        found = written(recognizer, lines, tmp_path / f"{threads}-{batch_size}.jsonl", batch_size=batch_size)
        expected = expected or found
        assert found == expected, (threads, batch_size)
        assert torch.get_num_threads() == threads
    assert expected is not None
    assert expected.count(b"\n") == 11


@pytest.mark.parametrize(("after", "batches"), [(0, (3, 64)), (1, (3, 1)), (1, (1, 8))])
def test_an_interruption_changes_nothing(
    recognizer: Recognizer,
    lines: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    after: int,
    batches: tuple[int, int],
) -> None:
    expected = written(recognizer, lines, tmp_path / "whole.jsonl")
    search, calls = recognizer.search, []

    def interrupted(batch: Any, *arguments: Any, **options: Any) -> Any:
        calls.append(batch)
        if len(calls) > after + 1:  # the first call is the check of the weights
            raise KeyboardInterrupt
        return search(batch, *arguments, **options)

    monkeypatch.setattr(recognizer, "search", interrupted)
    with pytest.raises(KeyboardInterrupt):
        written(recognizer, lines, tmp_path / "out.jsonl", batch_size=batches[0])
    monkeypatch.undo()
    assert written(recognizer, lines, tmp_path / "out.jsonl", batch_size=batches[1]) == expected
