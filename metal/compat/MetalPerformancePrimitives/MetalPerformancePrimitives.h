// matmul2d of Metal 4, under the name that a kernel includes.
#include "../msl/mpp.h"
