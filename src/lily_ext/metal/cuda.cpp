// The CUDA driver: the kernels as PTX on an NVIDIA GPU, through the driver library of the system, which is loaded when
// the device is opened; nothing of CUDA is needed to build. One stream runs all dispatches in order, so barriers cost
// nothing and two dispatches never overlap: it shows the concurrency within a dispatch, and the time of one. Another one
// has what the host reads and writes, which so never waits for a command buffer that runs meanwhile; and whoever waits
// for a command buffer waits for its end and not for that of the next. An indirect dispatch waits for its count.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <fstream>
#include <iterator>
#include <mutex>
#include <utility>

#include "../error.h"
#include "cuda_library.h"
#include "drivers.h"
#include "toolchain/runtime/exec.h"

namespace lily::metal {

namespace {

// Where the arguments of one command buffer lie, in memory of the host that the GPU copies from by itself, and on the GPU;
// and the mark of its end.
struct Arguments {
    std::byte *host = nullptr;
    Pointer at = 0;
    std::size_t bytes = 0;
    Handle end = nullptr;
};

// The driver's state, kept by everything that came from it. Any thread may call: each call makes the context current.
struct Shared {
    Cuda cuda;
    int device = 0;
    Handle context = nullptr;
    Handle work = nullptr;   // the stream of the dispatches
    Handle copies = nullptr; // and that of the host
    std::atomic<std::size_t> allocated{0};

    Shared() {
        cuda.check("start", cuda.init(0));
        cuda.check("find a GPU", cuda.device_get(&device, 0));
        cuda.check("open the GPU", cuda.retain(&context, device));
        here();
        constexpr unsigned kNonBlocking = 1; // knows nothing of the default stream
        cuda.check("make a stream", cuda.make_stream(&work, kNonBlocking));
        cuda.check("make a stream", cuda.make_stream(&copies, kNonBlocking));
    }
    Shared(const Shared &) = delete;
    Shared &operator=(const Shared &) = delete;
    ~Shared() {
        cuda.make_current(context);
        for (const Arguments &arguments : spare_) {
            free(arguments);
        }
        cuda.end_stream(copies);
        cuda.end_stream(work);
    }

    const Cuda &here() const {
        cuda.check("enter its context", cuda.make_current(context));
        return cuda;
    }

    // What was started in the stream of copies is done.
    void copied(const char *what, Code code) const {
        cuda.check(what, code);
        cuda.check(what, cuda.synchronize(copies));
    }

    // Kept and handed out again, because making some waits for the GPU.
    Arguments take_arguments(std::size_t bytes) {
        constexpr std::size_t kLeast = 1 << 17;
        {
            const std::lock_guard lock(mutex_);
            const auto found = std::find_if(spare_.begin(), spare_.end(),
                                            [&](const Arguments &arguments) { return arguments.bytes >= bytes; });
            if (found != spare_.end()) {
                const Arguments arguments = *found;
                spare_.erase(found);
                return arguments;
            }
        }
        Arguments made;
        try {
            constexpr unsigned kWithoutTimes = 2;
            cuda.check("mark an end", cuda.make_event(&made.end, kWithoutTimes));
            void *host = nullptr;
            cuda.check("get memory for arguments", cuda.allocate_host(&host, std::max(bytes, kLeast), 0));
            made.host = static_cast<std::byte *>(host);
            cuda.check("get memory for arguments", cuda.allocate(&made.at, std::max(bytes, kLeast)));
            made.bytes = std::max(bytes, kLeast);
        } catch (...) {
            free(made);
            throw;
        }
        return made;
    }

    void give_back(const Arguments &arguments) {
        const std::lock_guard lock(mutex_);
        spare_.push_back(arguments);
    }

  private:
    void free(const Arguments &arguments) const {
        if (arguments.at != 0) {
            cuda.release(arguments.at);
        }
        if (arguments.host != nullptr) {
            cuda.release_host(arguments.host);
        }
        if (arguments.end != nullptr) {
            cuda.end_event(arguments.end);
        }
    }

    std::mutex mutex_;
    std::vector<Arguments> spare_;
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
        arguments_ = shared_->take_arguments(bytes_.size());
        committed_ = true;
        if (!bytes_.empty()) {
            std::memcpy(arguments_.host, bytes_.data(), bytes_.size());
            cuda.check("copy arguments", cuda.to_device(arguments_.at, arguments_.host, bytes_.size(), shared_->work));
        }
        for (Launch &launch : launches_) {
            for (std::uint32_t i = 0; i < std::size(launch.args.buf); ++i) {
                launch.args.buf[i] += (launch.in_bytes >> i & 1U) != 0 ? arguments_.at : 0;
            }
            run(cuda, launch);
        }
        cuda.check("mark an end", cuda.record(arguments_.end, shared_->work));
        marked_ = true;
    }

    void wait() override {
        const Cuda &cuda = shared_->here();
        cuda.check("run a command buffer", cuda.wait_for(arguments_.end));
    }

    ~CudaCommands() override {
        if (committed_) { // kernels may still read the arguments
            shared_->cuda.make_current(shared_->context);
            marked_ ? shared_->cuda.wait_for(arguments_.end) : shared_->cuda.synchronize(shared_->work);
            shared_->give_back(arguments_);
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

    void run(const Cuda &cuda, Launch &launch) const {
        msl_args &args = launch.args;
        if (launch.indirect != 0) {
            cuda.check("read a count of groups",
                       cuda.to_host(args.tgs, launch.indirect, sizeof args.tgs, shared_->work));
            cuda.check("read a count of groups", cuda.synchronize(shared_->work));
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
                               args.tptg[1], args.tptg[2], launch.threadgroup, shared_->work, parameters, nullptr));
    }

    std::shared_ptr<Shared> shared_;
    Launch next_;
    std::uint32_t threadgroup_[std::extent_v<decltype(msl_args::tgoff)>] = {};
    std::deque<Launch> launches_;
    std::vector<std::byte> bytes_;
    Arguments arguments_; // bytes_, on the device
    bool committed_ = false;
    bool marked_ = false; // its end is
};

class CudaDevice final : public Device {
  public:
    explicit CudaDevice(const std::vector<std::string> &kernels) : shared_(std::make_shared<Shared>()) {
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
        return {total, total, 32768, false}; // threadgroup memory as on Apple's GPUs; matmul2d is emulated there
    }

    std::size_t allocated() const override { return shared_->allocated; }

    std::unique_ptr<DeviceBuffer> buffer(std::size_t bytes) override {
        std::unique_ptr<CudaBuffer> made = allocate(shared_, bytes);
        shared_->copied("clear memory", shared_->cuda.clear(made->at(), 0, bytes, shared_->copies));
        return made;
    }

    std::unique_ptr<DeviceBuffer> buffer_over(std::span<const std::byte>) override { return nullptr; }

    void read(const DeviceBuffer &from, std::size_t offset, std::span<std::byte> to) override {
        const Cuda &cuda = shared_->here();
        shared_->copied("read memory",
                        cuda.to_host(to.data(), of_cuda(from).at() + offset, to.size(), shared_->copies));
    }

    void write(DeviceBuffer &to, std::size_t offset, std::span<const std::byte> from) override {
        const Cuda &cuda = shared_->here();
        shared_->copied("write memory",
                        cuda.to_device(of_cuda(to).at() + offset, from.data(), from.size(), shared_->copies));
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

    void set_constant(const Cuda &cuda, Handle module, const Constant &constant) const {
        const std::uint8_t defined = 1;
        const std::pair<std::string, std::pair<const void *, std::size_t>> variables[] = {
            {"__msl_fc_" + std::to_string(constant.index), {&constant.value, sizeof constant.value}},
            {"__msl_fcd_" + std::to_string(constant.index), {&defined, sizeof defined}}};
        for (const auto &[name, content] : variables) {
            Pointer at = 0;
            std::size_t bytes = 0;
            if (cuda.global(&at, &bytes, module, name.c_str()) == 0) { // optimised away where nothing reads it
                shared_->copied("set a constant",
                                cuda.to_device(at, content.first, std::min(bytes, content.second), shared_->copies));
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
