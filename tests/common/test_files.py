import errno
import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fada.common.files import is_full, is_stream, naming, replacing, replacing_folder, write_json, write_text
from fada.errors import FadaError
from tests.support.disks import files_up_to


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


@pytest.mark.parametrize(
    ("said", "full"),
    [
        (RuntimeError("basic_ios::clear: iostream error"), True),
        (RuntimeError("PytorchStreamWriter failed writing file data/3"), True),
        (RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0"), True),
        (ValueError("Error while serializing: I/O error: No space left on device (os error 28)"), True),
        (shutil.Error([("a", "b", "[Errno 28] No space left on device: 'b'")]), True),
        (sqlite3.OperationalError("database or disk is full"), True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (OSError(errno.EIO, "os error 28"), False),
        (RuntimeError("PytorchStreamReader failed reading zip archive"), False),
    ],
)
def test_whoever_meets_a_full_disk_is_understood(said: Exception, full: bool, tmp_path: Path) -> None:
    def write() -> None:
        with naming(tmp_path / "x"):
            raise said

    assert is_full(said) is full
    with pytest.raises(OSError if full else type(said), match="No space left on device: '.*x'" if full else None):
        write()


def test_a_copy_that_fills_the_disk_is_told_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(9000))

    def copy() -> None:
        with files_up_to(5000), replacing(tmp_path / "copy") as temporary:
            shutil.copyfile(tmp_path / "large", temporary)

    with pytest.raises(OSError, match=r"No space left on device: '.*copy'"):
        copy()
    assert [path.name for path in tmp_path.iterdir()] == ["large"]


def test_a_folder_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with replacing_folder(tmp_path / "empty") as folder:
        (folder / "a").write_text("a")
    assert [path.name for path in tmp_path.rglob("*")] == ["empty", "a"]
    with pytest.raises(ZeroDivisionError), replacing_folder(tmp_path / "new") as folder:
        (folder / "a").write_text(str(1 // 0))
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


@pytest.mark.skipif(sys.platform == "win32", reason="without locks every temporary file has a name of its own")
def test_what_a_killed_process_left_is_taken_over_and_what_another_writes_is_not(tmp_path: Path) -> None:
    code = (
        "import os, sys; from fada.common.files import replacing\n"
        "with replacing(sys.argv[1]) as path: path.write_text('half'); os._exit(9)"
    )
    path = tmp_path / "x.txt"
    assert subprocess.run([sys.executable, "-c", code, str(path)]).returncode == 9
    [left] = tmp_path.iterdir()
    with replacing(path) as first, replacing(path) as second:
        assert (first.name, second.exists(), second != first) == (left.name, True, True)
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first"
    left.symlink_to(tmp_path / "elsewhere")  # nor is what is no file of ours
    write_text(path, "whole")
    assert path.read_text() == "whole"
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted([left.name, "x.txt"])


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
