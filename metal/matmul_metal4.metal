// The products of two rows and more (matmul_kernel.h, swiglu_kernel.h) with matmul2d, for GPUs with matrix hardware of its
// own. A module by itself, because it needs Metal 4. matmul2d takes 16 rows or more: there is no tile of 8.

#include "tile_matmul2d.h"

#include "matmul_kernel.h"
#include "swiglu_kernel.h"

LILY_MATMUL("matmul2d_", 16, 32)
LILY_MATMUL("matmul2d_", 32, 128)
LILY_MATMUL("matmul2d_", 64, 128)
LILY_SWIGLU("swiglu2d_", 16, 32)
LILY_SWIGLU("swiglu2d_", 32, 64)
