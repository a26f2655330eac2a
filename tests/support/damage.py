"""Files damaged on purpose."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def damaged_groups(path: Path, count: int, bad: Iterable[int]) -> Path:
    """A parquet file of `count` row groups of ten rows, of which some are damaged."""
    rows = [{"n": number, "text": f"line {number} {hash(str(number)):x}"} for number in range(10 * count)]
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=10, compression="zstd")
    data = bytearray(path.read_bytes())
    metadata = pq.read_metadata(path)
    for group in bad:
        column = metadata.row_group(group).column(1)
        start = column.dictionary_page_offset or column.data_page_offset
        data[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(data)
    return path
