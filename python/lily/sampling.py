"""How the next token is chosen: the options, their allowed ranges, and the defaults a checkpoint brings.

Only the options live here. The choosing itself is C++ (sampler.cpp), and penalties count the tokens that were
generated, never the prompt.
"""

from __future__ import annotations

import math
import numbers
import operator
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from .errors import CheckpointError, InvalidInput

if TYPE_CHECKING:
    from . import _ext

_SEED_BITS = 53  # a drawn seed survives JSON, whose numbers are doubles


@dataclass(frozen=True)
class Sampling:
    """Options of one generation; every option is checked by name when the object is made.

    temperature         0 takes the most likely token (ties: the lowest id) and ignores top_k, top_p, min_p and seed;
                        otherwise the logits are divided by it. 0 to 100.
    top_k               keep the k most likely tokens; 0 keeps all.
    top_p               keep the most likely tokens until their probabilities add up to top_p; above 0, up to 1.
    min_p               drop tokens less likely than min_p times the most likely one; 0 to 1.
    repetition_penalty  divide positive and multiply negative logits of generated tokens by it (Keskar et al. 2019,
                        arXiv:1909.05858); above 0, up to 100, 1 is off.
    presence_penalty    subtracted once from the logit of each token generated so far; -100 to 100.
    frequency_penalty   subtracted as many times as the token was generated; -100 to 100.
    logit_bias          added to the logits of single token ids; -1000 to 1000 each, or -inf to forbid a token.
    seed                same seed, input and device: same tokens. None draws a fresh one, which the result reports.

    Raises InvalidInput.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, (allowed, inside) in _RANGES.items():
            value = getattr(self, name)
            if not _is_number(value) or not inside(value):
                raise InvalidInput(f"Sampling: {name} is {value!r}; allowed is a number {allowed}.")
            object.__setattr__(self, name, float(value))
        object.__setattr__(self, "top_k", _whole(self.top_k, "top_k", 2**31))
        if self.seed is not None:
            object.__setattr__(self, "seed", _whole(self.seed, "seed", 2**64))
        object.__setattr__(self, "logit_bias", _checked_bias(self.logit_bias))

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken, without chance."""
        return self.temperature == 0

    def with_seed(self) -> Sampling:
        """These options with a seed in place: this one, or a fresh one drawn from the system's entropy."""
        return self if self.seed is not None else replace(self, seed=secrets.randbits(_SEED_BITS))

    def sampler(self, vocab: int) -> _ext.Sampler:
        """The C++ sampler of these options for a vocabulary of `vocab` tokens. Raises InvalidInput for a biased id
        outside it."""
        from . import _ext

        for token in self.logit_bias:
            if token >= vocab:
                raise InvalidInput(f"Sampling: logit_bias names token {token}; the vocabulary has 0 to {vocab - 1}.")
        return _ext.Sampler(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            logit_bias=dict(self.logit_bias),
            seed=self.with_seed().seed or 0,
        )


_RANGES: dict[str, tuple[str, Callable[[float], bool]]] = {
    "temperature": ("from 0 to 100", lambda value: 0 <= value <= 100),
    "top_p": ("above 0, up to 1", lambda value: 0 < value <= 1),
    "min_p": ("from 0 to 1", lambda value: 0 <= value <= 1),
    "repetition_penalty": ("above 0, up to 100", lambda value: 0 < value <= 100),
    "presence_penalty": ("from -100 to 100", lambda value: -100 <= value <= 100),
    "frequency_penalty": ("from -100 to 100", lambda value: -100 <= value <= 100),
}


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):  # True is an int to Python, and a mistake here
        return False
    try:
        return not math.isnan(float(value))
    except OverflowError:
        return False


def _whole(value: Any, name: str, limit: int) -> int:
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number < limit:
        raise InvalidInput(f"Sampling: {name} is {value!r}; allowed is a whole number from 0 to {limit - 1}.")
    return number


def _checked_bias(bias: object) -> dict[int, float]:
    if not isinstance(bias, Mapping):
        raise InvalidInput(
            f"Sampling: logit_bias is a {type(bias).__name__}; allowed is a mapping of token id to number."
        )
    checked: dict[int, float] = {}
    for token, value in bias.items():
        token = _whole(token, "a token id of logit_bias", 2**31)
        if not _is_number(value) or not (-1000 <= value <= 1000 or value == -math.inf):
            raise InvalidInput(
                f"Sampling: logit_bias of token {token} is {value!r}; allowed is a number from -1000 to 1000, or -inf."
            )
        checked[token] = float(value)
    return checked


GREEDY = Sampling(temperature=0)


def checkpoint_sampling(config: Mapping[str, Any], where: str) -> Sampling:
    """The defaults of a checkpoint, from its parsed generation_config.json; greedy where that says do_sample false or
    nothing at all. Raises CheckpointError naming `where` for a value outside the range of its option."""
    known = {option.name for option in fields(Sampling)} - {"logit_bias", "seed"}
    options: dict[str, Any] = {name: value for name, value in config.items() if name in known and value is not None}
    sample = config.get("do_sample", bool(options))
    if not isinstance(sample, bool):
        raise CheckpointError(f"{where}: do_sample is {sample!r}, expected true or false; correct the file.")
    if not sample:
        return GREEDY
    try:
        return Sampling(**options)
    except InvalidInput as error:
        raise CheckpointError(f"{where}: {error} Correct the file, or pass sampling= with every call.") from None
