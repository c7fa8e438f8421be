// SwiGLU of two rows and more (swiglu_kernel.h) with simdgroup_matrix.

#include "tile.h"

#include "swiglu_kernel.h"

LILY_SWIGLU("swiglu_", 8, 32)
LILY_SWIGLU("swiglu_", 16, 32)
LILY_SWIGLU("swiglu_", 32, 64)
