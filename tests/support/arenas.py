"""An arena of two manuscripts that is climbed in seconds."""

from dataclasses import replace
from pathlib import Path

import yaml

from fada.data.formats.parquet import write_parquet
from fada.data.line import Line
from fada.decoding.knowledge import FOLDER, Knowledge, write_knowledge
from fada.experiments.arena import Arena
from fada.models import registry
from fada.targets.target_set import TargetSet
from fada.training.adapt import AdaptSettings
from tests.support.training_lines import image_lines

QUICK = AdaptSettings(folds=2, epochs=1, fewest_steps=1, augment=0)


def on_pages(lines: list[Line], manuscript: str, pages: int) -> list[Line]:
    size = -(-len(lines) // pages)
    return [
        replace(line, extra={"manuscript": manuscript, "page": f"{manuscript}-{i // size}", "language": "la"})
        for i, line in enumerate(lines)
    ]


def small_arena(tmp_path: Path) -> Arena:
    """Two small manuscripts, a model that has not learnt to read, and what it knows of two languages."""
    names = ("a", "b")
    lines = [
        line for i, name in enumerate(names) for line in on_pages(image_lines(36, seed=i, prefix=f"{name}-"), name, 4)
    ]
    data = tmp_path / "latin_script"
    for split, part in {"train": lines[:60], "validation": lines[60:66], "test": lines[66:]}.items():
        write_parquet(part, data / f"{split}.parquet")
    texts = [str(line.text) for line in lines]
    registry.build("crnn:tiny", texts).save_pretrained(tmp_path / "model")
    for language, known in {"la": texts, "fr": texts[::3]}.items():
        place = tmp_path / "model" / FOLDER / f"{language}.fada"
        place.parent.mkdir(exist_ok=True)
        centuries = TargetSet.from_texts({f"{language}-9": known[::2], f"{language}-11": known[1::2]})
        write_knowledge(Knowledge.from_texts(known, centuries, name=language), place)
    recipe = {"arena": [{"manuscript": n, "language": "la", "century": 9, "lines": 36, "texts": []} for n in names]}
    (tmp_path / "unseen.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return Arena(
        tmp_path,
        tmp_path / "results",
        tmp_path / "runs",
        str(tmp_path / "model"),
        (0,),
        settings=QUICK,
        recipe=tmp_path / "unseen.yaml",
    )
