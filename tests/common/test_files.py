import errno
import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fada.common.files import is_stream, replacing, write_json, write_text
from fada.errors import FadaError


def test_a_failed_write_leaves_the_old_file_and_no_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / "result.txt"
    write_text(path, "old")

    def fail_half_way() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_folders_are_made_and_json_keeps_order_and_scripts(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down" / "x.json"
    write_json(path, {"ω": 1, "a": [1.5]})
    assert path.read_text(encoding="utf-8").startswith('{\n  "ω": 1')
    assert json.loads(path.read_text(encoding="utf-8")) == {"ω": 1, "a": [1.5]}


def test_not_a_number_is_refused_rather_than_written_as_invalid_json(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "x.json", float("nan"))
    assert not (tmp_path / "x.json").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_link_stays_a_link_and_its_file_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to(tmp_path / "real" / "x.txt")
    write_text(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real" / "x.txt").read_text() == "new"


@pytest.mark.skipif(sys.platform == "win32", reason="no modes there")
def test_a_new_file_obeys_the_mask_and_an_old_one_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_text("old")
    (tmp_path / "old.txt").chmod(0o640)
    before = os.umask(0o077)
    try:
        for name in ("old.txt", "new.txt"):
            write_text(tmp_path / name, "text")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("old.txt", "new.txt")]
    assert modes == [0o640, 0o600]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names there")
def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write_text(pipe, "through")
    reader.join(10)
    assert read == ["through"]
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="no such name there")
def test_standard_output_is_written_into_wherever_it_leads(tmp_path: Path) -> None:
    code = (
        "from fada.common.files import write_text; print('a', flush=True); write_text('/dev/stdout', 'b'); print('c')"
    )
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "a\nbc\n"
    with (tmp_path / "out").open("wb") as out:
        subprocess.run(command, stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "a\nbc\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert is_stream("/dev/stdout")
    assert not any(map(is_stream, (tmp_path / "out", tmp_path, tmp_path / "none")))


def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path: Path) -> None:
    def write() -> None:
        with replacing(tmp_path / "x.txt"):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match=r"No space left on device: '.*x.txt'"):
        write()
    assert list(tmp_path.iterdir()) == []


def test_long_names_are_written(tmp_path: Path) -> None:
    write_text(tmp_path / f"{'x' * 240}.txt", "text")
    assert (tmp_path / f"{'x' * 240}.txt").read_text() == "text"


def test_the_content_is_on_disk_before_it_takes_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen = tmp_path / "x.txt", []
    monkeypatch.setattr(os, "fsync", lambda handle: seen.append((os.fstat(handle).st_size, path.exists())))
    write_text(path, "text")
    assert seen == [(4, False)]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(FadaError, match="a folder is here"):
        write_text(tmp_path, "x")
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(FadaError, match="cannot be written"):
        write_text(tmp_path / "file" / "below", "x")
