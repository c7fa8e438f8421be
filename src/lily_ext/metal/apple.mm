// Apple's Metal as a driver of device.h: each function is the few calls of Metal that it names, and nothing is decided
// here. Compiled with ARC. Failures of a command buffer become Error(device) with Metal's own words.
//
// Kernels come as a library, compiled when lily was built, or as texts. Metal compiles a text when the device is opened,
// and a kernel of it to code of the GPU when its pipeline is made; that code is kept in an archive, a file, so that the
// next process finds it there.

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include <cstdio>
#include <cstring>
#include <optional>

#include <unistd.h>

#include "../error.h"
#include "drivers.h"

namespace lily::metal {

namespace {

constexpr const char *kArchiveSuffix = ".binarchive";
// As numbers, because only SDKs from macOS 26 on have names for them.
constexpr auto kFamilyOfM5 = static_cast<MTLGPUFamily>(1010);
constexpr auto kMetal4 = static_cast<MTLLanguageVersion>(4 << 16);
constexpr const char *kWithoutMetal4 = " (device 'metal:m1' does without them)";

[[noreturn]] void fail(const std::string &what, NSError *error) {
    throw Error(ErrorKind::device,
                what + (error == nil ? std::string() : ": " + std::string(error.localizedDescription.UTF8String)));
}

NSString *text_of(const std::string &text) { return [NSString stringWithUTF8String:text.c_str()]; }

NSURL *url_of(const std::string &path) { return [NSURL fileURLWithPath:text_of(path)]; }

MTLSize size_of(Size size) { return MTLSizeMake(size.x, size.y, size.z); }

// Keeps the memory of buffers wired while the queue lives. Before macOS 15 there is no such thing, and Metal makes the
// buffers that were set resident for each command buffer, which needs no call.
class Residency {
  public:
    Residency(id<MTLDevice> device, id<MTLCommandQueue> queue) {
        if (@available(macOS 15.0, *)) {
            NSError *error = nil;
            set_ = [device newResidencySetWithDescriptor:[MTLResidencySetDescriptor new] error:&error];
            if (set_ == nil) {
                fail("Metal gave no residency set", error);
            }
            [queue addResidencySet:set_];
        }
    }
    void add(id<MTLBuffer> buffer) {
        if (@available(macOS 15.0, *)) {
            [set_ addAllocation:buffer];
            [set_ commit];
            [set_ requestResidency];
        }
    }
    void remove(id<MTLBuffer> buffer) {
        if (@available(macOS 15.0, *)) {
            [set_ removeAllocation:buffer];
            [set_ commit];
        }
    }

  private:
    id<MTLResidencySet> set_ API_AVAILABLE(macos(15.0)) = nil;
};

class AppleBuffer final : public DeviceBuffer {
  public:
    AppleBuffer(id<MTLBuffer> buffer, std::size_t bytes, std::shared_ptr<Residency> residency)
        : DeviceBuffer(bytes), buffer_(buffer), residency_(std::move(residency)) {
        residency_->add(buffer_);
    }
    ~AppleBuffer() override { residency_->remove(buffer_); }
    id<MTLBuffer> buffer() const { return buffer_; }
    std::byte *data() const { return static_cast<std::byte *>(buffer_.contents); }

  private:
    id<MTLBuffer> buffer_;
    std::shared_ptr<Residency> residency_;
};

const AppleBuffer &of_apple(const DeviceBuffer &buffer) {
    const auto *apple = dynamic_cast<const AppleBuffer *>(&buffer);
    if (apple == nullptr) {
        fail("a buffer of another device was given to metal", nil);
    }
    return *apple;
}

struct ApplePipeline final : public Pipeline {
    explicit ApplePipeline(id<MTLComputePipelineState> made) : state(made) {}
    id<MTLComputePipelineState> state;
};

// The code of kernels that came as text, in memory and in a file.
class Archive {
  public:
    Archive(id<MTLDevice> device, const std::string &path) : device_(device), path_(path) {
        MTLBinaryArchiveDescriptor *descriptor = [MTLBinaryArchiveDescriptor new];
        descriptor.url = url_of(path);
        archive_ = [device newBinaryArchiveWithDescriptor:descriptor error:nil];
        if (archive_ == nil) { // there is no such file yet, or another system wrote it: begin a new one
            NSError *error = nil;
            descriptor.url = nil;
            archive_ = [device newBinaryArchiveWithDescriptor:descriptor error:&error];
            require(archive_ != nil, error);
        }
    }

    // nil, with the reason, if Metal cannot make one.
    id<MTLComputePipelineState> pipeline(id<MTLFunction> function, NSError **error) {
        MTLComputePipelineDescriptor *wanted = [MTLComputePipelineDescriptor new];
        wanted.computeFunction = function;
        wanted.binaryArchives = [NSArray arrayWithObject:archive_];
        id<MTLComputePipelineState> made = state(wanted, MTLPipelineOptionFailOnBinaryArchiveMiss, nil);
        if (made == nil && (made = state(wanted, MTLPipelineOptionNone, error)) != nil) {
            add(wanted);
        }
        return made;
    }

  private:
    id<MTLComputePipelineState> state(MTLComputePipelineDescriptor *wanted, MTLPipelineOption option, NSError **error) {
        return [device_ newComputePipelineStateWithDescriptor:wanted options:option reflection:nil error:error];
    }

    // The file is replaced in one step, because another process may read it. Of two that write it, the last one wins, and
    // what is then missing is added by the next process that needs it.
    void add(MTLComputePipelineDescriptor *made) {
        NSError *error = nil;
        const std::string whole = path_ + "." + std::to_string(getpid());
        require([archive_ addComputePipelineFunctionsWithDescriptor:made error:&error] &&
                    [archive_ serializeToURL:url_of(whole) error:&error] &&
                    std::rename(whole.c_str(), path_.c_str()) == 0,
                error);
    }

    void require(bool done, NSError *error) const {
        if (!done) {
            fail("Metal cannot keep compiled kernels in " + path_, error);
        }
    }

    id<MTLDevice> device_;
    std::string path_;
    id<MTLBinaryArchive> archive_;
};

class AppleCommands final : public CommandBuffer {
  public:
    explicit AppleCommands(id<MTLCommandQueue> queue) {
        @autoreleasepool {
            commands_ = [queue commandBuffer];
            encoder_ = [commands_ computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
            if (encoder_ == nil) {
                fail("Metal gave no command buffer", nil);
            }
        }
    }

    ~AppleCommands() override {
        if (encoder_ != nil) {
            [encoder_ endEncoding]; // Metal asks for it even of what never runs
        } else {
            [commands_ waitUntilCompleted];
        }
    }

    void set_pipeline(const Pipeline &pipeline) override {
        [encoder_ setComputePipelineState:static_cast<const ApplePipeline &>(pipeline).state];
    }

    void set_buffer(std::uint32_t index, const DeviceBuffer &buffer, std::size_t offset, std::size_t, Access) override {
        [encoder_ setBuffer:of_apple(buffer).buffer() offset:offset atIndex:index];
    }

    void set_bytes(std::uint32_t index, const void *data, std::size_t bytes) override {
        [encoder_ setBytes:data length:bytes atIndex:index];
    }

    void set_threadgroup_memory(std::uint32_t index, std::uint32_t bytes) override {
        [encoder_ setThreadgroupMemoryLength:bytes atIndex:index];
    }

    void dispatch(Size groups, Size threads) override {
        [encoder_ dispatchThreadgroups:size_of(groups) threadsPerThreadgroup:size_of(threads)];
    }

    void dispatch_indirect(const DeviceBuffer &groups, std::size_t offset, Size threads) override {
        [encoder_ dispatchThreadgroupsWithIndirectBuffer:of_apple(groups).buffer()
                                    indirectBufferOffset:offset
                                   threadsPerThreadgroup:size_of(threads)];
    }

    void barrier() override { [encoder_ memoryBarrierWithScope:MTLBarrierScopeBuffers]; }

    void commit() override {
        [encoder_ endEncoding];
        encoder_ = nil;
        [commands_ commit];
    }

    void wait() override {
        [commands_ waitUntilCompleted];
        if (commands_.status != MTLCommandBufferStatusCompleted) {
            @autoreleasepool {
                fail("a command buffer failed on the GPU", commands_.error);
            }
        }
    }

  private:
    id<MTLCommandBuffer> commands_;
    id<MTLComputeCommandEncoder> encoder_; // nil after commit
};

// Whether matmul2d, with operands of bf16, runs on matrix hardware.
bool has_tensor_units(id<MTLDevice> device) {
    if (@available(macOS 26.2, *)) {
        return [device supportsFamily:kFamilyOfM5];
    }
    return false;
}

class AppleDevice final : public Device {
  public:
    explicit AppleDevice(const std::vector<std::string> &kernels) {
        @autoreleasepool {
            device_ = MTLCreateSystemDefaultDevice();
            if (device_ == nil) {
                fail("this machine has no GPU that Metal can use; use device='cpu'", nil);
            }
            queue_ = [device_ newCommandQueue];
            residency_ = std::make_shared<Residency>(device_, queue_);
            for (const std::string &path : kernels) {
                if (path.ends_with(kArchiveSuffix)) {
                    archive_.emplace(device_, path);
                } else if (!needs_metal4(path)) {
                    libraries_.push_back(library(path));
                } else if (has_tensor_units(device_)) {
                    libraries_.push_back(library(path));
                    tensor_units_ = true;
                }
            }
        }
    }

    std::string kind() const override { return "metal"; }
    std::string name() const override { return device_.name.UTF8String; }

    DeviceLimits limits() const override {
        return {device_.maxBufferLength, device_.recommendedMaxWorkingSetSize,
                static_cast<std::uint32_t>(device_.maxThreadgroupMemoryLength), tensor_units_};
    }

    std::size_t allocated() const override { return device_.currentAllocatedSize; }

    std::unique_ptr<DeviceBuffer> buffer(std::size_t bytes) override {
        // Metal clears it.
        id<MTLBuffer> made = [device_ newBufferWithLength:bytes options:MTLResourceStorageModeShared];
        if (made == nil) {
            throw Error(ErrorKind::out_of_memory, "Metal has no buffer of " + std::to_string(bytes) + " bytes left");
        }
        return std::make_unique<AppleBuffer>(made, bytes, residency_);
    }

    std::unique_ptr<DeviceBuffer> buffer_over(std::span<const std::byte> memory) override {
        const auto page = static_cast<std::size_t>(getpagesize());
        if (memory.empty() || reinterpret_cast<std::uintptr_t>(memory.data()) % page != 0) {
            return nullptr;
        }
        // A mapped file lies in whole pages, whatever its length.
        id<MTLBuffer> made = [device_ newBufferWithBytesNoCopy:const_cast<std::byte *>(memory.data())
                                                        length:(memory.size() + page - 1) / page * page
                                                       options:MTLResourceStorageModeShared
                                                   deallocator:nil];
        return made == nil ? nullptr : std::make_unique<AppleBuffer>(made, memory.size(), residency_);
    }

    void read(const DeviceBuffer &from, std::size_t offset, std::span<std::byte> to) override {
        std::memcpy(to.data(), of_apple(from).data() + offset, to.size());
    }

    void write(DeviceBuffer &to, std::size_t offset, std::span<const std::byte> from) override {
        std::memcpy(of_apple(to).data() + offset, from.data(), from.size());
    }

    std::unique_ptr<Pipeline> pipeline(const std::string &kernel, std::span<const Constant> constants) override {
        @autoreleasepool {
            MTLFunctionConstantValues *values = [MTLFunctionConstantValues new];
            for (const Constant &constant : constants) {
                [values setConstantValue:&constant.value type:MTLDataTypeUInt atIndex:constant.index];
            }
            NSError *error = nil;
            for (id<MTLLibrary> library : libraries_) {
                id<MTLFunction> function = [library newFunctionWithName:text_of(kernel)
                                                         constantValues:values
                                                                  error:&error];
                if (function == nil) {
                    continue;
                }
                id<MTLComputePipelineState> made = archive_ ? archive_->pipeline(function, &error)
                                                            : [device_ newComputePipelineStateWithFunction:function
                                                                                                     error:&error];
                if (made == nil) {
                    fail("Metal cannot make a pipeline of the kernel " + kernel, error);
                }
                return std::make_unique<ApplePipeline>(made);
            }
            fail("there is no kernel " + kernel + " among those of metal", error);
        }
    }

    std::unique_ptr<CommandBuffer> commands() override { return std::make_unique<AppleCommands>(queue_); }

  private:
    // A .metallib as it is; anything else is the text of kernels.
    id<MTLLibrary> library(const std::string &path) {
        NSError *error = nil;
        id<MTLLibrary> made = nil;
        if (path.ends_with(".metallib")) {
            made = [device_ newLibraryWithURL:url_of(path) error:&error];
        } else {
            NSString *text = [NSString stringWithContentsOfFile:text_of(path)
                                                       encoding:NSUTF8StringEncoding
                                                          error:&error];
            MTLCompileOptions *options = [MTLCompileOptions new]; // those of cmake/metallib.cmake
            options.languageVersion = needs_metal4(path) ? kMetal4 : MTLLanguageVersion3_1;
            options.fastMathEnabled = NO; // each operation rounds as written: infinities and NaN are real
            made = text == nil ? nil : [device_ newLibraryWithSource:text options:options error:&error];
        }
        if (made == nil) {
            fail("Metal cannot load the kernels of " + path + (needs_metal4(path) ? kWithoutMetal4 : ""), error);
        }
        return made;
    }

    id<MTLDevice> device_;
    id<MTLCommandQueue> queue_;
    std::shared_ptr<Residency> residency_; // of the buffers too, which may outlive the device
    std::vector<id<MTLLibrary>> libraries_;
    std::optional<Archive> archive_; // only with texts
    bool tensor_units_ = false;
};

} // namespace

std::unique_ptr<Device> open_apple(const std::vector<std::string> &kernels) {
    return std::make_unique<AppleDevice>(kernels);
}

} // namespace lily::metal
