// A ".metallib" of the stand-in is a text: the path of the executor, then of each module, one a line.
// LILY_STANDIN_COMPILER is the command that makes one of a text of kernels. An archive is the names of its pipelines.

#include "pipelines.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include <dlfcn.h>

Executor executor;

void require(bool condition, const char *message) {
    if (!condition) {
        std::fprintf(stderr, "Metal validation: %s\n", message);
        std::abort();
    }
}

namespace {

constexpr const char *kArchive = "archive of the stand-in";

bool open_executor(const std::string &path) {
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
        return false;
    }
    executor.load = reinterpret_cast<decltype(&msl_load)>(dlsym(library, "msl_load"));
    executor.get = reinterpret_cast<decltype(&msl_get)>(dlsym(library, "msl_get"));
    executor.info = reinterpret_cast<decltype(&msl_info)>(dlsym(library, "msl_info"));
    executor.dispatch = reinterpret_cast<decltype(&msl_dispatch)>(dlsym(library, "msl_dispatch"));
    executor.error = reinterpret_cast<decltype(&msl_error)>(dlsym(library, "msl_error"));
    return true;
}

} // namespace

@interface MTLFunctionConstantValues () {
  @public
    std::map<NSUInteger, std::uint32_t> values;
}
@end
@implementation MTLFunctionConstantValues
- (void)setConstantValue:(const void *)value type:(MTLDataType)type atIndex:(NSUInteger)index {
    require(type == MTLDataTypeUInt, "a function constant of another type than uint");
    std::memcpy(&values[index], value, sizeof values[index]);
}
@end

@implementation MTLCompileOptions
@end

@implementation MTLComputePipelineDescriptor
@end

@implementation MTLBinaryArchiveDescriptor
@end

@implementation StandinFunction
@end

@interface StandinLibrary : NSObject <MTLLibrary> {
  @public
    std::vector<msl_module *> modules;
}
@end
@implementation StandinLibrary
- (id<MTLFunction>)newFunctionWithName:(NSString *)name
                        constantValues:(MTLFunctionConstantValues *)values
                                 error:(NSError **)error {
    for (msl_module *module : modules) {
        if (msl_kernel *kernel = executor.get(module, name.UTF8String)) {
            StandinFunction *function = [StandinFunction new];
            function->kernel = kernel;
            function->constants = values->values;
            function->name = name.UTF8String;
            for (const auto &[index, value] : values->values) {
                function->name += " " + std::to_string(index) + "=" + std::to_string(value);
            }
            return function;
        }
    }
    *error = [NSError errorWithText:executor.error()];
    return nil;
}
@end

@interface StandinArchive : NSObject <MTLBinaryArchive> {
  @public
    std::set<std::string> names;
}
@end
@implementation StandinArchive
- (BOOL)addComputePipelineFunctionsWithDescriptor:(MTLComputePipelineDescriptor *)descriptor error:(NSError **)error {
    names.insert(((StandinFunction *)descriptor.computeFunction)->name);
    return YES;
}
- (BOOL)serializeToURL:(NSURL *)url error:(NSError **)error {
    std::ofstream file(url.path.UTF8String);
    file << kArchive << '\n';
    for (const std::string &name : names) {
        file << name << '\n';
    }
    if (!file.flush()) {
        *error = [NSError errorWithText:"the archive cannot be written"];
        return NO;
    }
    return YES;
}
@end

@implementation StandinPipeline
- (NSUInteger)maxTotalThreadsPerThreadgroup {
    const int most = executor.info(function->kernel)->max_threads;
    return most == 0 ? 1024 : (NSUInteger)most;
}
@end

id<MTLLibrary> open_library(const std::string &path, NSError **error) {
    std::ifstream list(path);
    std::string line;
    StandinLibrary *library = [StandinLibrary new];
    if (!std::getline(list, line) || !open_executor(line)) {
        *error = [NSError errorWithText:"no executor in the library"];
        return nil;
    }
    while (std::getline(list, line)) {
        library->modules.push_back(executor.load(line.c_str()));
        if (library->modules.back() == nullptr) {
            *error = [NSError errorWithText:executor.error()];
            return nil;
        }
    }
    return library;
}

id<MTLLibrary> compile_library(const std::string &text, NSError **error) {
    const char *compiler = std::getenv("LILY_STANDIN_COMPILER");
    std::string folder = (std::filesystem::temp_directory_path() / "standin-XXXXXX").string();
    require(compiler != nullptr && mkdtemp(folder.data()) != nullptr, "no compiler, or no room for its files");
    const std::string source = folder + "/kernels.metal", library = source + "lib";
    std::ofstream(source) << text;
    id<MTLLibrary> made = nil;
    if (std::system((compiler + (" " + source + " " + library)).c_str()) == 0) {
        made = open_library(library, error);
    } else {
        *error = [NSError errorWithText:"the compiler of the stand-in refuses the text"];
    }
    std::filesystem::remove_all(folder);
    return made;
}

id<MTLBinaryArchive> open_archive(NSURL *url, NSError **error) {
    StandinArchive *archive = [StandinArchive new];
    if (url != nil) {
        std::ifstream file(url.path.UTF8String);
        std::string line;
        if (!std::getline(file, line) || line != kArchive) {
            return nil;
        }
        while (std::getline(file, line)) {
            archive->names.insert(line);
        }
    }
    return archive;
}

bool archived(MTLComputePipelineDescriptor *descriptor) {
    StandinArchive *archive = descriptor.binaryArchives.firstObject;
    return archive->names.count(((StandinFunction *)descriptor.computeFunction)->name) == 1;
}
