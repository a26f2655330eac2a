"""What a user tells of lines before they are read, and the knowledge that comes of it: the same for every command."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fada.decoding.emissions import Emissions
from fada.decoding.evidence import Automatic, infer
from fada.decoding.knowledge import Knowledge, built_in_of, knowledge_of_model, load_knowledge
from fada.targets.target_set import TargetSet


@dataclass(frozen=True)
class Told:
    """What is known of lines.

    Attributes:
        text: files and folders with text in their language.
        targets: a target file.
        knowledge: a .fada file, the name of a built-in one, ``auto`` to find out which, or ``none``.
        domain: of all lines.
        encoding: of the texts, if it is not UTF-8.
    """

    text: Sequence[str] | None = None
    targets: Path | None = None
    knowledge: str | None = None
    domain: str | None = None
    encoding: str | None = None

    @property
    def finds(self) -> bool:
        """Whether it shall be found out which of the built-in knowledge fits."""
        return self.knowledge == "auto"

    @property
    def stored(self) -> str | None:
        """The .fada file or name that was given."""
        return None if self.knowledge in ("auto", "none") else self.knowledge

    @property
    def says_text(self) -> bool:
        """Whether there is something for a language model."""
        return bool(self.text or self.stored)

    def of_domain(self, domain: str | None) -> "Told":
        """The same, where nothing else is told with the knowledge of a domain that comes with fada."""
        if self.text or self.targets or self.knowledge or domain is None:
            return self
        return replace(self, knowledge=built_in_of(domain))

    def load(self, targets: str | Path | None = None, **how: Any) -> Knowledge:
        """Everything that was given.

        Args:
            targets: a target file, where none was given.
            how: see :func:`fada.decoding.knowledge.load_knowledge`.
        """
        how |= {"encoding": self.encoding} if self.encoding else {}
        return load_knowledge(self.targets or targets, self.text or (), self.stored, **how)

    def for_model(self, folder: str | os.PathLike[str], domain: str | None = None) -> Knowledge | None:
        """The text that was given, for default weights and a recogniser trained as its folder tells; without any, what
        the model knows of the `domain`; None without that.
        """
        if not self.says_text:
            if self.knowledge == "none" or domain is None:
                return None
            return Automatic(knowledge_of_model(folder)).told(domain)
        known = self.load(smoothing="kneser-ney")
        trained = known.for_model(folder)
        return trained if self.targets is None else replace(trained, prior=known.prior)

    def of_emissions(
        self, folder: str | os.PathLike[str], emissions: Emissions, domain: str | None
    ) -> tuple[Knowledge | None, str]:
        """:meth:`for_model`, else what fits emissions of all that the model knows; with the targets, and its name."""
        given = self.for_model(folder, domain)
        name = "" if given is None else given.name
        if given is None and self.knowledge != "none":
            posterior = infer(emissions.alphabet, emissions.log_probs, knowledge_of_model(folder))
            given, name = posterior.knowledge, str(posterior)
        if self.targets is not None:
            given = replace(given or Knowledge().for_model(folder), targets=TargetSet.load(self.targets))
        return given, name or str(self.targets or "")
