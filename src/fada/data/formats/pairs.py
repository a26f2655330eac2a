"""A folder of line images with their transcriptions beside them (`line.png` + `line.gt.txt`), or images alone."""

from collections.abc import Iterator
from pathlib import Path

from fada.data.line import Line, LineSet, Log
from fada.data.source import AUDIO_SUFFIXES, IMAGE_SUFFIXES, LINK_OUTSIDE, Base, Options, split_of, walk
from fada.errors import FadaError
from fada.text.characters import natural_key

GT_SUFFIX = ".gt.txt"
_VARIANTS = (".bin", ".nrm", ".raw", ".dew")  # `line.bin.png`, `line.nrm.png` share `line.gt.txt`


def read_text(path: Path, base: Base, options: Options, log: Log) -> str:
    """The transcription in a file, one line; FadaError with the reason if it cannot be read."""
    if not base.holds(path):
        raise FadaError(LINK_OUTSIDE)
    try:
        text = path.read_bytes().decode(options.encoding or "utf-8-sig")
    except (UnicodeDecodeError, LookupError) as error:
        expected = options.encoding or "UTF-8"
        raise FadaError(f"the text is not {expected} ({error}); save it as UTF-8 or name its encoding") from None
    except OSError as error:
        raise FadaError(f"the text cannot be read ({error})") from None
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > 1:
        log.note(f"{path.name}: {len(lines)} lines of text for one image, joined with spaces.")
    return " ".join(lines)


def _stem(image: Path) -> str:
    stem = image.name[: -len(image.suffix)]
    return next((stem.removesuffix(variant) for variant in _VARIANTS if stem.lower().endswith(variant)), stem)


def open_pairs(source: Path, files: list[Path], options: Options) -> LineSet:
    """Images and sounds with a `.gt.txt` beside them; one without the other is left out with a reason.

    With `options.untranscribed` every image and sound of the folder is read, with its text where there is one.
    """
    base = Base.of(source, options)
    folder = source if source.is_dir() else source.parent
    media = [file for file in walk(folder) if file.suffix.lower() in IMAGE_SUFFIXES | AUDIO_SUFFIXES]

    def read(log: Log, with_media: bool) -> Iterator[Line]:
        texts = {file.parent / file.name[: -len(GT_SUFFIX)]: file for file in files}
        used: set[Path] = set()
        for image in media:
            names = image.name.removesuffix(image.suffix), _stem(image), image.name
            text_file = next((texts[image.parent / name] for name in names if image.parent / name in texts), None)
            text: str | None = None
            if text_file is None:
                if not source.is_dir():
                    continue
                if not options.untranscribed:
                    reason = f"no transcription {_stem(image)}{GT_SUFFIX}"
                    log.skip(base.name(image), reason, "image without transcription")
                    continue
            elif text_file in used and not options.untranscribed:
                log.skip(base.name(image), "another form of an image that was read", "another form of an image")
                continue
            else:
                used.add(text_file)
                try:
                    text = read_text(text_file, base, options, log)
                except FadaError as error:
                    if not options.untranscribed:
                        log.skip(base.name(text_file), str(error), "text cannot be read")
                        continue
                    log.note(f"{base.name(text_file)}: {error}; its image is read without it.")
            if line := _line(image, base, options, log, text):
                yield line
        for text_file in sorted(set(files) - used, key=natural_key):
            log.skip(base.name(text_file), "no image of that name", "transcription without image")

    return LineSet(read, str(source), expected=len(media if options.untranscribed and source.is_dir() else files))


def open_media(source: Path, files: list[Path], options: Options) -> LineSet:
    """Images or sounds without transcription, to be transcribed."""
    base = Base.of(source, options)

    def read(log: Log, with_media: bool) -> Iterator[Line]:
        for file in files:
            if line := _line(file, base, options, log, None):
                yield line

    return LineSet(read, str(source), expected=len(files))


def _line(file: Path, base: Base, options: Options, log: Log, text: str | None) -> Line | None:
    name = base.name(file)
    split = split_of(Path(name).parent)
    if options.split not in (None, split):
        return None
    if not base.holds(file):
        log.skip(name, LINK_OUTSIDE)
        return None
    extra = {"split": split} if split else {}
    sound = file.suffix.lower() in AUDIO_SUFFIXES
    return Line(
        id=name[: -len(file.suffix)],
        text=text,
        domain=options.domain_of(None, name, extra, log),
        image=None if sound else file,
        audio=file if sound else None,
        source=name,
        extra=extra,
    )
