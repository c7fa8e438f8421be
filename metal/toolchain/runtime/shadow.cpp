// See shadow.h.
#include "shadow.h"

namespace checker {

bool Cell::races_with_write(const Access &access, const Epochs &epochs) const {
    if (!writer || (access.atomic && atomic_write)) {
        return false;
    }
    if (writer_group != access.threadgroup) {
        return true;
    }
    const uint32_t simdgroup = access.lane / 32;
    const bool same_lane = writer == access.lane + 1;
    const bool barrier_between = write_epoch != epochs.threadgroup[access.memory];
    const bool simdgroup_barrier_between =
        (writer - 1u) / 32 == simdgroup && write_simd_epoch != epochs.simdgroup[simdgroup][access.memory];
    return !(same_lane || barrier_between || simdgroup_barrier_between);
}

bool Cell::races_with_read(const Access &access, const Epochs &epochs) const {
    if (!reader || (access.atomic && atomic_read)) {
        return false;
    }
    if (reader_group != access.threadgroup || read_by_groups) {
        return true;
    }
    if (read_epoch != epochs.threadgroup[access.memory]) {
        return false;
    }
    const uint32_t simdgroup = access.lane / 32;
    if (read_by_simdgroups || (reader - 1u) / 32 != simdgroup) {
        return true;
    }
    const bool alone = reader == access.lane + 1 && !read_by_lanes;
    const bool simdgroup_barrier_between = read_simd_epoch != epochs.simdgroup[simdgroup][access.memory];
    const bool collective_between = !access.strict && read_collectives != epochs.collectives[simdgroup];
    return !(alone || simdgroup_barrier_between || collective_between);
}

void Cell::record(const Access &access, const Epochs &epochs) {
    const uint16_t lane = static_cast<uint16_t>(access.lane + 1);
    const uint32_t simdgroup = access.lane / 32;
    const uint16_t epoch = epochs.threadgroup[access.memory];
    const uint16_t simd_epoch = epochs.simdgroup[simdgroup][access.memory];
    if (access.write) {
        writer = lane;
        writer_group = access.threadgroup;
        write_epoch = epoch;
        write_simd_epoch = simd_epoch;
        atomic_write = access.atomic;
        written = true;
        return;
    }
    const bool same_group = reader && reader_group == access.threadgroup;
    if (reader && !same_group) {
        read_by_groups = true;
    }
    if (!same_group || read_epoch != epoch) {
        read_by_lanes = read_by_simdgroups = false;
    } else if ((reader - 1u) / 32 != simdgroup) {
        read_by_simdgroups = true;
    } else if (read_simd_epoch != simd_epoch) {
        read_by_lanes = false;
    } else if (reader != lane) {
        read_by_lanes = true;
    }
    reader = lane;
    reader_group = access.threadgroup;
    read_epoch = epoch;
    read_simd_epoch = simd_epoch;
    read_collectives = epochs.collectives[simdgroup];
    atomic_read = access.atomic;
}

} // namespace checker
