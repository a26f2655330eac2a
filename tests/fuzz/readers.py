"""Every reader of a file that comes from outside: a sound example, and how it is read to the end."""

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

OLD = Path(__file__).parents[1] / "files" / "format-0.1"


@dataclass(frozen=True)
class Reader:
    """`make` writes a sound example into a folder and names the file to damage; `read` reads it to the last byte."""

    make: Callable[[Path], Path]
    read: Callable[[Path], Any]


def _png() -> bytes:
    data = io.BytesIO()
    Image.new("L", (30, 10), 200).save(data, "PNG")
    return data.getvalue()


def _read_lines(path: Path, **options: Any) -> None:
    import fada

    for line in fada.read_lines(path, **options):
        if line.image is not None:
            line.load_image()


def _parquet(folder: Path) -> Path:
    return Path(shutil.copy(OLD / "lines.parquet", folder / "lines.parquet"))


def _arrow(folder: Path) -> Path:
    import pyarrow as pa

    path = folder / "data-00000-of-00001.arrow"
    image = {"bytes": _png(), "path": "a.png"}
    table = pa.table({"text": ["ab", "cd", "é"], "century": ["13", "14", None], "image": [image] * 3})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return path


def _csv(folder: Path) -> Path:
    (folder / "a.png").write_bytes(_png())
    path = folder / "lines.csv"
    path.write_text('image,text,domain\na.png,"ab, cd",13\na.png,"é\n2",14\n', encoding="utf-8")
    return path


def _jsonl(folder: Path) -> Path:
    (folder / "a.png").write_bytes(_png())
    rows = [
        {"image": "a.png", "text": "ab", "domain": "13", "page": 3},
        {"image": "a.png", "text": "ē", "domain": None},
    ]
    path = folder / "lines.jsonl"
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    return path


def _page_file(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        from tests.support.xml_pages import write_example

        return write_example(folder, name)

    return make


def _pairs(folder: Path) -> Path:
    (folder / "a.png").write_bytes(_png())
    (folder / "a.gt.txt").write_text("a saint dénis\n", encoding="utf-8")
    return folder / "a.gt.txt"


def _image(folder: Path) -> Path:
    (folder / "a.png").write_bytes(_png())
    (folder / "a.gt.txt").write_text("a\n", encoding="utf-8")
    return folder / "a.png"


def _copied(name: str, beside: str | None = None) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        if beside is not None:
            shutil.copytree(OLD / beside, folder, dirs_exist_ok=True)
            return folder / name
        return Path(shutil.copy(OLD / name, folder / Path(name).name))

    return make


def _read_emissions(path: Path) -> None:
    import fada

    emissions = fada.Emissions.load(path.with_name("test.npz"))
    decoder = fada.CTCBeamDecoder(emissions.symbols, blank=emissions.blank, beam_size=2, threads=1)
    decoder.decode_batch(emissions.log_probs)


def _read_targets(path: Path) -> None:
    import fada

    for p in fada.TargetSet.load(path).values():
        p.frequencies.sum()


def _read_tuned(path: Path) -> None:
    from fada.tuning.tuned import Tuned

    Tuned.load(path)


def _read_nbest(path: Path) -> None:
    from fada.decoding.nbest import NBest

    NBest.load(path)


def _recipe(folder: Path) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(
        "model: crnn:tiny\ndata: [lines.parquet]\nlam: 0.5\nout: run\nepochs: 3\nseed: 1\n", encoding="utf-8"
    )
    return path


def _read_recipe(path: Path) -> None:
    from fada.common.settings import read_recipe
    from fada.training.settings import TrainSettings

    TrainSettings.of(read_recipe(path), str(path))


def _read_model(path: Path) -> None:
    import fada

    fada.load_recognizer(path.parent)


READERS = {
    "parquet": Reader(_parquet, _read_lines),
    "arrow": Reader(_arrow, lambda path: _read_lines(path.parent)),
    "csv": Reader(_csv, _read_lines),
    "jsonl": Reader(_jsonl, _read_lines),
    "alto": Reader(_page_file("alto4"), _read_lines),
    "page": Reader(_page_file("page2019"), _read_lines),
    "pairs": Reader(_pairs, lambda path: _read_lines(path.parent)),
    "image": Reader(_image, lambda path: _read_lines(path.parent)),
    "emissions": Reader(_copied("test.npz", "run/emissions"), _read_emissions),
    "symbols": Reader(_copied("symbols.json", "run/emissions"), _read_emissions),
    "targets": Reader(_copied("targets.json"), _read_targets),
    "tuned": Reader(_copied("run/tuned.json"), _read_tuned),
    "recipe": Reader(_recipe, _read_recipe),
    "nbest": Reader(_copied("nbest.parquet"), _read_nbest),
    "model-config": Reader(_copied("config.json", "model"), _read_model),
    "model-processor": Reader(_copied("crnn_processor.json", "model"), _read_model),
    "model-weights": Reader(_copied("model.safetensors", "model"), _read_model),
    "run-config": Reader(_copied("config.json", "run"), lambda path: _open_run(path.parent)),
    "run-predictions": Reader(_copied("predictions.parquet", "run"), lambda path: _evaluate(path.parent)),
}


def _open_run(folder: Path) -> None:
    import fada

    run = fada.load_run(folder)
    run.config, run.metrics, run.targets  # noqa: B018


def _evaluate(folder: Path) -> None:
    from fada.evaluation.sources import read_systems

    read_systems(folder)
