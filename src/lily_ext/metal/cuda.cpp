// The CUDA driver: the kernels as PTX on an NVIDIA GPU, through the driver library of the system, which is loaded when
// the device is opened; nothing of CUDA is needed to build. One stream runs everything in order, so barriers cost
// nothing and two dispatches never overlap: it shows the concurrency within a dispatch, and the time of one. An indirect
// dispatch waits for its count.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <fstream>
#include <iterator>
#include <utility>

#include <dlfcn.h>

#include "../error.h"
#include "drivers.h"
#include "toolchain/runtime/exec.h"

namespace lily::metal {

namespace {

using Pointer = std::uint64_t; // on the device
using Handle = void *;
using Code = int;

[[noreturn]] void fail(const std::string &message) { throw Error(ErrorKind::device, message); }

// The functions of libcuda in use. The names carry the versions of their interfaces.
class Cuda {
  public:
    Cuda() {
        for (const char *name : {"libcuda.so.1", "libcuda.so"}) {
            library_ = library_ == nullptr ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : library_;
        }
        if (library_ == nullptr) {
            fail("the device 'metal:cuda' needs an NVIDIA GPU and its driver, but libcuda.so.1 is not here; use 'cpu'");
        }
        find(init, "cuInit");
        find(device_get, "cuDeviceGet");
        find(device_name, "cuDeviceGetName");
        find(retain, "cuDevicePrimaryCtxRetain");
        find(make_current, "cuCtxSetCurrent");
        find(memory_info, "cuMemGetInfo_v2");
        find(allocate, "cuMemAlloc_v2");
        find(release, "cuMemFree_v2");
        find(clear, "cuMemsetD8_v2");
        find(to_device, "cuMemcpyHtoD_v2");
        find(to_host, "cuMemcpyDtoH_v2");
        find(load, "cuModuleLoadData");
        find(unload, "cuModuleUnload");
        find(function, "cuModuleGetFunction");
        find(global, "cuModuleGetGlobal_v2");
        find(launch, "cuLaunchKernel");
        find(synchronize, "cuStreamSynchronize");
        find(error_text, "cuGetErrorString");
    }

    void check(const char *what, Code code) const {
        if (code != 0) {
            const char *text = nullptr;
            error_text(code, &text);
            fail(std::string("CUDA failed to ") + what + ": " + (text == nullptr ? std::to_string(code) : text));
        }
    }

    Code (*init)(unsigned) = nullptr;
    Code (*device_get)(int *, int) = nullptr;
    Code (*device_name)(char *, int, int) = nullptr;
    Code (*retain)(Handle *, int) = nullptr;
    Code (*make_current)(Handle) = nullptr;
    Code (*memory_info)(std::size_t *, std::size_t *) = nullptr;
    Code (*allocate)(Pointer *, std::size_t) = nullptr;
    Code (*release)(Pointer) = nullptr;
    Code (*clear)(Pointer, unsigned char, std::size_t) = nullptr;
    Code (*to_device)(Pointer, const void *, std::size_t) = nullptr;
    Code (*to_host)(void *, Pointer, std::size_t) = nullptr;
    Code (*load)(Handle *, const void *) = nullptr;
    Code (*unload)(Handle) = nullptr;
    Code (*function)(Handle *, Handle, const char *) = nullptr;
    Code (*global)(Pointer *, std::size_t *, Handle, const char *) = nullptr;
    Code (*launch)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **,
                   void **) = nullptr;
    Code (*synchronize)(Handle) = nullptr;
    Code (*error_text)(Code, const char **) = nullptr;

  private:
    template <typename Function> void find(Function &to, const char *name) {
        to = reinterpret_cast<Function>(dlsym(library_, name));
        if (to == nullptr) {
            fail(std::string("the NVIDIA driver has no ") + name + "; install a newer one");
        }
    }

    Handle library_ = nullptr;
};

// The driver's state, kept by everything that came from it. Any thread may call: each call makes the context current.
struct Shared {
    Cuda cuda;
    int device = 0;
    Handle context = nullptr;
    std::atomic<std::size_t> allocated{0};

    const Cuda &here() const {
        cuda.check("enter its context", cuda.make_current(context));
        return cuda;
    }
};

class CudaBuffer final : public DeviceBuffer {
  public:
    CudaBuffer(std::shared_ptr<Shared> shared, Pointer at, std::size_t bytes)
        : DeviceBuffer(bytes), shared_(std::move(shared)), at_(at) {
        shared_->allocated += bytes;
    }
    ~CudaBuffer() override {
        shared_->allocated -= bytes();
        shared_->cuda.make_current(shared_->context);
        shared_->cuda.release(at_);
    }
    Pointer at() const { return at_; }

  private:
    std::shared_ptr<Shared> shared_;
    Pointer at_;
};

const CudaBuffer &of_cuda(const DeviceBuffer &buffer) {
    const auto *cuda = dynamic_cast<const CudaBuffer *>(&buffer);
    if (cuda == nullptr) {
        fail("a buffer of another device was given to metal:cuda");
    }
    return *cuda;
}

std::unique_ptr<CudaBuffer> allocate(const std::shared_ptr<Shared> &shared, std::size_t bytes) {
    const Cuda &cuda = shared->here();
    Pointer at = 0;
    if (cuda.allocate(&at, bytes) != 0) {
        throw Error(ErrorKind::out_of_memory, "the GPU has no " + std::to_string(bytes) + " bytes left");
    }
    return std::make_unique<CudaBuffer>(shared, at, bytes);
}

// Function constants are variables of a module: a kernel with constants gets a copy of its module.
struct CudaPipeline final : public Pipeline {
    CudaPipeline(std::shared_ptr<Shared> of, Handle found, Handle own)
        : shared(std::move(of)), function(found), module(own) {}
    ~CudaPipeline() override {
        if (module != nullptr) {
            shared->cuda.make_current(shared->context);
            shared->cuda.unload(module);
        }
    }

    std::shared_ptr<Shared> shared;
    Handle function;
    Handle module; // null when it is that of the device
};

class CudaCommands final : public CommandBuffer {
  public:
    explicit CudaCommands(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

    void set_pipeline(const Pipeline &pipeline) override {
        next_.pipeline = dynamic_cast<const CudaPipeline *>(&pipeline);
    }

    void set_buffer(std::uint32_t index, const DeviceBuffer &buffer, std::size_t offset, std::size_t, Access) override {
        next_.args.buf[index] = of_cuda(buffer).at() + offset;
        next_.in_bytes &= ~(1U << index);
    }

    void set_bytes(std::uint32_t index, const void *data, std::size_t bytes) override {
        constexpr std::size_t kStart = 256;
        const std::size_t at = (bytes_.size() + kStart - 1) / kStart * kStart;
        bytes_.resize(at + bytes);
        std::memcpy(bytes_.data() + at, data, bytes);
        next_.args.buf[index] = at; // until the commit knows where
        next_.in_bytes |= 1U << index;
    }

    void set_threadgroup_memory(std::uint32_t index, std::uint32_t bytes) override { threadgroup_[index] = bytes; }

    void dispatch(Size groups, Size threads) override {
        next_.indirect = 0;
        add(groups, threads);
    }

    void dispatch_indirect(const DeviceBuffer &groups, std::size_t offset, Size threads) override {
        next_.indirect = of_cuda(groups).at() + offset;
        add({}, threads);
    }

    void barrier() override {}

    void commit() override {
        const Cuda &cuda = shared_->here();
        if (!bytes_.empty()) {
            constants_ = allocate(shared_, bytes_.size());
            cuda.check("copy arguments", cuda.to_device(constants_->at(), bytes_.data(), bytes_.size()));
        }
        for (Launch &launch : launches_) {
            for (std::uint32_t i = 0; i < std::size(launch.args.buf); ++i) {
                launch.args.buf[i] += (launch.in_bytes >> i & 1U) != 0 ? constants_->at() : 0;
            }
            run(cuda, launch);
        }
    }

    void wait() override {
        const Cuda &cuda = shared_->here();
        cuda.check("run a command buffer", cuda.synchronize(nullptr));
    }

    ~CudaCommands() override {
        if (constants_) { // kernels may still read them
            shared_->cuda.make_current(shared_->context);
            shared_->cuda.synchronize(nullptr);
        }
    }

  private:
    struct Launch {
        const CudaPipeline *pipeline = nullptr;
        msl_args args{};
        std::uint32_t in_bytes = 0; // a bit for each index that set_bytes filled
        std::uint32_t threadgroup = 0;
        Pointer indirect = 0;
    };

    static void set(std::uint32_t (&to)[3], Size size) {
        to[0] = size.x;
        to[1] = size.y;
        to[2] = size.z;
    }

    void add(Size groups, Size threads) {
        next_.threadgroup = 0;
        for (std::size_t i = 0; i < std::size(threadgroup_); ++i) {
            next_.args.tgoff[i] = next_.threadgroup;
            next_.threadgroup += (threadgroup_[i] + 15) / 16 * 16;
        }
        set(next_.args.tgs, groups);
        set(next_.args.tptg, threads);
        launches_.push_back(next_);
    }

    static void run(const Cuda &cuda, Launch &launch) {
        msl_args &args = launch.args;
        if (launch.indirect != 0) {
            cuda.check("read a count of groups", cuda.to_host(args.tgs, launch.indirect, sizeof args.tgs));
        }
        if (args.tgs[0] == 0 || args.tgs[1] == 0 || args.tgs[2] == 0) {
            return;
        }
        for (int i = 0; i < 3; ++i) {
            args.grid[i] = args.tgs[i] * args.tptg[i];
        }
        void *parameters[] = {&args};
        cuda.check("launch a kernel",
                   cuda.launch(launch.pipeline->function, args.tgs[0], args.tgs[1], args.tgs[2], args.tptg[0],
                               args.tptg[1], args.tptg[2], launch.threadgroup, nullptr, parameters, nullptr));
    }

    std::shared_ptr<Shared> shared_;
    Launch next_;
    std::uint32_t threadgroup_[std::extent_v<decltype(msl_args::tgoff)>] = {};
    std::deque<Launch> launches_;
    std::vector<std::byte> bytes_;
    std::unique_ptr<CudaBuffer> constants_; // bytes_, on the device
};

class CudaDevice final : public Device {
  public:
    explicit CudaDevice(const std::vector<std::string> &kernels) : shared_(std::make_shared<Shared>()) {
        const Cuda &cuda = shared_->cuda;
        cuda.check("start", cuda.init(0));
        cuda.check("find a GPU", cuda.device_get(&shared_->device, 0));
        cuda.check("open the GPU", cuda.retain(&shared_->context, shared_->device));
        for (const std::string &path : kernels) {
            std::ifstream file(path, std::ios::binary);
            texts_.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
            modules_.push_back(module(texts_.back()));
        }
    }

    ~CudaDevice() override {
        shared_->cuda.make_current(shared_->context);
        for (Handle module : modules_) {
            shared_->cuda.unload(module);
        }
    }

    std::string kind() const override { return "metal:cuda"; }

    std::string name() const override {
        char name[256] = {};
        shared_->cuda.check("name the GPU", shared_->cuda.device_name(name, sizeof name - 1, shared_->device));
        return name;
    }

    DeviceLimits limits() const override {
        std::size_t free = 0;
        std::size_t total = 0;
        const Cuda &cuda = shared_->here();
        cuda.check("tell its memory", cuda.memory_info(&free, &total));
        return {total, total, 32768, true}; // threadgroup memory as on Apple's GPUs
    }

    std::size_t allocated() const override { return shared_->allocated; }

    std::unique_ptr<DeviceBuffer> buffer(std::size_t bytes) override {
        std::unique_ptr<CudaBuffer> made = allocate(shared_, bytes);
        shared_->cuda.check("clear memory", shared_->cuda.clear(made->at(), 0, bytes));
        return made;
    }

    std::unique_ptr<DeviceBuffer> buffer_over(std::span<const std::byte>) override { return nullptr; }

    void read(const DeviceBuffer &from, std::size_t offset, std::span<std::byte> to) override {
        const Cuda &cuda = shared_->here();
        cuda.check("read memory", cuda.to_host(to.data(), of_cuda(from).at() + offset, to.size()));
    }

    void write(DeviceBuffer &to, std::size_t offset, std::span<const std::byte> from) override {
        const Cuda &cuda = shared_->here();
        cuda.check("write memory", cuda.to_device(of_cuda(to).at() + offset, from.data(), from.size()));
    }

    std::unique_ptr<Pipeline> pipeline(const std::string &kernel, std::span<const Constant> constants) override {
        const Cuda &cuda = shared_->here();
        for (std::size_t i = 0; i < modules_.size(); ++i) {
            Handle function = nullptr;
            if (cuda.function(&function, modules_[i], kernel.c_str()) != 0) {
                continue;
            }
            Handle own = nullptr;
            if (!constants.empty()) {
                own = module(texts_[i]);
                for (const Constant &constant : constants) {
                    set_constant(cuda, own, constant);
                }
                cuda.check("find a kernel again", cuda.function(&function, own, kernel.c_str()));
            }
            return std::make_unique<CudaPipeline>(shared_, function, own);
        }
        fail("there is no kernel " + kernel + " among those of metal:cuda");
    }

    std::unique_ptr<CommandBuffer> commands() override { return std::make_unique<CudaCommands>(shared_); }

  private:
    Handle module(const std::string &ptx) const {
        Handle made = nullptr;
        const Cuda &cuda = shared_->here();
        cuda.check("load kernels", cuda.load(&made, ptx.c_str()));
        return made;
    }

    static void set_constant(const Cuda &cuda, Handle module, const Constant &constant) {
        const std::uint8_t defined = 1;
        const std::pair<std::string, std::pair<const void *, std::size_t>> variables[] = {
            {"__msl_fc_" + std::to_string(constant.index), {&constant.value, sizeof constant.value}},
            {"__msl_fcd_" + std::to_string(constant.index), {&defined, sizeof defined}}};
        for (const auto &[name, content] : variables) {
            Pointer at = 0;
            std::size_t bytes = 0;
            if (cuda.global(&at, &bytes, module, name.c_str()) == 0) { // optimised away where nothing reads it
                cuda.check("set a constant", cuda.to_device(at, content.first, std::min(bytes, content.second)));
            }
        }
    }

    std::shared_ptr<Shared> shared_;
    std::vector<std::string> texts_; // PTX, of each module
    std::vector<Handle> modules_;
};

} // namespace

std::unique_ptr<Device> open_cuda(const std::vector<std::string> &kernels) {
    return std::make_unique<CudaDevice>(kernels);
}

} // namespace lily::metal
