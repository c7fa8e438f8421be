"""A device for the kernels of metal/ as a benchmark wants it: memory, dispatches with barriers, and their time.

Two of them, over the executor on the CPU (which times nothing that matters, but computes the same) and over the driver
of an NVIDIA GPU, where a command buffer is one CUDA graph whose dispatches depend on those before the last barrier.
Compiled kernels come from the compiler here, or from a folder that `build` filled, for a machine without one. The
drivers of lily itself are in src/lily_ext/metal.
"""

from __future__ import annotations

import ctypes
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lily import metal

Array = NDArray[Any]
OFF_ARMS = Path(__file__).parent / "metal"
PLACES = 31  # buffer indices of a kernel


@dataclass(frozen=True)
class Buffer:
    """Memory of a device, or a part of it: an address there, and bytes."""

    at: int
    size: int

    def part(self, offset: int, size: int) -> Buffer:
        """The bytes from offset on."""
        assert 0 <= offset <= offset + size <= self.size
        return Buffer(self.at + offset, size)


@dataclass(frozen=True)
class Dispatch:
    """One dispatch: kernel, buffers in the order of their indices (the last one's content as bytes), sizes."""

    kernel: str
    buffers: tuple[Buffer | bytes, ...]
    groups: tuple[int, ...]
    threads: int
    threadgroup: int = 0  # bytes of the kernel's threadgroup argument


BARRIER = None
Work = Sequence[Dispatch | None]
"""Dispatches, with BARRIER where what follows waits for what is before it."""


class Device(ABC):
    """What both have. `seconds` are those of the work alone, without the host's part where the device can tell."""

    name: str

    @abstractmethod
    def allocate(self, size: int) -> Buffer:
        """So many bytes, all bits set: NaN in every type."""

    @abstractmethod
    def write(self, to: Buffer, content: Array) -> None:
        """From the host, at once."""

    @abstractmethod
    def read(self, buffer: Buffer, dtype: Any) -> Array:
        """To the host, at once."""

    @abstractmethod
    def copy(self, to: Buffer, source: Buffer) -> None:
        """Within the device."""

    @abstractmethod
    def commands(self, work: Work) -> Any:
        """A command buffer that can be run many times."""

    @abstractmethod
    def run(self, commands: Any) -> float:
        """Runs a command buffer to its end; its seconds."""

    def buffer(self, content: Array) -> Buffer:
        """Memory with a content."""
        made = self.allocate(content.nbytes)
        self.write(made, content)
        return made


def off_arms() -> tuple[Path, ...]:
    """The kernels that only benchmarks use."""
    return tuple(sorted(OFF_ARMS.glob("*.metal")))


def build(folder: Path) -> None:
    """Fills a folder with the PTX of all kernels, for `open_device` where there is no compiler."""
    folder.mkdir(parents=True, exist_ok=True)
    for module in metal.compiled((*metal.sources(), *off_arms()), "ptx").modules:
        shutil.copy(module, folder)


def open_device(kind: str, kernels: Path | None = None) -> Device:
    """The device "metal:host" or "metal:cuda"; kernels: the folder of `build`, for the second."""
    if kind == "metal:host":
        found = metal.compiled((*metal.sources(), *off_arms()), "host")
        assert found.executor is not None
        return HostDevice(found.executor, found.modules)
    if kernels is None:
        return CudaDevice(metal.compiled((*metal.sources(), *off_arms()), "ptx").modules)
    modules = tuple(sorted(kernels.glob("*.ptx")))
    if not modules:
        raise SystemExit(f"no .ptx in {kernels}: fill it with --build {kernels} where clang is")
    return CudaDevice(modules)


class _Launch(ctypes.Structure):  # msl_launch of the executor
    _fields_ = (
        ("buf", ctypes.c_void_p * PLACES),
        ("len", ctypes.c_size_t * PLACES),
        ("tgmem", ctypes.c_uint32 * 8),
        ("grid", ctypes.c_uint32 * 3),
        ("tptg", ctypes.c_uint32 * 3),
        ("grid_is_threads", ctypes.c_int),
        ("constants", ctypes.c_char * (24 * 32)),
        ("nfc", ctypes.c_int),
    )


class HostDevice(Device):
    """The executor. A command buffer is its dispatches one after another."""

    name = "the executor on the CPU"

    def __init__(self, executor: Path, modules: Sequence[Path]) -> None:
        self._lib = ctypes.CDLL(str(executor), mode=ctypes.RTLD_GLOBAL)
        for function in (self._lib.msl_load, self._lib.msl_get):
            function.restype = ctypes.c_void_p
        self._lib.msl_error.restype = ctypes.c_char_p
        self._modules = [ctypes.c_void_p(self._lib.msl_load(str(path).encode())) for path in modules]
        self._memory: dict[int, Array] = {}  # by address

    def allocate(self, size: int) -> Buffer:
        """See Device."""
        memory = np.full(size + 16, 0xFF, np.uint8)
        at = memory.ctypes.data + -memory.ctypes.data % 16
        self._memory[at] = memory
        return Buffer(at, size)

    def write(self, to: Buffer, content: Array) -> None:
        """See Device."""
        assert content.nbytes <= to.size
        ctypes.memmove(to.at, np.ascontiguousarray(content).ctypes.data, content.nbytes)

    def read(self, buffer: Buffer, dtype: Any) -> Array:
        """See Device."""
        return np.frombuffer(ctypes.string_at(buffer.at, buffer.size), dtype)

    def copy(self, to: Buffer, source: Buffer) -> None:
        """See Device."""
        ctypes.memmove(to.at, source.at, source.size)

    def commands(self, work: Work) -> list[Dispatch]:
        """See Device."""
        return [dispatch for dispatch in work if dispatch is not BARRIER]

    def run(self, commands: list[Dispatch]) -> float:
        """See Device."""
        start = time.perf_counter()
        for dispatch in commands:
            self._dispatch(dispatch)
        return time.perf_counter() - start

    def _dispatch(self, dispatch: Dispatch) -> None:
        launch, kept = _Launch(), []
        for index, buffer in enumerate(dispatch.buffers):
            if isinstance(buffer, bytes):
                kept.append(ctypes.create_string_buffer(buffer, len(buffer)))
                launch.buf[index], launch.len[index] = ctypes.addressof(kept[-1]), len(buffer)
            else:
                launch.buf[index], launch.len[index] = buffer.at, buffer.size
        launch.tgmem[0] = dispatch.threadgroup
        launch.grid[:] = _three(dispatch.groups)
        launch.tptg[:] = _three((dispatch.threads,))
        found = (self._lib.msl_get(module, dispatch.kernel.encode()) for module in self._modules)
        kernel = next((at for at in found if at), None)
        if kernel is None or self._lib.msl_dispatch(ctypes.c_void_p(kernel), ctypes.byref(launch)):
            raise SystemExit(f"{dispatch.kernel}: {self._lib.msl_error().decode()}")


class _Args(ctypes.Structure):  # msl_args: what a kernel gets
    _fields_ = (
        ("buf", ctypes.c_uint64 * PLACES),
        ("tgoff", ctypes.c_uint32 * 8),
        ("grid", ctypes.c_uint32 * 3),
        ("tgs", ctypes.c_uint32 * 3),
        ("tptg", ctypes.c_uint32 * 3),
    )


class _Node(ctypes.Structure):  # CUDA_KERNEL_NODE_PARAMS, version 2
    _fields_ = (
        ("function", ctypes.c_void_p),
        ("groups", ctypes.c_uint * 3),
        ("threads", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("parameters", ctypes.POINTER(ctypes.c_void_p)),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class Graph:
    """A command buffer of a CudaDevice."""

    executable: ctypes.c_void_p
    constants: list[Buffer] = field(default_factory=list)


class CudaDevice(Device):
    """An NVIDIA GPU through its driver library."""

    def __init__(self, modules: Sequence[Path]) -> None:
        self._lib = ctypes.CDLL("libcuda.so.1")
        device, context, name = ctypes.c_int(), ctypes.c_void_p(), ctypes.create_string_buffer(256)
        self._call("cuInit", ctypes.c_uint(0))
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        self._call("cuDeviceGetName", name, ctypes.c_int(255), device)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self.name = name.value.decode()
        self._stream, self._events = ctypes.c_void_p(), (ctypes.c_void_p(), ctypes.c_void_p())
        self._call("cuStreamCreate", ctypes.byref(self._stream), ctypes.c_uint(0))
        for event in self._events:
            self._call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
        self._modules = []
        for path in modules:
            module = ctypes.c_void_p()
            self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(path.read_bytes() + b"\0"))
            self._modules.append(module)
        self._functions: dict[str, ctypes.c_void_p] = {}

    def _call(self, function: str, *arguments: Any) -> None:
        code = getattr(self._lib, function)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._lib.cuGetErrorString(code, ctypes.byref(text))
            raise SystemExit(f"{function}: {text.value.decode() if text.value else code}")

    def allocate(self, size: int) -> Buffer:
        """See Device."""
        at = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
        self._call("cuMemsetD8_v2", at, ctypes.c_ubyte(0xFF), ctypes.c_size_t(size))
        self._call("cuCtxSynchronize")
        return Buffer(at.value, size)

    def write(self, to: Buffer, content: Array) -> None:
        """See Device."""
        assert content.nbytes <= to.size
        whole = np.ascontiguousarray(content)
        self._call(
            "cuMemcpyHtoD_v2", ctypes.c_uint64(to.at), ctypes.c_void_p(whole.ctypes.data), ctypes.c_size_t(whole.nbytes)
        )

    def read(self, buffer: Buffer, dtype: Any) -> Array:
        """See Device."""
        out = np.empty(buffer.size, np.uint8)
        self._call(
            "cuMemcpyDtoH_v2", ctypes.c_void_p(out.ctypes.data), ctypes.c_uint64(buffer.at), ctypes.c_size_t(out.nbytes)
        )
        return out.view(dtype)

    def copy(self, to: Buffer, source: Buffer) -> None:
        """See Device."""
        self._copy(to, source)
        self._call("cuStreamSynchronize", self._stream)

    def _copy(self, to: Buffer, source: Buffer) -> None:
        self._call(
            "cuMemcpyDtoDAsync_v2",
            ctypes.c_uint64(to.at),
            ctypes.c_uint64(source.at),
            ctypes.c_size_t(source.size),
            self._stream,
        )

    def seconds_of_copy(self, to: Buffer, source: Buffer) -> float:
        """How long the driver's own copy takes."""
        return self._timed(lambda: self._copy(to, source))

    def commands(self, work: Work) -> Graph:
        """See Device."""
        graph = ctypes.c_void_p()
        self._call("cuGraphCreate", ctypes.byref(graph), ctypes.c_uint(0))
        constants = self._constants(work)
        before: list[int] = []  # nodes that the next ones wait for
        now: list[int] = []
        for dispatch in work:
            if dispatch is BARRIER:
                before, now = now or before, []
            else:
                now.append(self._node(graph, dispatch, constants, before))
        executable = ctypes.c_void_p()
        self._call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
        return Graph(executable, list(constants.values()))

    def _constants(self, work: Work) -> dict[bytes, Buffer]:
        """The bytes of a command buffer, each once, on the device."""
        contents = dict.fromkeys(
            part for dispatch in work if dispatch is not BARRIER for part in dispatch.buffers if isinstance(part, bytes)
        )
        return {content: self.buffer(np.frombuffer(content, np.uint8)) for content in contents}

    def _node(
        self, graph: ctypes.c_void_p, dispatch: Dispatch, constants: dict[bytes, Buffer], before: list[int]
    ) -> int:
        args = _Args()
        for index, buffer in enumerate(dispatch.buffers):
            args.buf[index] = (constants[buffer] if isinstance(buffer, bytes) else buffer).at
        groups, threads = _three(dispatch.groups), _three((dispatch.threads,))
        args.tgs[:], args.tptg[:] = groups, threads
        args.grid[:] = [many * each for many, each in zip(groups, threads, strict=True)]
        node, parameters = _Node(), (ctypes.c_void_p * 1)(ctypes.addressof(args))
        node.function = self._function(dispatch.kernel)
        node.groups[:], node.threads[:], node.shared = groups, threads, dispatch.threadgroup
        node.parameters = ctypes.cast(parameters, ctypes.POINTER(ctypes.c_void_p))
        made, waits = ctypes.c_void_p(), (ctypes.c_void_p * max(1, len(before)))(*before)
        self._call(
            "cuGraphAddKernelNode_v2",
            ctypes.byref(made),
            graph,
            waits,
            ctypes.c_size_t(len(before)),
            ctypes.byref(node),  # the driver copies all of it
        )
        assert made.value is not None
        return made.value

    def _function(self, kernel: str) -> ctypes.c_void_p:
        if kernel not in self._functions:
            found = ctypes.c_void_p()
            if all(
                self._lib.cuModuleGetFunction(ctypes.byref(found), module, kernel.encode()) for module in self._modules
            ):
                raise SystemExit(f"there is no kernel {kernel}: is the folder of kernels of this commit?")
            self._functions[kernel] = found
        return self._functions[kernel]

    def run(self, commands: Graph) -> float:
        """See Device."""
        return self._timed(lambda: self._call("cuGraphLaunch", commands.executable, self._stream))

    def _timed(self, start: Any) -> float:
        self._call("cuEventRecord", self._events[0], self._stream)
        start()
        self._call("cuEventRecord", self._events[1], self._stream)
        self._call("cuStreamSynchronize", self._stream)
        milliseconds = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(milliseconds), *self._events)
        return milliseconds.value / 1e3


def _three(size: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*size, 1, 1)[:3]
    return x, y, z
