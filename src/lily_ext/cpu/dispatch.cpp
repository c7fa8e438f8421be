// Chooses the kernels: the best instruction set that this build has, this processor offers and this system saves.

#include <cstdlib>
#include <string>

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "../error.h"
#include "kernels.h"

namespace lily::cpu {

#if defined(LILY_HAVE_avx512bf16)
namespace avx512bf16 {
extern const Kernels kernels;
}
#endif
#if defined(LILY_HAVE_avx512)
namespace avx512 {
extern const Kernels kernels;
}
#endif
#if defined(LILY_HAVE_avx2)
namespace avx2 {
extern const Kernels kernels;
}
#endif
#if defined(LILY_HAVE_neondot)
namespace neondot {
extern const Kernels kernels;
}
#endif
#if defined(LILY_HAVE_neon)
namespace neon {
extern const Kernels kernels;
}
#endif

namespace {

constexpr int kMost = 3;

#if defined(LILY_HAVE_neondot)
bool has_dot_product() {
#if defined(__linux__)
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
    return true; // every Mac with such a processor has it
#endif
}
#endif

struct Available {
    const Kernels *sets[kMost];
    int count = 0;

    Available() {
#if defined(__x86_64__)
        // These builtins ask the processor and whether the system saves the wide registers.
        __builtin_cpu_init();
        [[maybe_unused]] const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
        [[maybe_unused]] const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                                             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                                             __builtin_cpu_supports("avx512vl");
#endif
#if defined(LILY_HAVE_avx512bf16)
        if (avx512 && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni")) {
            sets[count++] = &avx512bf16::kernels;
        }
#endif
#if defined(LILY_HAVE_avx512)
        if (avx512) {
            sets[count++] = &avx512::kernels;
        }
#endif
#if defined(LILY_HAVE_avx2)
        if (avx2) {
            sets[count++] = &avx2::kernels;
        }
#endif
#if defined(LILY_HAVE_neondot)
        if (has_dot_product()) {
            sets[count++] = &neondot::kernels;
        }
#endif
#if defined(LILY_HAVE_neon)
        sets[count++] = &neon::kernels;
#endif
    }
};

const Available &available() {
    static const Available found;
    return found;
}

} // namespace

const Kernels *const *available_kernels(int *count) {
    *count = available().count;
    return available().sets;
}

const Kernels &choose_kernels(const char *isa) {
    const char *environment = std::getenv("LILY_ISA");
    const bool from_environment = *isa == '\0' && environment != nullptr;
    const std::string wanted = from_environment ? environment : isa;
    std::string known;
    for (int i = 0; i < available().count; ++i) {
        const Kernels &set = *available().sets[i];
        if (wanted.empty() || wanted == set.isa) {
            return set;
        }
        known += (known.empty() ? "" : ", ") + std::string(set.isa);
    }
    throw Error(ErrorKind::device, known.empty()
                                       ? "this processor has none of the instruction sets that lily has kernels for "
                                         "(AVX2 with FMA on x86-64, NEON on arm64)"
                                       : "the instruction set '" + wanted + "'" +
                                             (from_environment ? " of LILY_ISA in the environment" : "") +
                                             " is not available here, expected one of: " + known);
}

} // namespace lily::cpu
