// Products of two rows and more (matmul_kernel.h) with simdgroup_matrix: tiles of 8 and 16 rows for short prompts, which
// are bound by the reading of weights, of 32 and 64 for long ones.

#include "tile.h"

#include "matmul_kernel.h"

LILY_MATMUL("matmul_", 8, 32)
LILY_MATMUL("matmul_", 16, 32)
LILY_MATMUL("matmul_", 32, 128)
LILY_MATMUL("matmul_", 64, 128)
