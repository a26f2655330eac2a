"""Line images with `.gt.txt` beside them, and images alone."""

from pathlib import Path

import pytest
from PIL import Image

from fada.data.source import read_lines


def pair(folder: Path, stem: str, text: str | bytes | None, suffix: str = ".png") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    Image.new("L", (50, 20), 200).save(folder / f"{stem}{suffix}")
    if text is not None:
        (folder / f"{stem}.gt.txt").write_bytes(text if isinstance(text, bytes) else text.encode())


def test_pairs_are_read_with_domain_and_split_from_their_folders(tmp_path: Path) -> None:
    pair(tmp_path / "train" / "13", "a", "eins\n")
    pair(tmp_path / "test" / "14", "b", "\ufeffzwei\r\n", ".jpg")
    lines = list(read_lines(tmp_path, domain_from="folder"))
    assert [(line.id, line.text, line.domain, line.split) for line in lines] == [
        ("test/14/b", "zwei", "14", "test"),
        ("train/13/a", "eins", "13", "train"),
    ]
    assert lines[0].load_image().size == (50, 20)
    assert [line.text for line in read_lines(tmp_path, split="train")] == ["eins"]


def test_one_without_the_other_is_skipped_with_its_reason(tmp_path: Path) -> None:
    pair(tmp_path, "a", "both")
    pair(tmp_path, "b", None)
    (tmp_path / "c.gt.txt").write_text("text alone", encoding="utf-8")
    lines = read_lines(tmp_path)
    assert [line.text for line in lines] == ["both"]
    assert {one.source: one.reason for one in lines.skipped} == {
        "b.png": "no transcription b.gt.txt",
        "c.gt.txt": "no image of that name",
    }


def test_all_images_are_read_where_texts_are_not_needed(tmp_path: Path) -> None:
    pair(tmp_path, "a", "both")
    pair(tmp_path, "a.bin", None)
    pair(tmp_path, "b", None)
    pair(tmp_path, "c", "café".encode("latin-1"))
    (tmp_path / "d.gt.txt").write_text("text alone", encoding="utf-8")
    lines = read_lines(tmp_path, untranscribed=True)
    assert [(line.id, line.text) for line in lines] == [("a.bin", "both"), ("a", "both"), ("b", None), ("c", None)]
    assert lines.expected == 4
    assert "c.gt.txt: the text is not UTF-8" in lines.notes[0]
    assert [one.source for one in lines.skipped] == ["d.gt.txt"]
    named = read_lines(tmp_path / "a.gt.txt", untranscribed=True)
    assert {line.text for line in named} == {"both"}, "a text file that is named stands for its own images"


@pytest.mark.parametrize(("size", "expected"), [((600, 40), 2), ((600, 900), None)])
def test_the_number_of_lines_on_pages_is_not_that_of_their_files(
    tmp_path: Path, size: tuple[int, int], expected: int | None
) -> None:
    for name in ("a.png", "b.png"):
        Image.new("L", size, 200).save(tmp_path / name)
    assert read_lines(tmp_path, untranscribed=True).expected == expected


def test_processed_forms_of_an_image_share_a_text_and_are_read_once(tmp_path: Path) -> None:
    pair(tmp_path, "a", "text", ".png")
    pair(tmp_path, "a.bin", None)
    lines = read_lines(tmp_path)
    assert len(list(lines)) == 1
    assert lines.skipped_count == 1


def test_a_text_in_another_encoding_is_skipped_or_read_when_named(tmp_path: Path) -> None:
    pair(tmp_path, "a", "café".encode("latin-1"))
    pair(tmp_path, "b", "good")
    lines = read_lines(tmp_path)
    assert [line.text for line in lines] == ["good"]
    assert "not UTF-8" in lines.skipped[0].reason
    assert [line.text for line in read_lines(tmp_path, encoding="latin-1")] == ["café", "good"]


def test_an_empty_text_is_kept_and_several_lines_are_joined_with_a_note(tmp_path: Path) -> None:
    pair(tmp_path, "a", "")
    pair(tmp_path, "b", "one\ntwo\n")
    lines = read_lines(tmp_path)
    assert [line.text for line in lines] == ["", "one two"]
    assert "2 lines of text" in lines.notes[0]


@pytest.mark.parametrize("text", ["שלום", "e\u0301\ue5d0", "x" * 5000])
def test_text_is_kept_as_it_is(tmp_path: Path, text: str) -> None:
    pair(tmp_path, "a", text)
    assert [line.text for line in read_lines(tmp_path)] == [text]


def test_images_alone_have_no_text(tmp_path: Path) -> None:
    pair(tmp_path, "b", None)
    pair(tmp_path, "a", None, ".tif")
    (tmp_path / ".hidden.png").write_bytes(b"")
    assert [(line.id, line.text) for line in read_lines(tmp_path)] == [("a", None), ("b", None)]
    assert [line.id for line in read_lines(tmp_path / "a.tif")] == ["a"]


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    pair(tmp_path / "real", "a", None)
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.png").symlink_to(tmp_path / "real" / "a.png")
    lines = read_lines(tmp_path / "set")
    assert list(lines) == []
    assert "link" in lines.skipped[0].reason
    assert len(list(read_lines(tmp_path / "set", allow_outside=True))) == 1
    assert len(list(read_lines(tmp_path / "set" / "a.png"))) == 1


def test_a_text_that_is_a_link_out_of_the_folder_is_not_read(tmp_path: Path) -> None:
    pair(tmp_path / "set", "a", None)
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    (tmp_path / "set" / "a.gt.txt").symlink_to(tmp_path / "secret")
    lines = read_lines(tmp_path / "set")
    assert list(lines) == []
    assert [(one.source, "link" in one.reason) for one in lines.skipped] == [("a.gt.txt", True)]
    assert [line.text for line in read_lines(tmp_path / "set", allow_outside=True)] == ["secret"]


def test_sounds_are_read_like_images(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    assert [(line.id, line.audio) for line in read_lines(tmp_path)] == [("a", tmp_path / "a.wav")]
    (tmp_path / "a.gt.txt").write_text("hello", encoding="utf-8")
    assert [(line.text, line.audio) for line in read_lines(tmp_path)] == [("hello", tmp_path / "a.wav")]
