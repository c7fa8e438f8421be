"""The words of the Metal shading language that the passes share, and what each becomes in C++ for OpenCL."""

from __future__ import annotations

SCALARS = ("bool", "char", "uchar", "short", "ushort", "int", "uint", "half", "float", "bfloat", "long", "ulong")
VECTORS = frozenset(scalar + size for scalar in SCALARS for size in "234")
ATOMICS = frozenset({"atomic_int", "atomic_uint", "atomic_ulong", "atomic_float", "atomic_bool"})

# Four address spaces that do not convert into each other. `constant` is not OpenCL's __constant, whose records cannot
# be copied.
QUALIFIERS = {
    "device": "__attribute__((opencl_global_device))",
    "constant": "const __attribute__((opencl_global_host))",
    "threadgroup": "__local",
    "thread": "__private",
}
# Behind a member function only OpenCL's keywords are allowed.
MEMBER_QUALIFIERS = {
    "device": "__global",
    "constant": "__constant",
    "threadgroup": "__local",
    "thread": "__private",
}
# Words of OpenCL that a .metal text may use as names.
RESERVED = frozenset(
    {"local", "global", "generic", "pipe", "event_t", "sampler_t", "queue_t", "read_only", "write_only", "read_write"}
)

_TID = ", ".join(f"__p.tg[{i}] * A->tptg[{i}] + __p.tid[{i}]" for i in range(3))


def _three(name: str) -> str:
    return f"__msl_v3({name}[0], {name}[1], {name}[2])"


# Attribute of a kernel's parameter -> its value, in terms of the position record __p and the dispatch's arguments A.
POSITIONS = {
    "thread_position_in_grid": f"__msl_v3({_TID})",
    "thread_position_in_threadgroup": _three("__p.tid"),
    "threadgroup_position_in_grid": _three("__p.tg"),
    "threads_per_threadgroup": _three("__p.tptg"),
    "dispatch_threads_per_threadgroup": _three("A->tptg"),
    "threadgroups_per_grid": _three("A->tgs"),
    "threads_per_grid": _three("A->grid"),
    "thread_index_in_threadgroup": "__p.idx",
    "thread_index_in_simdgroup": "__p.lane",
    "simdgroup_index_in_threadgroup": "__p.sg",
    "simdgroups_per_threadgroup": "__p.nsg",
    "dispatch_simdgroups_per_threadgroup": "__p.nsg",
    "threads_per_simdgroup": "32u",
    "thread_execution_width": "32u",
    "quadgroup_index_in_threadgroup": "(__p.idx / 4)",
    "thread_index_in_quadgroup": "(__p.idx % 4)",
}
