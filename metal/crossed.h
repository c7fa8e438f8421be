// Where numbers lie as the right factor of an 8x8 product, for rows whose 32 dims are permuted so that a lane's 8
// neighbouring dims 8 pair .. 8 pair + 7 are its columns in four left factors, in one load of 16 bytes.
#pragma once

#include "tile.h"

// The lane that holds row `row` and columns 2 pair and 2 pair + 1 of an 8x8 matrix.
inline uint lane_of(uint row, uint pair) { return (row & 4) << 2 | (row & 3) << 1 | (pair & 2) << 2 | (pair & 1); }

// Dim d of row `row` of a tile of 8, in bf16 numbers: word i of a lane's load belongs to factor i, whose row j is dim
// 32 c + 8 (j / 2) + 2 i + j % 2 and whose columns are the rows of the tile.
inline uint crossed_place(uint row, uint d) {
    return ((d / 32 * 32 + lane_of(d % 32 / 8 * 2 + d % 2, row / 2)) * 4 + d % 8 / 2) * 2 + row % 2;
}
