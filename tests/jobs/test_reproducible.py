"""The same file whatever the batch, the number of threads, the machines, and where a job was interrupted."""

from collections.abc import Iterator
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fada.data.source import read_lines
from fada.decoding.knowledge import Knowledge
from fada.decoding.weights import Weights
from fada.jobs.merge import merge
from fada.jobs.shards import Shard
from fada.jobs.transcribe import Summary
from fada.models.crnn import CRNNRecognizer
from fada.models.network import Network
from fada.models.recognizer import Recognizer
from fada.models.trocr import TrOCRRecognizer
from tests.support.jobs import transcribe
from tests.support.machines import Machines

TEXTS = {"13": ["le roi marc", "la reine dit"], "14": ["li rois dist", "au roi artus"]}
ALL = [text for lines in TEXTS.values() for text in lines]
GUIDED = Weights(lam=0.5, scale=10.0, beam=3)
BATCHES, THREADS = (1, 8, 64), (1, 2)


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
def recognizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recognizer:
    """Of a model that writes character by character, and of one that writes token by token."""
    torch.manual_seed(3)
    tiny: Network
    tiny = CRNNRecognizer.build(ALL, "tiny") if request.param == "crnn" else TrOCRRecognizer.build_tiny(ALL, width=160)
    tiny.folder = tmp_path_factory.mktemp(request.param)
    tiny.save_pretrained(tiny.folder)
    return tiny


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class Ways:
    """Ways to the same file.

    Args:
        place: where files are written.
    """

    def __init__(self, recognizer: Recognizer, lines: Path, place: Path) -> None:
        self.recognizer, self.lines, self.place = recognizer, lines, place

    def transcribe(self, out: Path, **options: Any) -> Summary:
        source = read_lines(self.lines, domain_from="folder", untranscribed=True)
        knowledge = Knowledge.from_texts(TEXTS, order=2)
        name = str(self.recognizer.folder)
        return transcribe(self.recognizer, source, out, weights=GUIDED, knowledge=knowledge, model_name=name, **options)

    def at_once(self, out: Path, **options: Any) -> None:
        self.transcribe(out, **options)

    def resumed(self, out: Path, **options: Any) -> None:
        """What is read before the interruption is read in another batch, on one thread."""
        search, calls, threads = self.recognizer.search, [], torch.get_num_threads()

        def interrupted(batch: Any, *arguments: Any, **more: Any) -> Any:
            calls.append(batch)
            if len(calls) > 2:  # the first call is the check of the weights
                raise KeyboardInterrupt
            return search(batch, *arguments, **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.recognizer, "search", interrupted)
            torch.set_num_threads(1)
            with pytest.raises(KeyboardInterrupt):
                self.transcribe(out, batch_size=3)
        torch.set_num_threads(threads)
        assert 0 < self.transcribe(out, **options).resumed < 11

    def in_shards(self, out: Path, **options: Any) -> None:
        shards = [Shard(number, 3) for number in (3, 1, 2)]
        for shard in shards:
            self.transcribe(out, shard=shard, **options)
        merge([shard.part(out) for shard in shards], out)

    def written(self, way: str, **options: Any) -> bytes:
        out = self.place / f"{len(list(self.place.iterdir()))}.jsonl"
        getattr(self, way)(out, **options)
        assert out.read_bytes().count(b"\n") == 11
        return out.read_bytes()


@pytest.fixture(scope="module")
def ways(recognizer: Recognizer, lines: Path, tmp_path_factory: pytest.TempPathFactory) -> Ways:
    return Ways(recognizer, lines, tmp_path_factory.mktemp("ways"))


@pytest.fixture(scope="module")
def expected(ways: Ways) -> bytes:
    return ways.written("at_once")


RAY = (
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="the extra [scale] is not installed"),
)


@pytest.mark.parametrize("way", ["at_once", "resumed", "in_shards", pytest.param("on_a_cluster", marks=RAY)])
def test_every_way_batch_and_number_of_threads_gives_the_same_bytes(
    way: str, ways: Ways, expected: bytes, request: pytest.FixtureRequest
) -> None:
    more: dict[str, Any] = {}
    cases = list(product(BATCHES, THREADS))
    if way == "on_a_cluster":  # whose actors work on one thread each, whatever the first process does
        machines: Machines = request.getfixturevalue("machines")
        way, more, cases = "at_once", {"cluster": machines.cluster()}, [(1, 1), (8, 2), (64, 1)]
    for batch_size, threads in cases:
        torch.set_num_threads(threads)
        assert ways.written(way, batch_size=batch_size, **more) == expected, (batch_size, threads)
        assert torch.get_num_threads() == threads
