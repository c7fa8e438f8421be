// The Metal standard library for clang's C++ for OpenCL mode: what <metal_stdlib> gives. It serves the host executor
// and NVIDIA GPUs; metal/toolchain turns MSL's own syntax into what these headers expect.
#pragma once
#pragma clang system_header
#include "msl/entry.h"
#include "msl/integer.h"
#include "msl/machine.h"
#include "msl/math.h"
#include "msl/simdgroup.h"
#include "msl/simdgroup_matrix.h"
#include "msl/synchronization.h"
#include "msl/traits.h"
#include "msl/types.h"
#include "msl/vector.h"
