"""What `lily info` shows: the machine, a model, the memory it takes, and whether it fits, before anything is loaded.

Everything is computed from headers and dimensions, in plain values ready for JSON; `lines` words them. What a running
engine holds is Engine.memory: the sizes here are the same sums, but scratch is an estimate.
"""

from __future__ import annotations

import importlib
import math
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import hub
from .architecture import DEFAULT_REPO, DEFAULT_REVISION, GROUP, QWEN36_35B_A3B, Architecture
from .arguments import switch
from .checkpoint import open_checkpoint
from .display import counted, size
from .errors import InvalidInput

MAX_POSITIONS = 262144  # of Qwen3.6-35B-A3B
_CHUNK = 512  # rows of one prefill step


@dataclass(frozen=True)
class Fit:
    """Whether a model with one session of `max_context` tokens fits into memory and into its positions. Sizes in bytes.

    Attributes: fits; positions (the most tokens that the model can address); needed (the sum of weights, kv, state and
    scratch); available; missing (0 if memory is enough); largest_context (of a session that would fit, 0 if none);
    weights (mapped from the file); kv (bf16 keys and values); state (of the gated delta nets, two slots); scratch (an
    estimate, with weights kept as float32).

    """

    fits: bool
    max_context: int
    positions: int
    needed: int
    available: int
    missing: int
    largest_context: int
    weights: int
    kv: int
    kv_per_token: int
    state: int
    scratch: int


def fit(
    max_context: int = 4096,
    *,
    architecture: Architecture = QWEN36_35B_A3B,
    weights: int | None = None,
    available: int | None = None,
    positions: int = MAX_POSITIONS,
) -> Fit:
    """The answer to "will it fit?" for an engine with one session of `max_context` tokens.

    `weights` is the size of the tensors in bytes (None: as the converter writes them at 4 bits), `available` the bytes
    of memory there are (None: what this machine has free now), `positions` the most that the model can address.
    Raises InvalidInput for a context below 1.
    """
    if type(max_context) is not int or max_context < 1:
        raise InvalidInput(f"max_context is {max_context!r}, expected an integer of at least 1")
    a = architecture
    weights = packed_bytes(a) if weights is None else weights
    available = memory()["available"] if available is None else available
    state, scratch = 2 * a.state_bytes, _scratch_estimate(a)
    fixed, kv = weights + state + scratch, max_context * a.kv_bytes_per_token
    spare = available - fixed
    per_token = a.kv_bytes_per_token
    largest = 0 if spare < 0 else min(positions, spare // per_token) if per_token else positions
    return Fit(
        fits=fixed + kv <= available and max_context <= positions,
        max_context=max_context,
        positions=positions,
        needed=fixed + kv,
        available=available,
        missing=max(0, fixed + kv - available),
        largest_context=largest,
        weights=weights,
        kv=kv,
        kv_per_token=per_token,
        state=state,
        scratch=scratch,
    )


def packed_bytes(architecture: Architecture, bits: int = 4) -> int:
    """Bytes of all tensors as the converter writes them: `bits` (8 for routers), a scale and a bias for each group."""
    matrices = sum(
        p.parameters * (8 if p.is_router else bits) // 8 + 4 * p.parameters // GROUP for p in architecture.projections()
    )
    vectors = sum(math.prod(v.shape) * (4 if v.name.endswith("A_log") else 2) for v in architecture.vectors())
    return matrices + vectors


def _scratch_estimate(a: Architecture) -> int:
    """Activations of the widest sublayer for one chunk, and the vectors that the engine keeps as float32."""
    attention = 2 * (2 * a.heads + 2 * a.kv_heads) * a.head_dim + 4 * a.heads * a.head_dim
    delta = 2 * (a.channels + a.value_heads * a.value_dim) + 4 * a.value_heads * a.value_dim
    experts = a.top_k * (8 * a.width + 2 * a.width + 4 * a.hidden)
    rows = _CHUNK * (max(attention, delta, experts) + 8 * a.hidden)
    return rows + 4 * sum(math.prod(v.shape) for v in a.vectors()) + 4 * a.vocab


def machine() -> dict[str, Any]:
    """Processor, cores this process may use, instruction sets of the extension (None if it is not built), memory."""
    try:
        extension: Any = importlib.import_module("lily._ext")
    except ImportError:
        extension = None
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return {
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "cpu": _cpu_name(),
        "cores": cores if extension is None else extension.usable_cpus(),
        "instruction_sets": None if extension is None else extension.instruction_sets(),
        "memory": memory(),
    }


def _cpu_name() -> str:
    if sys.platform == "darwin":
        return _sysctl("machdep.cpu.brand_string") or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _sysctl(name: str) -> str:
    found = subprocess.run(["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, check=False)  # noqa: S603
    return found.stdout.strip()


def memory() -> dict[str, int]:
    """Bytes of memory, `total` and `available` to this process: of the machine, or of its control group if less.

    Pages of files count as available, as the kernel would give them up; on macOS available is the total.
    """
    if sys.platform == "darwin":
        total = int(_sysctl("hw.memsize") or 0)
        return {"total": total, "available": total}
    fields = dict(_meminfo(Path("/proc/meminfo")))
    total = fields.get("MemTotal", 0)
    available = fields.get("MemAvailable", total)
    for folder in _control_groups(Path("/proc/self/cgroup")):
        limit, used = _number(folder / "memory.max"), _number(folder / "memory.current")
        if limit is not None and used is not None:
            caches = sum(int(value) for key, value in _pairs(folder / "memory.stat") if key.endswith("active_file"))
            total, available = min(total, limit), min(available, max(0, limit - used + caches))
    return {"total": total, "available": available}


def _meminfo(path: Path) -> Iterator[tuple[str, int]]:
    for name, value in _pairs(path):
        yield name.rstrip(":"), int(value) * 1024


def _pairs(path: Path) -> Iterator[tuple[str, str]]:
    try:
        for line in path.read_text(encoding="ascii").splitlines():
            parts = line.split()
            if len(parts) >= 2 and parts[1].isdecimal():
                yield parts[0], parts[1]
    except OSError:
        return


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None  # "max" is no limit


def _control_groups(path: Path) -> Iterator[Path]:
    """The folders of this process's control group (version 2) and of all groups above it."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    own = next((line[3:] for line in lines if line.startswith("0::")), None)
    if own is not None:
        folder = Path("/sys/fs/cgroup" + own)
        yield from (group for group in (folder, *folder.parents) if group.is_relative_to("/sys/fs/cgroup"))


def report(
    model: str | Path | None = None,
    *,
    revision: str | None = None,
    max_context: int = 4096,
    download: bool = False,
    offline: bool | None = None,
) -> dict[str, Any]:
    """Everything `lily info` knows: "machine", "model", "fit" and "download".

    `model` is a folder or a repository, None the default one. Nothing is downloaded: "model" is None for a repository
    that is not complete in the cache (dimensions are then those of the default model), and "download" has its sizes
    only if `download` asks for them, which takes a network. Raises CheckpointError, UnsupportedCheckpoint, HubError,
    and InvalidInput where `download` is asked for a folder on this machine.
    """
    switch(download, "download")
    name = DEFAULT_REPO if model is None else model
    folder = hub.local_folder(name, revision)
    facts: dict[str, Any] | None = None
    if folder is None:
        answer = fit(max_context)
    else:
        with open_checkpoint(folder) as checkpoint:
            facts = checkpoint.describe()
            positions = checkpoint.max_positions or MAX_POSITIONS
            answer = fit(
                max_context,
                architecture=checkpoint.architecture,
                weights=checkpoint.total_bytes,
                positions=positions,
            )
    sizes = None
    if download and hub.is_folder(name):
        raise InvalidInput(f"download asks the hub, and {name} is a folder on this machine; leave download out")
    if download:
        found = hub.download_size(str(name), revision, offline)
        sizes = {**asdict(found), "cache": str(found.cache)}
    return {
        "name": str(name),
        "default": {"repo": DEFAULT_REPO, "revision": DEFAULT_REVISION},
        "machine": machine(),
        "model": facts,
        "fit": asdict(answer),
        "download": sizes,
    }


def lines(found: Mapping[str, Any]) -> list[str]:
    """A report in words, one fact a line."""
    here, model, answer, sizes = found["machine"], found["model"], found["fit"], found["download"]
    sets = here["instruction_sets"]
    text = [
        f"machine   {here['cpu']}, {here['cores']} cores usable, {here['system']}",
        f"          instruction sets: {', '.join(sets) if sets else 'unknown, the extension is not built'}",
        f"memory    {size(here['memory']['available'])} available of {size(here['memory']['total'])}",
    ]
    if model is None:
        text.append(f"model     {found['name']}: not on this machine; sizes are those of {DEFAULT_REPO}")
    else:
        bits = ", ".join(f"{count} matrices at {width} bits" for width, count in model["bits"].items())
        active, files = model["active_parameters"], model["files"]
        text.append(f"model     {model['name']} ({model['path']})")
        text.append(
            f"          {model['parameters']:,} parameters, {active:,} active a token, {model['layers']} layers"
        )
        text.append(f"          {size(model['weight_bytes'])} in {counted(files, 'file')}: {bits}")
    text.append(f"needs     {size(answer['needed'])} at a context of {answer['max_context']:,}:")
    text.append(
        f"          weights {size(answer['weights'])}, KV {size(answer['kv'])} ({answer['kv_per_token']:,} a token)"
    )
    text.append(f"          state {size(answer['state'])}, scratch about {size(answer['scratch'])}")
    largest, missing = answer["largest_context"], size(answer["missing"])
    if answer["fits"]:
        text.append(f"fits      yes, up to a context of {largest:,}")
    elif answer["max_context"] > answer["positions"]:
        would = f"a context of {largest:,} would fit" if largest else "no other fits"
        text.append(f"fits      no, the model has positions for {answer['positions']:,} tokens; {would}")
    elif largest:
        text.append(f"fits      no, {missing} missing; a context of {largest:,} would fit")
    else:
        text.append(f"fits      no, {missing} missing at this context, and no other fits")
    if sizes is not None:
        text.append(
            f"download  {size(sizes['missing'])} of {size(sizes['total'])} from {sizes['repo']}@{sizes['revision']} to "
            f"{sizes['cache']} ({size(sizes['free'])} free)"
        )
    return text
