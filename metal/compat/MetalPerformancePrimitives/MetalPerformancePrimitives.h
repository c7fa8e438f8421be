#include "../msl/mpp.h"
