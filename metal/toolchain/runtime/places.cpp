// See places.h. Asks addr2line of binutils, which is where a linker is.
#include "places.h"
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace checker {

Module::Module(const char *path) {
    char real[PATH_MAX];
    path_ = realpath(path, real) ? real : path;
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps) {
        return;
    }
    char line[PATH_MAX + 100];
    while (fgets(line, sizeof line, maps)) {
        unsigned long low, high;
        if (strstr(line, path_.c_str()) && sscanf(line, "%lx-%lx", &low, &high) == 2) {
            low_ = low_ ? low_ : low;
            high_ = high + 65536; // what the loader zeroes behind the file's data
        }
    }
    fclose(maps);
}

std::string Module::place(const void *return_address) const {
    const uintptr_t address = reinterpret_cast<uintptr_t>(return_address);
    if (!holds(address)) {
        return "?";
    }
    char command[PATH_MAX + 100], line[PATH_MAX + 100];
    snprintf(command, sizeof command, "addr2line -i -e '%s' 0x%lx 2>/dev/null", path_.c_str(),
             static_cast<unsigned long>(address - 1 - low_));
    FILE *output = popen(command, "r");
    if (!output) {
        return "?";
    }
    std::string found;
    while (fgets(line, sizeof line, output)) {
        line[strcspn(line, " \n")] = 0; // a discriminator may follow
        const char *name = strrchr(line, '/');
        name = name ? name + 1 : line;
        // The frames of the compat library and of the entry functions say nothing to the author of a kernel.
        if (strstr(line, "/compat/msl/") || strchr(name, '<') || strchr(name, '?')) {
            continue;
        }
        found += (found.empty() ? "" : " < ") + std::string(name);
    }
    pclose(output);
    return found.empty() ? "?" : found;
}

} // namespace checker
