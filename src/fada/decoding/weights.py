"""How much each term of the decoder's score counts."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

LanguageModel = Literal["none", "global", "domain"]
NO_GUIDANCE = 1.0
"""λ = 1 is plain beam search."""


class Weights(BaseModel):
    """One setting of the decoder's score.

    λ · log P − (1 − λ) · scale · distance + lm_weight · log P_lm + prior_weight · Σ log(p_domain / p_train)
    + length_bonus · characters, searched with a beam of `beam`. The default is plain beam search.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    lam: float = Field(default=NO_GUIDANCE, ge=0, le=1)
    scale: float = Field(default=1.0, ge=0)
    distance: str = "sorted_w2"
    beam: int = Field(default=5, ge=1)
    prior_weight: float = 0.0
    lm: LanguageModel = "none"
    lm_weight: float = 0.0
    length_bonus: float = 0.0

    def change(self, **values: Any) -> "Weights":
        """The same with other values; what has no effect is set to its default, so that equal scores are equal."""
        merged = {**{name: getattr(self, name) for name in Weights.model_fields}, **values}
        if merged["lam"] == NO_GUIDANCE or merged["scale"] == 0:
            merged |= {"lam": NO_GUIDANCE, "scale": 1.0, "distance": "sorted_w2"}
        if merged["lm"] == "none" or merged["lm_weight"] == 0:
            merged |= {"lm": "none", "lm_weight": 0.0}
        return Weights(**merged)

    @property
    def guided(self) -> bool:
        """Whether the distance to the target has a say."""
        return self.lam < NO_GUIDANCE and self.scale > 0
