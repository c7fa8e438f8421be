"""The names of devices: what a caller may write, and what it means for the extension. Nothing runs here."""

from __future__ import annotations

from . import _ext
from .errors import DeviceError, InvalidInput


def parse_device(device: str) -> tuple[str, str]:
    """(device, instruction set) of a name; "" leaves the instruction set to the extension, which takes the best one
    (or the one in the environment variable LILY_ISA). Raises DeviceError for a device this build or machine lacks."""
    if not isinstance(device, str):
        raise InvalidInput(f"device is a {type(device).__name__}; expected a str such as 'auto' or 'cpu'.")
    kind, _, detail = device.partition(":")
    if kind == "metal":
        raise DeviceError(f"device {device!r} is not built into this version of lily; use device='cpu' (or 'auto').")
    if device in ("auto", "cpu"):
        return "cpu", ""
    known = _ext.instruction_sets()
    if kind != "cpu" or detail not in known:
        names = ", ".join(["auto", "cpu", *(f"cpu:{isa}" for isa in known)])
        raise DeviceError(f"device {device!r} is not known on this machine; expected one of {names}.")
    return "cpu", detail
