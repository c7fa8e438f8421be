"""The names of devices and of their arithmetics: what a caller may write, and what it means for the extension. Nothing
runs here, but for the compiler that readies the kernels of `metal:host`.
"""

from __future__ import annotations

import sys
from typing import TypedDict

from . import _ext, metal
from .command_options import ACTIVATIONS
from .errors import DeviceError, InvalidInput

# The kernels that metal:host runs: those of every Apple GPU, or those of one with tensor units. And how it may be asked
# to run them: the order of lanes, and whether the checker looks on.
_HOST_KERNELS = {"host": False, "host-m5": True}
_HOST = ("", "checked", "reverse", "random")


class DeviceArguments(TypedDict):
    """What the extension takes. isa "" leaves the instruction set to it: the best one, or the one of LILY_ISA."""

    device: str
    isa: str
    kernels: list[str]


def parse_device(device: str) -> DeviceArguments:
    """The arguments for a name. Raises DeviceError for a device that this build or machine lacks."""
    if not isinstance(device, str):
        raise InvalidInput(f"device is a {type(device).__name__}; expected a str such as 'auto' or 'cpu'.")
    if device == "auto":
        device = "metal" if sys.platform == "darwin" else "cpu"
    kind, _, detail = device.partition(":")
    if device == "cpu":
        return {"device": "cpu", "isa": "", "kernels": []}
    if device in ("metal", "metal:m1"):
        libraries = metal.apple_kernels(tensor_units=device == "metal")
        return {"device": "metal", "isa": "", "kernels": [str(path) for path in libraries]}
    if kind == "cpu" and detail in _ext.instruction_sets():
        return {"device": "cpu", "isa": detail, "kernels": []}
    if kind == "metal":
        driver, _, mode = detail.partition(":")
        if driver in _HOST_KERNELS and mode in _HOST and not detail.endswith(":"):
            flavour = "check" if mode == "checked" else "host"
            made = metal.kernels(flavour, tensor_units=_HOST_KERNELS[driver])
            order = "" if mode == "checked" else mode
            return {"device": "metal:host", "isa": order, "kernels": [str(made.executor), *map(str, made.modules)]}
        if detail == "cuda":
            return {"device": device, "isa": "", "kernels": [str(path) for path in metal.kernels("ptx").modules]}
    cpus = (f"cpu:{isa}" for isa in _ext.instruction_sets())
    names = ", ".join(["auto", "cpu", *cpus, "metal", "metal:m1", "metal:host", "metal:host-m5"])
    raise DeviceError(f"device {device!r} is not known on this machine; expected one of {names}.")


def parse_activations(activations: str | None, device: str) -> bool:
    """Whether products take their inputs in 8 bits on such a device ("cpu", "metal", "metal:host")."""
    if activations is None:
        return device == "cpu"
    if activations not in ACTIVATIONS:
        raise InvalidInput(f"activations is {activations!r}; expected 'int8', 'bf16' or None for the device's own.")
    if activations == "int8" and device != "cpu":
        raise InvalidInput(
            f"activations is 'int8', and the kernels of {device} take bf16; leave it out, or use the cpu."
        )
    return activations == "int8"
