"""Runs a sublayer on the devices "metal", here the stand-in, and "metal:host", or "metal:host-m5" where the stand-in
is one, and prints a digest of each result. For
test_apple.py, which starts it in a process of its own, over an extension that has the stand-in in it.

    words.py [KERNELS...]       what the device "metal" loads instead of its own library
"""

from __future__ import annotations

import hashlib
import os
import sys

import numpy as np
import numpy.typing as npt

from lily import _ext
from lily.device import parse_device

RANDOM = np.random.default_rng(1)


def draw(*shape: int) -> npt.NDArray[np.uint16]:
    """Normal numbers as bf16."""
    return (RANDOM.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def main(*kernels: str) -> None:
    """Prints the digest of an mlp, whose kernels follow on each other, on both devices."""
    shape = {"hidden": 128, "width": 192, "eps": 1e-6}
    weights = {
        "norm": np.ones(128, np.float32),
        "gate": {"packing": "bf16", "codes": draw(192, 128)},
        "up": {"packing": "bf16", "codes": draw(192, 128)},
        "down": {"packing": "bf16", "codes": draw(128, 192)},
    }
    x = draw(33, 128)
    host = "metal:host-m5" if "LILY_STANDIN_M5" in os.environ else "metal:host"
    for name in ("metal", host):
        arguments = parse_device(name)
        if name == "metal" and kernels:
            arguments["kernels"] = list(kernels)
        result = _ext.Probe(**arguments, threads=1).mlp(shape, weights, x)
        print(hashlib.sha256(result.tobytes()).hexdigest())


if __name__ == "__main__":
    main(*sys.argv[1:])
