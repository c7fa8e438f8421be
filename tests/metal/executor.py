"""The executor of Metal kernels (metal/toolchain/runtime/exec.h) behind numpy arrays, for tests. It binds and runs;
what is right is the test's affair."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lily import metal

Buffer = NDArray[Any] | bytes | None


class _Constant(ctypes.Structure):
    _fields_ = (("index", ctypes.c_int), ("size", ctypes.c_int), ("value", ctypes.c_ubyte * 16))


class _Launch(ctypes.Structure):
    _fields_ = (
        ("buffers", ctypes.c_void_p * 31),
        ("lengths", ctypes.c_size_t * 31),
        ("threadgroup_memory", ctypes.c_uint32 * 8),
        ("grid", ctypes.c_uint32 * 3),
        ("threads", ctypes.c_uint32 * 3),
        ("grid_is_threads", ctypes.c_int),
        ("constants", _Constant * 32),
        ("constant_count", ctypes.c_int),
    )


class Stats(ctypes.Structure):
    """Counters of a dispatch."""

    threads: int
    switches: int
    collectives: int
    barriers: int
    reports: int
    tgmem: int
    divergent: int
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("threads", "switches", "collectives", "barriers", "reports", "tgmem", "divergent")
    )


class Touched(ctypes.Structure):
    """Bytes of a buffer that a dispatch read and wrote."""

    unique_read: int
    unique_written: int
    loaded: int
    read: int
    written: int
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("unique_read", "unique_written", "loaded", "read", "written"))


class KernelError(Exception):
    """What the executor or the checker says."""


class Module:
    """The kernels of one .metal file in a flavour ("host" or "check")."""

    def __init__(self, source: Path, flavour: str = "host") -> None:
        built = metal.compiled((source,), flavour)
        self._library = ctypes.CDLL(str(built.executor), mode=ctypes.RTLD_GLOBAL)
        self._library.msl_load.restype = ctypes.c_void_p
        self._library.msl_get.restype = ctypes.c_void_p
        self._library.msl_get.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
        self._library.msl_dispatch.argtypes = (ctypes.c_void_p, ctypes.POINTER(_Launch))
        self._library.msl_set.argtypes = (ctypes.c_char_p, ctypes.c_long)
        self._library.msl_count.argtypes = (ctypes.c_void_p,)
        self._library.msl_at.restype = ctypes.c_void_p
        self._library.msl_at.argtypes = (ctypes.c_void_p, ctypes.c_int)
        self._library.msl_info.restype = ctypes.POINTER(ctypes.c_char_p)  # a struct that begins with the name
        self._library.msl_info.argtypes = (ctypes.c_void_p,)
        self._library.msl_error.restype = ctypes.c_char_p
        self._module = self._library.msl_load(str(built.modules[0]).encode())
        if not self._module:
            raise KernelError(self._error())

    def kernels(self) -> list[str]:
        """The names of all kernels."""
        every = range(self._library.msl_count(self._module))
        return [self._library.msl_info(self._library.msl_at(self._module, i))[0].decode() for i in every]

    def set(self, **settings: int) -> None:
        """Settings of the executor: workers, order, stack, ftz, strict."""
        for name, value in settings.items():
            self._library.msl_set(name.encode(), value)

    def run(
        self,
        kernel: str,
        buffers: Sequence[Buffer] | Mapping[int, Buffer],
        *,
        grid: Sequence[int],
        threads: Sequence[int],
        grid_is_threads: bool = False,
        threadgroup_memory: Sequence[int] = (),
        constants: Mapping[int, Any] | None = None,
    ) -> None:
        """Dispatches a kernel. Arrays are read and written in place, bytes are copied."""
        handle = self._library.msl_get(self._module, kernel.encode())
        if not handle:
            raise KernelError(self._error())
        launch, kept = _Launch(), []
        for index, buffer in buffers.items() if isinstance(buffers, Mapping) else enumerate(buffers):
            if buffer is None:
                continue
            array = buffer if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, np.uint8).copy()
            assert array.flags.c_contiguous
            kept.append(array)
            launch.buffers[index], launch.lengths[index] = array.ctypes.data, array.nbytes
        for index, size in enumerate(threadgroup_memory):
            launch.threadgroup_memory[index] = size
        launch.grid[:] = (*grid, 1, 1)[:3]
        launch.threads[:] = (*threads, 1, 1)[:3]
        launch.grid_is_threads = grid_is_threads
        for place, (index, value) in enumerate((constants or {}).items()):
            raw = bytes(value)
            launch.constants[place] = _Constant(index, len(raw), (ctypes.c_ubyte * 16)(*raw))
        launch.constant_count = len(constants or {})
        if self._library.msl_dispatch(handle, ctypes.byref(launch)):
            raise KernelError(self._error())

    def stats(self) -> Stats:
        """Counters of the last dispatch."""
        stats = Stats()
        self._library.msl_get_stats(ctypes.byref(stats))
        return stats

    def touched(self, index: int) -> Touched:
        """What the last dispatch touched of the buffer at an index; in the flavour "check" only."""
        touched = Touched()
        self._library.msl_get_touched(index, ctypes.byref(touched))
        return touched

    def _error(self) -> str:
        text = self._library.msl_error()
        return text.decode() if isinstance(text, bytes) else ""
