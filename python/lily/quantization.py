"""What config.json says about quantised matrices, and whether the tensors agree with it.

The width of each matrix is read from its tensors (packed columns against true columns), never assumed; config.json has
one default and overrides by path, and must agree. lily runs MLX's affine mode with groups of 64 at 4 or 8 bits, and
insists on 8 bits for the two routers of each layer: at 4 bits they choose other experts than the original weights do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .architecture import DEFAULT_REPO, GROUP, PREFIX, Projection
from .errors import CheckpointError, UnsupportedCheckpoint
from .shards import TensorEntry
from .strict_json import shown

BITS = (4, 8)
SUPPORTED = f"lily runs MLX affine quantisation, group size {GROUP}, 4 bits (8 for the routers, 4 or 8 elsewhere)"
CONVERT = "mlx_lm.convert --hf-path Qwen/Qwen3.6-35B-A3B --mlx-path Qwen3.6-35B-A3B-4bit -q"
REMEDY = f"use {DEFAULT_REPO}, or convert the original weights: {CONVERT}"


@dataclass(frozen=True)
class Quantization:
    """config.json's `quantization`: the default width and the widths of the paths it names."""

    bits: int
    named: Mapping[str, int]

    def bits_of(self, path: str) -> int | None:
        """The width config.json states for this very path (with or without the language_model prefix), else None."""
        return self.named.get(path, self.named.get(path.removeprefix(PREFIX)))


def read_quantization(config: Mapping[str, Any], where: str) -> Quantization:
    """The quantisation in a parsed config.json. Raises UnsupportedCheckpoint for any but MLX affine, group 64."""
    found, legacy = config.get("quantization"), config.get("quantization_config")
    if found is None and legacy is None:
        raise UnsupportedCheckpoint(
            f"{where}: has no quantization, so the weights are unquantised; {SUPPORTED}; {REMEDY}"
        )
    if found is not None and legacy is not None and found != legacy:
        raise CheckpointError(
            f"{where}: quantization and quantization_config differ, expected the same content in both (the converter "
            "writes both); restore the file from the conversion"
        )
    settings = legacy if found is None else found
    if not isinstance(settings, Mapping):
        raise CheckpointError(f"{where}: quantization is a {type(settings).__name__}, expected an object; {REMEDY}")
    if "quant_method" in settings:
        raise UnsupportedCheckpoint(
            f"{where}: quant_method is {shown(settings['quant_method'])}; {SUPPORTED}; {REMEDY}"
        )
    default = _bits(settings, {}, f"{where}: quantization")
    named = {}
    for path, value in settings.items():
        if isinstance(value, Mapping):
            named[path] = _bits(value, settings, f"{where}: quantization of {shown(path)}")
    return Quantization(default, named)


def _bits(settings: Mapping[str, Any], inherited: Mapping[str, Any], what: str) -> int:
    def get(key: str, default: Any = None) -> Any:
        return settings.get(key, inherited.get(key, default))

    mode, group, bits = get("mode", "affine"), get("group_size"), get("bits")
    if mode != "affine":
        raise UnsupportedCheckpoint(f"{what} has mode {shown(mode)}; {SUPPORTED}; {REMEDY}")
    if type(group) is not int or type(bits) is not int:
        raise CheckpointError(
            f"{what} has group_size {shown(group)} and bits {shown(bits)}, expected two integers; {REMEDY}"
        )
    if group != GROUP or bits not in BITS:
        raise UnsupportedCheckpoint(f"{what} has group size {group} and {bits} bits; {SUPPORTED}; {REMEDY}")
    return bits


def check_projection(
    projection: Projection,
    codes: TensorEntry,
    scales: TensorEntry | None,
    biases: TensorEntry | None,
    quantization: Quantization,
) -> int:
    """The width of one matrix in bits, after every check of its three tensors against the architecture and config.json.

    `codes` is the tensor `path`.weight. Raises UnsupportedCheckpoint for another kind of quantisation and
    CheckpointError where tensors and config.json disagree.
    """
    path = projection.path
    if scales is None:
        raise UnsupportedCheckpoint(
            f"{path!r} is unquantised ({codes.dtype} {list(codes.shape)}); {SUPPORTED}; {REMEDY}"
        )
    if biases is None:
        raise UnsupportedCheckpoint(
            f"{path!r} has scales but no biases, as MXFP4, NVFP4 and MXFP8 do; {SUPPORTED}; {REMEDY}"
        )
    for entry, dtype in ((codes, "U32"), (scales, "BF16"), (biases, "BF16")):
        if entry.dtype != dtype:
            raise UnsupportedCheckpoint(f"{entry.name!r} is {entry.dtype}, expected {dtype}; {SUPPORTED}; {REMEDY}")
    bits = _packed_bits(projection, codes)
    groups = (*projection.lead, projection.cols // GROUP)
    for entry in (scales, biases):
        if entry.shape != groups:
            raise CheckpointError(
                f"{entry.name!r} has shape {list(entry.shape)}, expected {list(groups)} (one value per {GROUP} of "
                f"{projection.cols} inputs, dimensions from config.json); {REMEDY}"
            )
    _check_width(projection, bits, quantization)
    return bits


def _packed_bits(projection: Projection, codes: TensorEntry) -> int:
    lead, words = codes.shape[:-1], codes.shape[-1] if codes.shape else 0
    bits, rest = divmod(32 * words, projection.cols)
    if lead != projection.lead or rest or bits == 0 or bits > 32:
        packed = [*projection.lead, projection.cols * 4 // 32]
        raise CheckpointError(
            f"{codes.name!r} has shape {list(codes.shape)}, expected {packed} at 4 bits, or twice the last of it at 8 "
            "(dimensions from config.json); use the config.json and weights of one conversion"
        )
    if bits not in BITS:
        raise UnsupportedCheckpoint(f"{codes.name!r} is packed at {bits} bits; {SUPPORTED}; {REMEDY}")
    return bits


def _check_width(projection: Projection, bits: int, quantization: Quantization) -> None:
    path, stated = projection.path, quantization.bits_of(projection.path)
    if projection.is_router and bits != 8:
        raise UnsupportedCheckpoint(
            f"{path!r} is packed at {bits} bits, expected 8: coarser routers send tokens to other experts; {REMEDY}"
        )
    # The converter always names the routers; a file that does not is read like mlx-lm does, from the packed width.
    expected = bits if stated is None and projection.is_router else stated or quantization.bits
    if bits != expected:
        raise CheckpointError(
            f"{path!r} is packed at {bits} bits, expected the {expected} that config.json states; use the config.json "
            "and weights of one conversion"
        )
