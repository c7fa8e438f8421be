// Metal's compute objects over the executor of metal/toolchain. A committed command buffer runs on its queue's own thread,
// so a host that forgets to wait sees old data. In a concurrent encoder the dispatches between two barriers run last to
// first, so that a missing barrier gives wrong results; with LILY_STANDIN_NO_BARRIERS in the environment barriers do
// nothing, which shows that it does. What Metal's validation layer refuses ends the process, and so does work on memory
// that is in no residency set. With LILY_STANDIN_FAILURE, what is committed fails for that reason;
// LILY_STANDIN_WORKING_SET is a number of bytes; with LILY_STANDIN_M5 it is a GPU with tensor units. Kernels are in
// pipelines.mm.

#import <Metal/Metal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include <unistd.h>

#include "pipelines.h"

namespace {

constexpr NSUInteger kIndices = 31;
std::atomic<NSUInteger> allocated{0}; // by all buffers

} // namespace

@interface StandinBuffer : NSObject <MTLBuffer> {
  @public
    char *memory;
    NSUInteger bytes;
    bool owned;
}
@end
@implementation StandinBuffer
- (NSUInteger)length {
    return bytes;
}
- (void *)contents {
    return memory;
}
- (void)dealloc {
    allocated -= bytes;
    if (owned) {
        std::free(memory);
    }
}
@end

@implementation MTLResidencySetDescriptor
@end

namespace {

// One dispatch, with what it keeps alive.
struct Launch {
    StandinPipeline *pipeline = nil;
    msl_launch work{};
    StandinBuffer *buffers[kIndices] = {};
    std::string bytes[kIndices];
    StandinBuffer *indirect = nil;
    NSUInteger indirect_offset = 0;
    int level = 0;
};

std::string run(Launch &launch) {
    if (launch.indirect != nil) {
        std::memcpy(launch.work.grid, launch.indirect->memory + launch.indirect_offset, sizeof launch.work.grid);
        if (launch.work.grid[0] == 0 || launch.work.grid[1] == 0 || launch.work.grid[2] == 0) {
            return "";
        }
    }
    for (NSUInteger i = 0; i < kIndices; ++i) {
        if (!launch.bytes[i].empty()) {
            launch.work.buf[i] = launch.bytes[i].data();
            launch.work.len[i] = launch.bytes[i].size();
        }
    }
    for (const auto &[index, value] : launch.pipeline->function->constants) {
        auto &constant = launch.work.fc[launch.work.nfc++];
        constant.index = (int)index;
        constant.size = sizeof value;
        std::memcpy(constant.v, &value, sizeof value);
    }
    return executor.dispatch(launch.pipeline->function->kernel, &launch.work) == 0 ? "" : executor.error();
}

} // namespace

@class StandinCommands;

@interface StandinEncoder : NSObject <MTLComputeCommandEncoder> {
  @public
    std::deque<Launch> launches;
    Launch next;
    bool ended;
}
@end
@implementation StandinEncoder
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state {
    require(state != nil, "setComputePipelineState: nil");
    next.pipeline = (StandinPipeline *)state;
}
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index {
    StandinBuffer *bound = (StandinBuffer *)buffer;
    require(index < kIndices && bound != nil && offset < bound->bytes && offset % 4 == 0, "setBuffer: out of range");
    next.buffers[index] = bound;
    next.bytes[index].clear();
    next.work.buf[index] = bound->memory + offset;
    next.work.len[index] = bound->bytes - offset;
}
- (void)setBytes:(const void *)bytes length:(NSUInteger)length atIndex:(NSUInteger)index {
    require(index < kIndices && length > 0 && length <= 4096, "setBytes: out of range");
    next.buffers[index] = nil;
    next.bytes[index].assign((const char *)bytes, length);
}
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index {
    require(length % 16 == 0, "setThreadgroupMemoryLength: not a multiple of 16");
    next.work.tgmem[index] = (uint32_t)length;
}
- (void)add:(MTLSize)threads {
    require(!ended, "a dispatch after endEncoding");
    require(next.pipeline != nil, "a dispatch without a pipeline");
    require(threads.width * threads.height * threads.depth <= next.pipeline.maxTotalThreadsPerThreadgroup,
            "more threads in a threadgroup than the pipeline allows");
    next.work.tptg[0] = (uint32_t)threads.width;
    next.work.tptg[1] = (uint32_t)threads.height;
    next.work.tptg[2] = (uint32_t)threads.depth;
    launches.push_back(next);
}
- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)threads {
    require(groups.width > 0 && groups.height > 0 && groups.depth > 0, "an empty grid");
    next.work.grid[0] = (uint32_t)groups.width;
    next.work.grid[1] = (uint32_t)groups.height;
    next.work.grid[2] = (uint32_t)groups.depth;
    next.indirect = nil;
    [self add:threads];
}
- (void)dispatchThreadgroupsWithIndirectBuffer:(id<MTLBuffer>)buffer
                          indirectBufferOffset:(NSUInteger)offset
                         threadsPerThreadgroup:(MTLSize)threads {
    next.indirect = (StandinBuffer *)buffer;
    next.indirect_offset = offset;
    require(next.indirect != nil && offset % 4 == 0 && offset + 12 <= next.indirect->bytes, "an indirect buffer");
    [self add:threads];
}
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope {
    require(scope == MTLBarrierScopeBuffers, "a barrier of another scope than buffers");
    static const bool ignored = std::getenv("LILY_STANDIN_NO_BARRIERS") != nullptr;
    next.level += ignored ? 0 : 1;
}
- (void)endEncoding {
    require(!ended, "endEncoding twice");
    ended = true;
}
- (void)dealloc {
    require(ended, "an encoder is released without endEncoding");
}
@end

@interface StandinResidencySet : NSObject <MTLResidencySet> {
  @public
    std::set<const void *> wanted, committed;
}
@end
@implementation StandinResidencySet
- (void)addAllocation:(id<MTLAllocation>)allocation {
    require(allocation != nil && wanted.insert((__bridge const void *)allocation).second, "addAllocation");
}
- (void)removeAllocation:(id<MTLAllocation>)allocation {
    require(wanted.erase((__bridge const void *)allocation) == 1, "removeAllocation");
}
- (void)commit {
    committed = wanted;
}
- (void)requestResidency {
}
@end

@class StandinQueue;

@interface StandinCommands : NSObject <MTLCommandBuffer> {
  @public
    StandinQueue *queue;
    StandinEncoder *encoder;
    MTLDispatchType type;
    MTLCommandBufferStatus reached;
    std::string failure;
    std::mutex mutex;
    std::condition_variable changed;
}
- (void)run;
@end

@interface StandinQueue : NSObject <MTLCommandQueue> {
  @public
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<StandinCommands *> waiting;
    StandinResidencySet *resident;
    std::thread thread;
    bool stopped;
}
@end

@implementation StandinCommands
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)wanted {
    require(encoder == nil, "a second encoder");
    type = wanted;
    encoder = [StandinEncoder new];
    return encoder;
}
- (MTLCommandBufferStatus)status {
    const std::lock_guard<std::mutex> lock(mutex);
    return reached;
}
- (NSError *)error {
    return [NSError errorWithText:failure.c_str()];
}
- (void)commit {
    require(encoder == nil || encoder->ended, "commit with an open encoder");
    require(reached == MTLCommandBufferStatusNotEnqueued, "commit twice");
    reached = MTLCommandBufferStatusCommitted;
    StandinQueue *to = queue; // running it lets go of the queue
    for (const Launch &launch : encoder->launches) {
        for (StandinBuffer *buffer : launch.buffers) {
            require(buffer == nil || to->resident->committed.count((__bridge const void *)buffer) == 1,
                    "work on memory that is not resident");
        }
    }
    const char *reason = std::getenv("LILY_STANDIN_FAILURE"); // read here: the queue's thread would race with setenv
    failure = reason == nullptr ? "" : reason;
    {
        const std::lock_guard<std::mutex> lock(to->mutex);
        to->waiting.push_back(self);
    }
    to->changed.notify_all();
}
- (void)waitUntilCompleted {
    std::unique_lock<std::mutex> lock(mutex);
    require(reached >= MTLCommandBufferStatusCommitted, "waitUntilCompleted before commit");
    changed.wait(lock, [&] { return reached >= MTLCommandBufferStatusCompleted; });
}
- (void)run {
    std::deque<Launch> &launches = encoder->launches;
    for (auto first = launches.begin(); first != launches.end();) {
        const auto last =
            std::find_if(first, launches.end(), [&](const Launch &launch) { return launch.level != first->level; });
        if (type == MTLDispatchTypeConcurrent) {
            std::reverse(first, last);
        }
        first = last;
    }
    for (Launch &launch : launches) {
        failure = failure.empty() ? ::run(launch) : failure;
    }
    launches.clear();
    {
        const std::lock_guard<std::mutex> lock(mutex);
        reached = failure.empty() ? MTLCommandBufferStatusCompleted : MTLCommandBufferStatusError;
    }
    changed.notify_all();
}
@end

@implementation StandinQueue
- (instancetype)init {
    __unsafe_unretained StandinQueue *self_alone = self; // the thread does not keep its queue
    thread = std::thread([self_alone] {
        for (;;) {
            @autoreleasepool {
                StandinCommands *commands = nil;
                {
                    std::unique_lock<std::mutex> lock(self_alone->mutex);
                    self_alone->changed.wait(lock, [&] { return self_alone->stopped || !self_alone->waiting.empty(); });
                    if (self_alone->waiting.empty()) {
                        return;
                    }
                    commands = self_alone->waiting.front();
                    self_alone->waiting.pop_front();
                }
                commands->queue = nil; // else the last one could end the queue on its own thread
                [commands run];
            }
        }
    });
    return self;
}
- (void)dealloc {
    {
        const std::lock_guard<std::mutex> lock(mutex);
        stopped = true;
    }
    changed.notify_all();
    thread.join();
}
- (id<MTLCommandBuffer>)commandBuffer {
    StandinCommands *commands = [StandinCommands new];
    commands->queue = self;
    return commands;
}
- (void)addResidencySet:(id<MTLResidencySet>)set {
    require(set != nil && resident == nil, "addResidencySet: nil, or a second one");
    resident = (StandinResidencySet *)set;
}
@end

@interface StandinDevice : NSObject <MTLDevice>
@end
@implementation StandinDevice
- (NSString *)name {
    return [NSString stringWithUTF8String:"stand-in"];
}
- (NSUInteger)maxThreadgroupMemoryLength {
    return 32768;
}
- (NSUInteger)maxBufferLength {
    return NSUInteger{1} << 36;
}
- (NSUInteger)currentAllocatedSize {
    return allocated;
}
- (uint64_t)recommendedMaxWorkingSetSize {
    const char *bytes = std::getenv("LILY_STANDIN_WORKING_SET");
    return bytes == nullptr ? std::uint64_t{1} << 34 : std::strtoull(bytes, nullptr, 10);
}
- (BOOL)supportsFamily:(MTLGPUFamily)family {
    return family != MTLGPUFamilyApple10 || std::getenv("LILY_STANDIN_M5") != nullptr;
}
- (id<MTLCommandQueue>)newCommandQueue {
    return [StandinQueue new];
}
- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor *)descriptor error:(NSError **)error {
    return [StandinResidencySet new];
}
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
    StandinBuffer *buffer = [StandinBuffer new];
    buffer->memory = (char *)std::calloc(1, length);
    buffer->bytes = length;
    buffer->owned = true;
    allocated += length;
    return buffer;
}
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void *)bytes
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(id)deallocator {
    const auto page = (NSUInteger)getpagesize();
    require((NSUInteger)bytes % page == 0 && length % page == 0, "newBufferWithBytesNoCopy: not whole pages");
    StandinBuffer *buffer = [StandinBuffer new];
    buffer->memory = (char *)bytes;
    buffer->bytes = length;
    allocated += length;
    return buffer;
}
- (id<MTLLibrary>)newLibraryWithURL:(NSURL *)url error:(NSError **)error {
    return open_library(url.path.UTF8String, error);
}
- (id<MTLLibrary>)newLibraryWithSource:(NSString *)source options:(MTLCompileOptions *)options error:(NSError **)error {
    const bool metal4 = std::strstr(source.UTF8String, "MetalPerformancePrimitives") != nullptr;
    require(!options.fastMathEnabled &&
                options.languageVersion == (metal4 ? MTLLanguageVersion4_0 : MTLLanguageVersion3_1),
            "other compile options");
    return compile_library(source.UTF8String, error);
}
- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)function error:(NSError **)error {
    StandinPipeline *pipeline = [StandinPipeline new];
    pipeline->function = (StandinFunction *)function;
    return pipeline;
}
- (id<MTLComputePipelineState>)newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor *)descriptor
                                                             options:(MTLPipelineOption)options
                                                          reflection:(MTLComputePipelineReflection **)reflection
                                                               error:(NSError **)error {
    if ((options & MTLPipelineOptionFailOnBinaryArchiveMiss) != 0 && !archived(descriptor)) {
        return nil;
    }
    return [self newComputePipelineStateWithFunction:descriptor.computeFunction error:error];
}
- (id<MTLBinaryArchive>)newBinaryArchiveWithDescriptor:(MTLBinaryArchiveDescriptor *)descriptor
                                                 error:(NSError **)error {
    return open_archive(descriptor.url, error);
}
@end

id<MTLDevice> MTLCreateSystemDefaultDevice(void) { return [StandinDevice new]; }
