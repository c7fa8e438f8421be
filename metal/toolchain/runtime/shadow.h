// What the checker remembers of a byte, and the rule by which two accesses race. The rule does not depend on the order
// in which lanes happened to run: two lanes, at least one plain write, and no barrier of the right kind between. Between
// threadgroups only atomics order anything.
#pragma once
#include <cstdint>

namespace checker {

// The barriers that the running threadgroup has passed. Kind of memory: 0 device, 1 threadgroup.
struct Epochs {
    uint16_t threadgroup[2];
    uint16_t simdgroup[32][2];
    uint16_t collectives[32]; // of all lanes of a simdgroup
};

// Who accesses, and how.
struct Access {
    uint32_t threadgroup, lane;
    bool write, atomic;
    int memory;  // kind, as in Epochs
    bool strict; // a collective orders nothing; else it orders a simdgroup's earlier reads before its later writes
};

struct Cell {
    uint32_t generation; // the dispatch or threadgroup that it belongs to
    uint32_t writer_group, reader_group;
    uint16_t writer, reader; // lane + 1; 0: none
    uint16_t write_epoch, read_epoch;
    uint16_t write_simd_epoch, read_simd_epoch;
    uint16_t read_collectives;
    bool written, atomic_write, atomic_read;
    bool read_by_lanes, read_by_simdgroups, read_by_groups; // several of them since the last write that orders

    bool races_with_write(const Access &access, const Epochs &epochs) const;
    bool races_with_read(const Access &access, const Epochs &epochs) const;
    void record(const Access &access, const Epochs &epochs);
};

} // namespace checker
