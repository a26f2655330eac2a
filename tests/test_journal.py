"""Jobs of transcription that are interrupted, continued and refused, with a recogniser that costs nothing."""

import os
from types import SimpleNamespace

import pytest
from PIL import Image

from fada.data.lines import read_lines
from fada.errors import FadaError
from fada.targets import TargetSet
from fada.transcription import transcribe
from fada.tuned import Knowledge, Weights


class Stub:
    """Writes the id and the domain of every line; interrupts itself after a number of batches."""

    kind = "seq2seq"

    def __init__(self, batches=None):
        self.left = batches
        self.calls = 0

    def generate(self, batch, **_):
        if self.left == self.calls:
            raise KeyboardInterrupt
        self.calls += 1
        for line in batch:
            line.load_image()
        return [
            SimpleNamespace(text=f"{line.id} {line.domain}", log_prob=-1.0, distance=None, score=-1.0) for line in batch
        ]


@pytest.fixture
def lines(tmp_path):
    folder = tmp_path / "lines"
    folder.mkdir()
    for i in range(4):
        Image.new("L", (60, 20), 200).save(folder / f"{i}.png")
    return folder


def interrupt(batches, *arguments, **options):
    with pytest.raises(KeyboardInterrupt):
        transcribe(Stub(batches), *arguments, batch_size=1, **options)


def test_lines_done_for_another_domain_are_not_mixed_in(lines, tmp_path):
    out = tmp_path / "out.tsv"
    interrupt(2, read_lines(lines, domain="13"), out)
    with pytest.raises(FadaError, match=r"of the domain '13', not '14'.*--restart"):
        transcribe(Stub(), read_lines(lines, domain="14"), out)
    assert transcribe(Stub(), read_lines(lines, domain="13"), out).resumed == 2
    assert "14" not in out.read_text(encoding="utf-8")


@pytest.mark.parametrize("place", ["", "model"])
def test_targets_or_weights_changed_under_the_same_name_are_another_job(lines, tmp_path, place):
    out, model = tmp_path / "out.tsv", tmp_path / "run"
    (model / place).mkdir(parents=True)
    (model / place / "config.json").write_text("{}")
    (model / place / "model.safetensors").write_text("weights")
    before, after = (Knowledge(TargetSet.from_texts({"13": [text]})) for text in ("le roi", "li rois"))
    named = {"model_name": str(model), "targets_name": "targets.json", "weights": Weights(lam=0.5)}
    interrupt(2, read_lines(lines), out, knowledge=before, **named)
    with pytest.raises(FadaError, match="other settings"):
        transcribe(Stub(), read_lines(lines), out, knowledge=after, **named)
    os.utime(model / place / "model.safetensors", (1, 1))
    with pytest.raises(FadaError, match="other settings"):
        transcribe(Stub(), read_lines(lines), out, knowledge=before, **named)
    assert transcribe(Stub(), read_lines(lines), out, knowledge=before, restart=True, **named).resumed == 0
