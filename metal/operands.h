// What a tile of several rows reads, whichever way it multiplies (tile.h, tile_matmul2d.h): the codes of a group, and the
// rows of x of a block of work.
#pragma once

#include "affine.h"

// 16 codes of a group: 2, 4 or 8 words.
template <uint bits> struct Codes {
    uint words[bits / 2];
};

// Pair p of group `group` of a row of codes.
template <uint bits> inline Codes<bits> load_codes(device const uint *row, uint group, uint pair) {
    Codes<bits> codes;
    row += group * (kGroup * bits / 32) + pair * (bits / 2);
    if (bits == 4) {
        const uint2 part = *(device const uint2 *)row;
        codes.words[0] = part.x;
        codes.words[1] = part.y;
    } else {
#pragma clang loop unroll(full)
        for (uint i = 0; i < bits / 8; ++i) {
            const uint4 part = ((device const uint4 *)row)[i];
#pragma clang loop unroll(full)
            for (uint k = 0; k < 4; ++k)
                codes.words[(4 * i + k) % (bits / 2)] = part[k];
        }
    }
    return codes;
}

// Codes 2 s and 2 s + 1.
template <uint bits> inline bfloat2 code_pair(thread const Codes<bits> &codes, uint s) {
    if (bits == 16)
        return as_type<bfloat2>(codes.words[s % (bits / 2)]);
    const uint code = bits == 4 ? codes.words[s / 4] >> (8 * (s % 4)) : codes.words[s / 2] >> (16 * (s % 2));
    const uint mask = (1u << (bits & 15)) - 1;
    return bfloat2(bfloat(float(code & mask)), bfloat(float((code >> (bits & 15)) & mask)));
}

// 16 elements of a row of x.
struct Pair {
    uint4 low;
    uint4 high;
};

inline Pair load_pair(device const bfloat *from, bool there) {
    Pair pair = {0, 0};
    if (there) {
        pair.low = ((device const uint4 *)from)[0];
        pair.high = ((device const uint4 *)from)[1];
    }
    return pair;
}

// The sum of a group, of which four neighbouring lanes have a quarter each.
inline float sum_of_group(Pair pair) {
    float total = 0;
#pragma clang loop unroll(full)
    for (uint s = 0; s < 8; ++s) {
        const uint both = s < 4 ? pair.low[s % 4] : pair.high[s % 4];
        total += as_type<float>(both << 16) + as_type<float>(both & 0xffff0000u);
    }
    return quad_sum(total);
}

struct Weights {
    device const uint *codes;
    device const bfloat *scales;
    device const bfloat *biases;
};

// The outputs that a tile makes: from `first` on, of the matrix of one expert, whose row 0 is row `base` of all.
struct Outputs {
    size_t base;
    uint first;
    uint count; // of the matrix
    uint cols;
};

// The matrix row of output `first + i`. What is beyond the end is read as the last one, and not stored.
inline size_t row_of_output(Outputs outputs, uint i) {
    return outputs.base + min(outputs.first + i, outputs.count - 1);
}

// A block of a grouped product: the rows first .. end - 1 of one expert.
struct Block {
    uint expert;
    uint first;
    uint end;
};

// Block `index`: of the map, or, without one, the rows of one matrix cut at multiples of `tile`.
inline Block block_at(device const uint4 *map, bool grouped, uint index, uint tile, uint rows, uint expert) {
    Block block;
    if (grouped) {
        const uint4 entry = map[index];
        block.expert = entry.x;
        block.first = entry.y;
        block.end = entry.z;
    } else {
        block.expert = expert;
        block.first = index * tile;
        block.end = min(rows, block.first + tile);
    }
    return block;
}

// The rows of x of a block: as they lie, or those that a list names.
struct Rows {
    device const bfloat *x;
    device const uint *list;
    bool listed;
    uint cols;
    Block block;
};

inline bool is_there(Rows rows, uint i) { return rows.block.first + i < rows.block.end; }

// Row i of the block, or, if there are not so many, the first one.
inline device const bfloat *row_of_block(Rows rows, uint i) {
    const uint slot = rows.block.first + (is_there(rows, i) ? i : 0);
    return rows.x + size_t(rows.listed ? rows.list[slot] : slot) * rows.cols;
}

// The threads of a threadgroup, as each sees itself.
struct Place {
    uint thread_index;
    uint simdgroup;
    uint lane;
};
