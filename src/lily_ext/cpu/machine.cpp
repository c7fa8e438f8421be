// Reads the limits of this process. Every file may be missing: then that limit is not there.

#include "machine.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "../backend.h"
#include "../error.h"

#if defined(__linux__)
#include <sched.h>
#elif defined(__APPLE__)
#include <mach/mach.h>
#include <unistd.h>
#endif

namespace lily::cpu {

#if defined(__linux__)

namespace {

std::optional<std::string> first_word(const std::string &path) {
    std::ifstream file(path);
    std::string word;
    if (file >> word) {
        return word;
    }
    return std::nullopt;
}

std::optional<double> number(const std::string &path) {
    const std::optional<std::string> word = first_word(path);
    if (!word || word->find_first_not_of("0123456789") != std::string::npos) {
        return std::nullopt; // "max", or -1 in version 1: no limit
    }
    return std::stod(*word);
}

// Whether a name is among names separated by commas.
bool lists(const std::string &names, const std::string &name) {
    std::istringstream rest(names);
    std::string one;
    while (std::getline(rest, one, ',')) {
        if (one == name) {
            return true;
        }
    }
    return false;
}

// The folders of this process's control group, from its own up to the root, for one controller of version 1 or for
// version 2 (controller ""). A container often sees its own group as the root, so the mount point comes last.
template <typename Visit> void each_group(const std::string &controller, const Visit &visit) {
    std::ifstream file("/proc/self/cgroup");
    std::string line;
    const std::string mount = controller.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controller;
    while (std::getline(file, line)) {
        const std::size_t first = line.find(':');
        const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos) {
            continue;
        }
        const std::string names = line.substr(first + 1, second - first - 1);
        if (controller.empty() ? !names.empty() : !lists(names, controller)) {
            continue;
        }
        for (std::string path = line.substr(second + 1); path.size() > 1; path.erase(path.rfind('/'))) {
            visit(mount + path);
        }
    }
    visit(mount);
}

double quota_cpus() {
    double cpus = std::numeric_limits<double>::infinity();
    each_group("", [&cpus](const std::string &group) {
        std::ifstream file(group + "/cpu.max");
        std::string quota;
        double period = 0;
        if (file >> quota >> period && quota != "max" && period > 0) {
            cpus = std::min(cpus, std::stod(quota) / period);
        }
    });
    each_group("cpu", [&cpus](const std::string &group) {
        const std::optional<double> quota = number(group + "/cpu.cfs_quota_us");
        const std::optional<double> period = number(group + "/cpu.cfs_period_us");
        if (quota && period && *period > 0) {
            cpus = std::min(cpus, *quota / *period);
        }
    });
    return cpus;
}

double system_memory() {
    std::ifstream file("/proc/meminfo");
    std::string key;
    double kib = 0;
    std::string unit;
    while (file >> key >> kib) {
        std::getline(file, unit);
        if (key == "MemAvailable:") {
            return kib * 1024;
        }
    }
    return std::numeric_limits<double>::infinity();
}

double group_memory() {
    double bytes = std::numeric_limits<double>::infinity();
    each_group("", [&bytes](const std::string &group) {
        const std::optional<double> limit = number(group + "/memory.max");
        const std::optional<double> used = number(group + "/memory.current");
        if (limit && used) {
            // Page cache counts as used but is given back under pressure; the mapped weights sit there.
            double cache = 0;
            std::ifstream file(group + "/memory.stat");
            std::string key;
            double value = 0;
            while (file >> key >> value) {
                if (key == "file") {
                    cache = value;
                }
            }
            bytes = std::min(bytes, *limit - *used + cache);
        }
    });
    return bytes;
}

} // namespace

int usable_cpus() {
    int cpus = static_cast<int>(std::thread::hardware_concurrency());
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) == 0) {
        cpus = CPU_COUNT(&mask);
    }
    return std::max(1, static_cast<int>(std::ceil(std::min(static_cast<double>(cpus), quota_cpus()))));
}

std::int64_t available_memory() {
    const double bytes = std::min(system_memory(), group_memory());
    return bytes < 9e18 ? static_cast<std::int64_t>(bytes) : std::numeric_limits<std::int64_t>::max();
}

#elif defined(__APPLE__)

int usable_cpus() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

std::int64_t available_memory() {
    vm_statistics64_data_t statistics;
    mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
    if (host_statistics64(mach_host_self(), HOST_VM_INFO64, reinterpret_cast<host_info64_t>(&statistics), &count) !=
        KERN_SUCCESS) {
        return std::numeric_limits<std::int64_t>::max();
    }
    const std::int64_t pages = static_cast<std::int64_t>(statistics.free_count) + statistics.inactive_count +
                               statistics.purgeable_count + statistics.speculative_count;
    return pages * static_cast<std::int64_t>(sysconf(_SC_PAGESIZE));
}

#endif

int count_threads(int threads) {
    if (threads < 0 || threads > kMaxThreads) {
        throw Error(ErrorKind::invalid_input, "threads is " + std::to_string(threads) + ", expected 1 to " +
                                                  std::to_string(kMaxThreads) + ", or 0 for one a usable processor");
    }
    return threads == 0 ? usable_cpus() : threads;
}

} // namespace lily::cpu
