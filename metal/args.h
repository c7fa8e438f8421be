// The argument structs of the kernels, shared by Metal and C++: plain 32-bit scalars, one struct a kernel, in the last
// buffer index of the kernel. Sizes count elements, not bytes, unless a name says so.
#pragma once

#ifdef __METAL_VERSION__
#include <metal_stdlib>
#define LILY_UINT uint
#else
#include <cstdint>
#define LILY_UINT std::uint32_t
namespace lily::metal {
#endif

// What happens to a float32 sum: it is stored as it is, rounded, or added to a bf16 and rounded.
#define LILY_STORE_F32 0u
#define LILY_STORE_BF16 1u
#define LILY_STORE_ADD 2u

// A block of the map of a grouped product whose expert is this one has no work.
#define LILY_NO_EXPERT 0xffffffffu

struct EmbedArgs {
    LILY_UINT cols;
};

struct NormArgs {
    LILY_UINT rows;
    LILY_UINT cols;
    float eps;
};

struct GemvJob {
    LILY_UINT bits; // of a code: 4 or 8 with scales and biases, 16 for bf16
    LILY_UINT rows;
    LILY_UINT expert;
    LILY_UINT store;
    LILY_UINT groups; // threadgroups
};

struct GemvArgs {
    LILY_UINT cols;
    LILY_UINT normed; // 1: x is normed first
    float eps;
    LILY_UINT jobs;
    GemvJob job[4];
};

struct MatmulArgs {
    LILY_UINT rows; // of x
    LILY_UINT cols;
    LILY_UINT outputs; // of one expert
    LILY_UINT first;   // the output where the columns of y begin
    LILY_UINT stride;  // columns of y
    LILY_UINT expert;  // of a product that is not grouped
    LILY_UINT store;
    LILY_UINT grouped; // 1: rows and experts come from the map of blocks
};

struct SwigluArgs {
    LILY_UINT rows;
    LILY_UINT cols;
    LILY_UINT outputs;
    LILY_UINT grouped; // 1: rows and experts come from the map of blocks, and rows of x from the list of tokens
};

// Pairs of dims that are turned, at the most.
#define LILY_MOST_TURNS 32

struct AttentionArgs {
    LILY_UINT heads;
    LILY_UINT kv_heads;
    LILY_UINT rows;
    LILY_UINT position; // of the first row
    LILY_UINT capacity; // positions of the cache
    LILY_UINT block;    // keys of a block, of one row
    LILY_UINT turns;    // pairs of dims that are turned
    float eps;
    float scale; // of scores, times log2(e)
    float frequency[LILY_MOST_TURNS];
};

struct AttentionJoinArgs {
    LILY_UINT heads;
    LILY_UINT head_dim;
    LILY_UINT blocks;
};

struct BidirectionalArgs {
    LILY_UINT heads;
    LILY_UINT kv_heads;
    LILY_UINT rows;
    LILY_UINT windows;
    LILY_UINT tiles; // of 8 packed rows, of a key/value head
    LILY_UINT turns; // pairs of dims that are turned
    float eps;
    float scale; // of scores, times log2(e)
};

// Rows first .. first + count - 1 of a call; chunks are cut at absolute positions.
struct GatedDeltaArgs {
    LILY_UINT key_heads;
    LILY_UINT value_heads;
    LILY_UINT value_dim;
    LILY_UINT channels;
    LILY_UINT taps; // of the convolution
    LILY_UINT rows; // of the call
    LILY_UINT first;
    LILY_UINT count;
    LILY_UINT offset;  // position of row `first` within its chunk
    LILY_UINT y_first; // the row that is row 0 of y
    LILY_UINT last;    // 1: the window after the call is kept
    float query_scale;
};

struct GatedDeltaGateArgs {
    LILY_UINT heads;      // of all rows
    LILY_UINT first_head; // of z and of the result
    LILY_UINT dims;
    float eps;
};

struct GatedDeltaOutArgs {
    LILY_UINT rows; // of the matrix
    LILY_UINT heads;
    LILY_UINT dims;
    float eps;
};

struct MoeOpenArgs {
    LILY_UINT hidden;
    LILY_UINT experts;
    LILY_UINT top_k;
    LILY_UINT width;
    LILY_UINT shared_width;
    LILY_UINT renormalize;
    LILY_UINT bits;
    LILY_UINT shared_bits;
    float eps;
};

struct MoeCloseArgs {
    LILY_UINT hidden;
    LILY_UINT top_k;
    LILY_UINT width;
    LILY_UINT shared_width;
    LILY_UINT bits;
    LILY_UINT shared_bits;
};

struct MoeRouteArgs {
    LILY_UINT rows;
    LILY_UINT experts;
    LILY_UINT top_k;
    LILY_UINT renormalize;
};

struct MoeSortArgs {
    LILY_UINT pairs;
    LILY_UINT experts;
    LILY_UINT top_k;
    LILY_UINT pieces; // of kSortPiece pairs
    LILY_UINT tile;   // rows of a block of the grouped products
    LILY_UINT blocks; // the capacity of the map
};

struct MoeCombineArgs {
    LILY_UINT rows;
    LILY_UINT hidden;
    LILY_UINT top_k;
    LILY_UINT first; // the column of x where this slice begins
    LILY_UINT cols;  // of the slice
};

struct HeadArgs {
    LILY_UINT cols;
    LILY_UINT vocab;
    LILY_UINT bits;
    float eps;
};

struct ArgmaxArgs {
    LILY_UINT count;
};

struct ClassifyArgs {
    LILY_UINT hidden;
    LILY_UINT labels;
};

struct ClassifyWindowsArgs {
    LILY_UINT windows;
};

#undef LILY_UINT
#ifndef __METAL_VERSION__
} // namespace lily::metal
#endif
