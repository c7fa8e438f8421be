// Kernels of the stand-in: what a pipeline is made of, and how libraries and archives are opened. See pipelines.mm.
#pragma once

#import <Metal/Metal.h>

#include <cstdint>
#include <map>
#include <string>

#include "toolchain/runtime/exec.h"

// Ends the process, as Metal's validation layer does.
void require(bool condition, const char *message);

struct Executor {
    decltype(&msl_load) load;
    decltype(&msl_get) get;
    decltype(&msl_info) info;
    decltype(&msl_dispatch) dispatch;
    decltype(&msl_error) error;
};
extern Executor executor; // of the last library

@interface StandinFunction : NSObject <MTLFunction> {
  @public
    std::string name; // with the constants
    msl_kernel *kernel;
    std::map<NSUInteger, std::uint32_t> constants;
}
@end

@interface StandinPipeline : NSObject <MTLComputePipelineState> {
  @public
    StandinFunction *function;
}
@end

id<MTLLibrary> open_library(const std::string &path, NSError **error);
id<MTLLibrary> compile_library(const std::string &text, NSError **error);
id<MTLBinaryArchive> open_archive(NSURL *url, NSError **error); // nil is a new one
bool archived(MTLComputePipelineDescriptor *descriptor);
