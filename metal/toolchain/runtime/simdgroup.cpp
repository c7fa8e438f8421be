// The functions of a simdgroup: votes, shuffles, reductions, scans, its barrier, and the exchange of matrix elements. A
// lane says what it wants and waits; when all lanes that take part are there, complete() serves them together.
#include "checker.h"
#include "threadgroup.h"
#include <cmath>
#include <cstring>

namespace {

// Kinds of shuffles and reductions, as metal/compat/msl/simdgroup.h numbers them.
enum Shuffle { to_lane, exclusive_or, up, down, rotate_up, rotate_down, first_lane };
enum Reduce { sum, product, minimum, maximum, bit_and, bit_or, bit_xor };
enum Scan { reduce_all, inclusive, exclusive };

inline __attribute__((always_inline)) uint64_t collective(Op op, uint32_t argument, const void *site) {
    Threadgroup &group = *running;
    Lane &lane = *group.current;
    Simdgroup &simdgroup = group.simdgroups[lane.simdgroup];
    lane.op = op;
    lane.argument = argument;
    lane.site = site;
    simdgroup.ready &= ~(1u << lane.lane);
    simdgroup.waiting |= 1u << lane.lane;
    if (simdgroup.waiting == simdgroup.alive && same_site(simdgroup, simdgroup.waiting)) {
        complete(group, simdgroup, simdgroup.waiting);
        if (!group.random) {
            return lane.out;
        }
    }
    block(group);
    return lane.out;
}

template <class T> T apply(T a, T b, uint32_t op) {
    switch (op) {
    case sum:
        return a + b;
    case product:
        return a * b;
    case minimum:
        return b < a ? b : a;
    case maximum:
        return a < b ? b : a;
    case bit_and:
        return a & b;
    case bit_or:
        return a | b;
    default:
        return a ^ b;
    }
}
template <> float apply(float a, float b, uint32_t op) {
    switch (op) {
    case sum:
        return a + b;
    case product:
        return a * b;
    case minimum:
        return std::fmin(a, b);
    default:
        return std::fmax(a, b);
    }
}

template <class T> T input(const Lane &lane) {
    T value;
    memcpy(&value, &lane.in[0], sizeof value);
    return value;
}
template <class T> void output(Lane &lane, T value) {
    lane.out = 0;
    memcpy(&lane.out, &value, sizeof value);
}

// A full simdgroup reduces as a butterfly, as shuffles on a GPU do; a part of one in the order of its lanes.
template <class T> T reduced(const Simdgroup &simdgroup, uint32_t mask, uint32_t op) {
    if (mask == ~0u) {
        T values[simdgroup_size];
        for (int i = 0; i < simdgroup_size; i++) {
            values[i] = input<T>(simdgroup.lanes[i]);
        }
        for (int distance = simdgroup_size / 2; distance; distance /= 2) {
            for (int i = 0; i < distance; i++) {
                values[i] = apply(values[i], values[i + distance], op);
            }
        }
        return values[0];
    }
    T value = input<T>(simdgroup.lanes[lowest(mask)]);
    for (mask &= mask - 1; mask; mask &= mask - 1) {
        value = apply(value, input<T>(simdgroup.lanes[lowest(mask)]), op);
    }
    return value;
}

template <class T> void reduce(Simdgroup &simdgroup, uint32_t mask, uint32_t argument) {
    const uint32_t op = argument & 255, scan = argument >> 8;
    if (scan == reduce_all) {
        const T value = reduced<T>(simdgroup, mask, op);
        for (; mask; mask &= mask - 1) {
            output(simdgroup.lanes[lowest(mask)], value);
        }
        return;
    }
    T so_far = op == product ? T{1} : T{0};
    for (; mask; mask &= mask - 1) {
        Lane &lane = simdgroup.lanes[lowest(mask)];
        const T next = apply(so_far, input<T>(lane), op);
        output(lane, scan == inclusive ? next : so_far);
        so_far = next;
    }
}

void shuffle(Threadgroup &group, Simdgroup &simdgroup, uint32_t mask, uint32_t kind) {
    for (uint32_t left = mask; left; left &= left - 1) {
        const uint32_t self = static_cast<uint32_t>(lowest(left));
        Lane &lane = simdgroup.lanes[self];
        const uint32_t k = static_cast<uint32_t>(lane.in[1]);
        uint32_t from = self;
        switch (kind) {
        case to_lane:
            from = k % simdgroup_size;
            break;
        case exclusive_or:
            from = (self ^ k) % simdgroup_size;
            break;
        case up:
            from = self >= k ? self - k : self;
            break;
        case down:
            from = self + k < simdgroup_size ? self + k : self;
            break;
        case rotate_up:
            from = (self - k) % simdgroup_size;
            break;
        case rotate_down:
            from = (self + k) % simdgroup_size;
            break;
        default:
            from = static_cast<uint32_t>(lowest(mask));
            break;
        }
        const bool active = mask >> from & 1;
        if (!active && group.checked) {
            checker::note("shuffle from an inactive lane", lane.site);
        }
        lane.out = active ? simdgroup.lanes[from].in[0] : 0xFFFFFFFF; // undefined on a GPU; here NaN or -1
    }
}

// The layout of an 8x8 matrix over a simdgroup (metal/compat/msl/simdgroup_matrix.h): a lane has two elements of a row.
int element(int lane) {
    const int row = ((lane >> 2) & 4) | ((lane >> 1) & 3), column = ((lane >> 1) & 4) | ((lane & 1) << 1);
    return row * 8 + column;
}

// in[0] is the address of the whole matrix, of which the first lane's counts; in[1] and out are a lane's two elements.
void exchange(Simdgroup &simdgroup, bool gather) {
    float *whole = reinterpret_cast<float *>(simdgroup.lanes[0].in[0]);
    for (int i = 0; i < simdgroup_size; i++) {
        Lane &lane = simdgroup.lanes[i];
        if (gather) {
            memcpy(whole + element(i), &lane.in[1], sizeof lane.in[1]);
        } else {
            memcpy(&lane.out, whole + element(i), sizeof lane.out);
        }
    }
}

} // namespace

void complete(Threadgroup &group, Simdgroup &simdgroup, uint32_t mask) {
    const Lane &first = simdgroup.lanes[lowest(mask)];
    group.stats.collectives++;
    if (group.checked && mask == simdgroup.alive && first.op <= Op::active) {
        checker::collective(first.simdgroup);
    }
    switch (first.op) {
    case Op::shuffle:
        shuffle(group, simdgroup, mask, first.argument);
        break;
    case Op::reduce_float:
        reduce<float>(simdgroup, mask, first.argument);
        break;
    case Op::reduce_int:
        reduce<int32_t>(simdgroup, mask, first.argument);
        break;
    case Op::reduce_uint:
        reduce<uint32_t>(simdgroup, mask, first.argument);
        break;
    case Op::reduce_ulong:
        reduce<uint64_t>(simdgroup, mask, first.argument);
        break;
    case Op::ballot: {
        uint32_t votes = 0;
        for (uint32_t left = mask; left; left &= left - 1) {
            votes |= simdgroup.lanes[lowest(left)].in[0] ? 1u << lowest(left) : 0;
        }
        for (uint32_t left = mask; left; left &= left - 1) {
            simdgroup.lanes[lowest(left)].out = votes;
        }
        break;
    }
    case Op::active:
        for (uint32_t left = mask; left; left &= left - 1) {
            simdgroup.lanes[lowest(left)].out = mask;
        }
        break;
    case Op::barrier:
        if (group.checked) {
            if (mask != simdgroup.alive) {
                checker::note("divergent simdgroup_barrier", first.site);
            }
            checker::simdgroup_barrier(first.simdgroup, first.argument);
        }
        break;
    case Op::spread:
    case Op::gather:
    case Op::matrix:
        if (mask != ~0u) {
            die(group, "simdgroup_matrix operation with only %d active lanes", __builtin_popcount(mask));
        }
        if (first.op != Op::matrix) {
            exchange(simdgroup, first.op == Op::gather);
        }
        break;
    }
    simdgroup.waiting &= ~mask;
    simdgroup.ready |= mask;
    group.ready_simdgroups |= 1u << first.simdgroup;
}

// ---- what a kernel asks of its simdgroup (metal/compat/msl/host.h) ----

#define SITE __builtin_return_address(0)

extern "C" {

uint32_t __msl_shfl(uint32_t value, int kind, uint32_t k) {
    running->current->in[0] = value;
    running->current->in[1] = k;
    return static_cast<uint32_t>(collective(Op::shuffle, static_cast<uint32_t>(kind), SITE));
}

float __msl_red_f32(float value, int op, int scan) {
    memcpy(&running->current->in[0], &value, sizeof value);
    const uint64_t bits = collective(Op::reduce_float, static_cast<uint32_t>(op | scan << 8), SITE);
    memcpy(&value, &bits, sizeof value);
    return value;
}

int32_t __msl_red_i32(int32_t value, int op, int scan) {
    running->current->in[0] = static_cast<uint32_t>(value);
    return static_cast<int32_t>(collective(Op::reduce_int, static_cast<uint32_t>(op | scan << 8), SITE));
}

uint32_t __msl_red_u32(uint32_t value, int op, int scan) {
    running->current->in[0] = value;
    return static_cast<uint32_t>(collective(Op::reduce_uint, static_cast<uint32_t>(op | scan << 8), SITE));
}

uint64_t __msl_red_u64(uint64_t value, int op, int scan) {
    running->current->in[0] = value;
    return collective(Op::reduce_ulong, static_cast<uint32_t>(op | scan << 8), SITE);
}

uint32_t __msl_ballot(bool vote) {
    running->current->in[0] = vote;
    return static_cast<uint32_t>(collective(Op::ballot, 0, SITE));
}

uint32_t __msl_active() { return static_cast<uint32_t>(collective(Op::active, 0, SITE)); }

void __msl_sg_barrier(uint32_t flags) { collective(Op::barrier, flags, SITE); }

float *__msl_matrix_new() {
    Threadgroup &group = *running;
    Simdgroup &simdgroup = group.simdgroups[group.current->simdgroup];
    if (simdgroup.matrices == max_matrices) {
        die(group, "more than %d matrices at once in a simdgroup", max_matrices);
    }
    return group.matrices[group.current->simdgroup][simdgroup.matrices++];
}

void __msl_matrix_delete() { running->simdgroups[running->current->simdgroup].matrices--; }

uint64_t __msl_matrix_spread(const float *whole) {
    running->current->in[0] = reinterpret_cast<uint64_t>(whole);
    return collective(Op::spread, 0, SITE);
}

void __msl_matrix_gather(float *whole, uint64_t own) {
    running->current->in[0] = reinterpret_cast<uint64_t>(whole);
    running->current->in[1] = own;
    collective(Op::gather, 0, SITE);
}

void __msl_matrix_meet() { collective(Op::matrix, 0, SITE); }
}
