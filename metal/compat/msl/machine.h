// What a thread asks of the machine that runs it: on the host calls into the executor, on an NVIDIA GPU instructions.
#pragma once
#pragma clang system_header
#include "msl/types.h"

struct __msl_args { // one dispatch; built by the driver (rt/exec.h, cuda/)
    ulong buf[31];
    uint tgoff[8]; // byte offsets of the [[threadgroup(n)]] arguments
    uint grid[3];  // threads in the grid (dispatchThreads may be ragged)
    uint tgs[3];   // threadgroups in the grid
    uint tptg[3];  // threads per threadgroup
};
struct __msl_pos {
    uint tid[3];
    uint tg[3];
    uint lane, sg, nsg, idx;
    uint tptg[3];
};

#if defined(__NVPTX__)
#include "msl/nvptx.h"
#else
#include "msl/host.h"
#endif
