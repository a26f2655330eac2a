"""Jobs as tests ask for them: every setting a keyword."""

import os
from dataclasses import fields
from typing import Any

from fada.data.line import LineSet
from fada.jobs import transcribe as jobs


def transcribe(
    recognizer: Any, lines: LineSet, out: str | os.PathLike[str], format: str | None = None, **options: Any
) -> jobs.Summary:
    """Transcribe with any of the settings of :class:`fada.jobs.transcribe.Job` and `Execution`."""
    run = {one.name: options.pop(one.name) for one in fields(jobs.Execution) if one.name in options}
    return jobs.transcribe(recognizer, lines, out, jobs.Job(**options), jobs.Execution(**run), format=format)
