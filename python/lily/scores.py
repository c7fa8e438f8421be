"""What a model thinks of a text: the numbers of Engine.score, reduced in C++ so that no row of logits comes here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Scores:
    """What a model thinks of a text of n tokens (Engine.score).

    log_probs      float32 [n - 1], log-probability of token i + 1 after tokens 0 to i
    top_ids        int32 [n, top], the most likely next tokens after each position, best first
    top_log_probs  float32 [n, top], theirs
    log_sum_exp    float32 [n], of the logits: logit = log-probability + log_sum_exp
    """

    log_probs: npt.NDArray[np.float32]
    top_ids: npt.NDArray[np.int32]
    top_log_probs: npt.NDArray[np.float32]
    log_sum_exp: npt.NDArray[np.float32]

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-probability; 1.0 for a single token."""
        return float(np.exp(-self.log_probs.mean(dtype=np.float64))) if len(self.log_probs) else 1.0
