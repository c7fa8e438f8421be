// The host driver: kernels compiled for the CPU, run by the executor, a library that is loaded when the device is opened.
// A command buffer is a list of launches; commit runs it before it returns. Between two barriers the launches run in the
// order of the device, so that a missing barrier shows. Not a fast device, and not meant to be one.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <utility>

#include <dlfcn.h>
#include <sys/mman.h>

#include "../error.h"
#include "drivers.h"
#include "toolchain/runtime/exec.h"

namespace lily::metal {

namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 40; // the system says earlier when memory is short
constexpr std::uint32_t kThreadgroupBytes = 32768;       // of every Apple GPU

[[noreturn]] void fail(const std::string &message) { throw Error(ErrorKind::device, message); }

// The executor's functions. Settings and function constants are global in it, so one launch runs at a time.
class Executor {
  public:
    explicit Executor(const std::string &path) {
        // Global: the modules of kernels take their collectives and barriers from it.
        library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
        if (library_ == nullptr) {
            fail("the executor of metal:host cannot be loaded: " + std::string(dlerror()));
        }
        load = function<decltype(&msl_load)>("msl_load");
        get = function<decltype(&msl_get)>("msl_get");
        info = function<decltype(&msl_info)>("msl_info");
        set = function<decltype(&msl_set)>("msl_set");
        dispatch = function<decltype(&msl_dispatch)>("msl_dispatch");
        touched = function<decltype(&msl_get_touched)>("msl_get_touched");
        error = function<decltype(&msl_error)>("msl_error");
    }

    decltype(&msl_load) load;
    decltype(&msl_get) get;
    decltype(&msl_info) info;
    decltype(&msl_set) set;
    decltype(&msl_dispatch) dispatch;
    decltype(&msl_get_touched) touched;
    decltype(&msl_error) error;

    static std::mutex &mutex() {
        static std::mutex one;
        return one;
    }

  private:
    template <typename Function> Function function(const char *name) {
        void *address = dlsym(library_, name);
        if (address == nullptr) {
            fail(std::string("the executor of metal:host has no function ") + name + "; build it again");
        }
        return reinterpret_cast<Function>(address);
    }

    void *library_ = nullptr; // stays loaded: modules refer to it
};

class HostBuffer final : public DeviceBuffer {
  public:
    HostBuffer(std::byte *data, std::size_t bytes, std::atomic<std::size_t> *allocated)
        : DeviceBuffer(bytes), data_(data), allocated_(allocated) {
        if (allocated_ != nullptr) {
            *allocated_ += bytes;
        }
    }
    ~HostBuffer() override {
        if (allocated_ != nullptr) { // null over memory of somebody else
            *allocated_ -= bytes();
            munmap(data_, bytes());
        }
    }
    std::byte *data() const { return data_; }

  private:
    std::byte *data_;
    std::atomic<std::size_t> *allocated_;
};

const HostBuffer &of_host(const DeviceBuffer &buffer) {
    const auto *host = dynamic_cast<const HostBuffer *>(&buffer);
    if (host == nullptr) {
        fail("a buffer of another device was given to metal:host");
    }
    return *host;
}

struct HostPipeline final : public Pipeline {
    HostPipeline(msl_kernel *made, const msl_kinfo *about, std::span<const Constant> values)
        : kernel(made), info(about), constants(values.begin(), values.end()) {}

    msl_kernel *kernel;
    const msl_kinfo *info;
    std::vector<Constant> constants;
};

struct Launch {
    const HostPipeline *pipeline = nullptr;
    msl_launch work{};
    std::vector<std::vector<std::byte>> bytes; // what set_bytes copied, one for each index
    const std::byte *indirect = nullptr;
    std::uint32_t level = 0; // barriers before it
};

struct Settings {
    long order = 0; // 0 as encoded, 1 reverse, more: the seed of a random one
    long workers = 1;
};

class HostCommands final : public CommandBuffer {
  public:
    HostCommands(const Executor &executor, const Settings &settings, std::vector<Touches> *touches)
        : executor_(executor), settings_(settings), touches_(touches) {
        next_.bytes.resize(std::size(next_.work.buf));
    }

    void set_pipeline(const Pipeline &pipeline) override {
        next_.pipeline = dynamic_cast<const HostPipeline *>(&pipeline);
    }

    void set_buffer(std::uint32_t index, const DeviceBuffer &buffer, std::size_t offset, std::size_t bytes,
                    Access access) override {
        next_.bytes[index].clear();
        next_.work.buf[index] = of_host(buffer).data() + offset;
        next_.work.len[index] = bytes;
        access_[index] = access;
    }

    void set_bytes(std::uint32_t index, const void *data, std::size_t bytes) override {
        const auto *from = static_cast<const std::byte *>(data);
        next_.bytes[index].assign(from, from + bytes);
        access_[index] = Access::read;
    }

    void set_threadgroup_memory(std::uint32_t index, std::uint32_t bytes) override { next_.work.tgmem[index] = bytes; }

    void dispatch(Size groups, Size threads) override {
        set(next_.work.grid, groups);
        next_.indirect = nullptr;
        add(threads);
    }

    void dispatch_indirect(const DeviceBuffer &groups, std::size_t offset, Size threads) override {
        next_.indirect = of_host(groups).data() + offset;
        add(threads);
    }

    void barrier() override { ++next_.level; }

    void commit() override {
        const std::lock_guard lock(Executor::mutex());
        executor_.set("order", settings_.order);
        executor_.set("workers", settings_.workers);
        for (auto first = launches_.begin(); first != launches_.end() && failure_.empty();) {
            const auto last = std::find_if(first, launches_.end(),
                                           [&](const Launch &launch) { return launch.level != first->level; });
            if (settings_.order == 1) {
                std::reverse(first, last);
            } else if (settings_.order > 1) {
                std::shuffle(first, last, std::minstd_rand(static_cast<std::uint32_t>(settings_.order)));
            }
            for (; first != last && failure_.empty(); ++first) {
                run(*first);
            }
            first = last;
        }
        launches_.clear();
    }

    void wait() override {
        if (!failure_.empty()) {
            fail(failure_);
        }
    }

  private:
    static void set(std::uint32_t (&to)[3], Size size) {
        to[0] = size.x;
        to[1] = size.y;
        to[2] = size.z;
    }

    void add(Size threads) {
        set(next_.work.tptg, threads);
        const HostPipeline &pipeline = *next_.pipeline;
        for (int i = 0; i < pipeline.info->nargs; ++i) {
            const msl_arg &argument = pipeline.info->args[i];
            if (argument.kind == 0 && argument.writable && access_[argument.index] == Access::read) {
                fail(std::string("the kernel ") + pipeline.info->name + " may write buffer " +
                     std::to_string(argument.index) + " (" + argument.name +
                     "), which was bound for reading; bind it with write or update, or make it const");
            }
        }
        launches_.push_back(next_);
    }

    void run(Launch &launch) {
        if (launch.indirect != nullptr) {
            std::memcpy(launch.work.grid, launch.indirect, sizeof launch.work.grid);
            if (launch.work.grid[0] == 0 || launch.work.grid[1] == 0 || launch.work.grid[2] == 0) {
                return;
            }
        }
        for (std::size_t i = 0; i < launch.bytes.size(); ++i) {
            if (!launch.bytes[i].empty()) {
                launch.work.buf[i] = launch.bytes[i].data();
                launch.work.len[i] = launch.bytes[i].size();
            }
        }
        launch.work.nfc = 0;
        for (const Constant &constant : launch.pipeline->constants) {
            auto &slot = launch.work.fc[launch.work.nfc++];
            slot.index = static_cast<int>(constant.index);
            slot.size = sizeof constant.value;
            std::memcpy(slot.v, &constant.value, sizeof constant.value);
        }
        if (executor_.dispatch(launch.pipeline->kernel, &launch.work) != 0) {
            failure_ = executor_.error();
        } else if (touches_ != nullptr) {
            touches_->push_back(touches(launch));
        }
    }

    // Of each buffer; what set_bytes copied is none.
    Touches touches(const Launch &launch) const {
        Touches all;
        for (std::size_t i = 0; i < launch.bytes.size() && launch.bytes[i].empty(); ++i) {
            msl_touched touched{};
            executor_.touched(static_cast<int>(i), &touched);
            all.push_back({reinterpret_cast<std::uintptr_t>(launch.work.buf[i]), launch.work.len[i],
                           touched.unique_read, touched.unique_written, touched.loaded});
        }
        return all;
    }

    const Executor &executor_;
    Settings settings_;
    std::vector<Touches> *touches_;
    Launch next_;
    Access access_[std::extent_v<decltype(msl_launch::buf)>] = {};
    std::deque<Launch> launches_;
    std::string failure_;
};

class HostDevice final : public Device {
  public:
    HostDevice(const std::vector<std::string> &kernels, const Settings &settings, std::string name,
               std::vector<Touches> *touches)
        : executor_(kernels[0]), settings_(settings), name_(std::move(name)), touches_(touches),
          tensor_units_(std::any_of(kernels.begin(), kernels.end(), needs_metal4)) {
        for (std::size_t i = 1; i < kernels.size(); ++i) {
            modules_.push_back(executor_.load(kernels[i].c_str()));
            if (modules_.back() == nullptr) {
                fail("the kernels of metal:host cannot be loaded: " + std::string(executor_.error()));
            }
        }
    }

    std::string kind() const override { return "metal:host"; }
    std::string name() const override { return name_; }
    DeviceLimits limits() const override { return {kMostBytes, kMostBytes, kThreadgroupBytes, tensor_units_}; }
    std::size_t allocated() const override { return allocated_; }

    std::unique_ptr<DeviceBuffer> buffer(std::size_t bytes) override {
        void *data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data == MAP_FAILED) {
            throw Error(ErrorKind::out_of_memory,
                        std::to_string(bytes) + " bytes are needed, and the system does not have them");
        }
        return std::make_unique<HostBuffer>(static_cast<std::byte *>(data), bytes, &allocated_);
    }

    std::unique_ptr<DeviceBuffer> buffer_over(std::span<const std::byte> memory) override {
        // As Metal: only from the start of a page.
        if (reinterpret_cast<std::uintptr_t>(memory.data()) % 4096 != 0) {
            return nullptr;
        }
        return std::make_unique<HostBuffer>(const_cast<std::byte *>(memory.data()), memory.size(), nullptr);
    }

    void read(const DeviceBuffer &from, std::size_t offset, std::span<std::byte> to) override {
        std::memcpy(to.data(), of_host(from).data() + offset, to.size());
    }

    void write(DeviceBuffer &to, std::size_t offset, std::span<const std::byte> from) override {
        std::memcpy(of_host(to).data() + offset, from.data(), from.size());
    }

    std::unique_ptr<Pipeline> pipeline(const std::string &kernel, std::span<const Constant> constants) override {
        for (msl_module *module : modules_) {
            if (msl_kernel *found = executor_.get(module, kernel.c_str())) {
                return std::make_unique<HostPipeline>(found, executor_.info(found), constants);
            }
        }
        fail("there is no kernel " + kernel + " among those of metal:host");
    }

    std::unique_ptr<CommandBuffer> commands() override {
        return std::make_unique<HostCommands>(executor_, settings_, touches_);
    }

  private:
    Executor executor_;
    Settings settings_;
    std::string name_;
    std::vector<Touches> *touches_;
    bool tensor_units_;
    std::vector<msl_module *> modules_; // of the process: never unloaded
    std::atomic<std::size_t> allocated_{0};
};

} // namespace

std::unique_ptr<Device> open_host(const std::vector<std::string> &kernels, const std::string &order, int threads,
                                  std::vector<Touches> *touches) {
    if (kernels.size() < 2) {
        fail("metal:host got " + std::to_string(kernels.size()) +
             " files of kernels, expected the executor and at least one module");
    }
    constexpr long kSeed = 7;
    const std::pair<const char *, long> orders[] = {{"", 0}, {"reverse", 1}, {"random", kSeed}};
    for (const auto &[word, number] : orders) {
        if (order == word) {
            const std::string name = (order.empty() ? std::string() : order + " order, ") + std::to_string(threads) +
                                     (threads == 1 ? " thread" : " threads");
            return std::make_unique<HostDevice>(kernels, Settings{number, threads}, name, touches);
        }
    }
    fail("metal:host has no order '" + order + "', expected '', 'reverse' or 'random'");
}

} // namespace lily::metal
