"""How much each term of the decoder's score counts, and what counts where nobody says otherwise."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from fada.distances import DISTANCE, SCALE
from fada.errors import FadaError

LanguageModel = Literal["none", "global", "domain", "over"]
"""None, that of all text, that of the line's domain, that of all text over what the recogniser has learnt."""

NO_GUIDANCE = 1.0
"""λ = 1 is plain beam search."""
BEAM = 5
"""The paper's beam."""
WIDEST_BEAM = 10_000


def check_beam(beam: int) -> int:
    """The beam, if it is one that memory and patience are enough for."""
    if beam > WIDEST_BEAM:
        raise FadaError(
            f"the beam is {beam} wide, expected at most {WIDEST_BEAM}: beyond some hundred hypotheses the text hardly "
            "changes, while time and memory grow with their number."
        )
    return beam


class Weights(BaseModel):
    """One setting of the decoder's score.

    λ · log P − (1 − λ) · scale · distance + lm_weight · log P_lm + prior_weight · Σ log(p_domain / p_train)
    + length_bonus · characters, searched with a beam of `beam`. The default is plain beam search.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    lam: float = Field(default=NO_GUIDANCE, ge=0, le=1)
    scale: float = Field(default=SCALE, ge=0)
    distance: str = DISTANCE
    beam: int = Field(default=BEAM, ge=1, le=WIDEST_BEAM)
    prior_weight: float = 0.0
    lm: LanguageModel = "none"
    lm_weight: float = 0.0
    length_bonus: float = 0.0

    def change(self, **values: Any) -> "Weights":
        """The same with other values; what has no effect is set to its default, so that equal scores are equal."""
        merged = {**{name: getattr(self, name) for name in Weights.model_fields}, **values}
        if merged["lam"] == NO_GUIDANCE or merged["scale"] == 0:
            merged |= {"lam": NO_GUIDANCE, "scale": SCALE, "distance": DISTANCE}
        if merged["lm"] == "none" or merged["lm_weight"] == 0:
            merged |= {"lm": "none", "lm_weight": 0.0}
        return Weights(**merged)

    @property
    def guided(self) -> bool:
        """Whether the distance to the target has a say."""
        return self.lam < NO_GUIDANCE and self.scale > 0

    @property
    def name(self) -> str:
        """What differs from plain beam search, in a form that can be part of a file's name."""
        shown = {"beam": self.beam, **self.change().model_dump(exclude={"beam"}, exclude_defaults=True)}
        return "-".join(
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in shown.items()
        )
