// One row times up to four matrices in one dispatch (the fused projections of decoding), with the norm of x in front.
// A threadgroup belongs to one matrix; its simdgroups take `count` rows each. Many rows a simdgroup for wide matrices,
// so that the norm and the x in registers cost little; few for narrow ones, so that the whole GPU has work.

#include "args.h"
#include "gemv.h"

// All threads come here: x is staged behind the first loads of weights.
template <uint bits, uint count>
inline void gemv_job(thread const Rows (&w)[1], device bfloat *y, constant GemvJob &job, uint first,
                     device const bfloat *x, device const float *gain, constant GemvArgs &args, threadgroup bfloat *row,
                     threadgroup float *partial, uint thread_index, uint simdgroup, uint lane) {
    Coming<bits, count> coming = first_loads<bits, 1, count>(w, first, args.cols, lane);
    stage_row(x, gain, args.normed != 0, args.eps, args.cols, row, partial, thread_index, simdgroup, lane);
    if (first >= job.rows)
        return;
    const float total = row_products<bits, 1, count>(w, first, row, args.cols, lane, coming);
    const uint output = first + lane;
    if (lane < count && output < job.rows) {
        if (job.store == LILY_STORE_F32)
            ((device float *)y)[output] = total;
        else if (job.store == LILY_STORE_BF16)
            y[output] = bfloat(total);
        else
            y[output] = bfloat(float(y[output]) + total);
    }
}

template <uint count> [[kernel]] [[max_total_threads_per_threadgroup(kGemvThreads)]] void
gemv(device const bfloat *x [[buffer(0)]], device const float *gain [[buffer(1)]],
     device const uint4 *codes0 [[buffer(2)]], device const bfloat *scales0 [[buffer(3)]],
     device const bfloat *biases0 [[buffer(4)]], device bfloat *y0 [[buffer(5)]],
     device const uint4 *codes1 [[buffer(6)]], device const bfloat *scales1 [[buffer(7)]],
     device const bfloat *biases1 [[buffer(8)]], device bfloat *y1 [[buffer(9)]],
     device const uint4 *codes2 [[buffer(10)]], device const bfloat *scales2 [[buffer(11)]],
     device const bfloat *biases2 [[buffer(12)]], device bfloat *y2 [[buffer(13)]],
     device const uint4 *codes3 [[buffer(14)]], device const bfloat *scales3 [[buffer(15)]],
     device const bfloat *biases3 [[buffer(16)]], device bfloat *y3 [[buffer(17)]],
     constant GemvArgs &args [[buffer(18)]], threadgroup bfloat *row [[threadgroup(0)]],
     uint group [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
     uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float partial[kGemvSimdgroups];
    uint j = 0;
    while (j + 1 < args.jobs && group >= args.job[j].groups) {
        group -= args.job[j].groups;
        ++j;
    }
    constant GemvJob &job = args.job[j];
    const uint first = (group * kGemvSimdgroups + simdgroup) * count;
    const Rows w[1] = {{j == 0   ? codes0
                        : j == 1 ? codes1
                        : j == 2 ? codes2
                                 : codes3,
                        j == 0   ? scales0
                        : j == 1 ? scales1
                        : j == 2 ? scales2
                                 : scales3,
                        j == 0   ? biases0
                        : j == 1 ? biases1
                        : j == 2 ? biases2
                                 : biases3,
                        size_t(job.expert) * job.rows, job.rows}};
    device bfloat *y = j == 0 ? y0 : j == 1 ? y1 : j == 2 ? y2 : y3;
    if (job.bits == 4)
        gemv_job<4, count>(w, y, job, first, x, gain, args, row, partial, thread_index, simdgroup, lane);
    else if (job.bits == 8)
        gemv_job<8, count>(w, y, job, first, x, gain, args, row, partial, thread_index, simdgroup, lane);
    else
        gemv_job<16, count>(w, y, job, first, x, gain, args, row, partial, thread_index, simdgroup, lane);
}

template [[host_name("gemv_1")]] [[kernel]] decltype(gemv<1>) gemv<1>;
template [[host_name("gemv_2")]] [[kernel]] decltype(gemv<2>) gemv<2>;
template [[host_name("gemv_4")]] [[kernel]] decltype(gemv<4>) gemv<4>;
