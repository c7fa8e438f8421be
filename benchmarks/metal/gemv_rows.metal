// gemv with other numbers of rows a simdgroup than lily uses, for benchmarks/metal_gemv.py to compare.

#include "../../metal/gemv.metal"

template [[host_name("gemv_8")]] [[kernel]] decltype(gemv<8>) gemv<8>;
template [[host_name("gemv_16")]] [[kernel]] decltype(gemv<16>) gemv<16>;
