# Builds apple.mm against the stand-in, as a part of lily_core, on x86-64 Linux. Only clang has Objective-C with ARC for
# Apple's ABI; the rest is built by whatever builds lily.
find_program(LILY_OBJECTIVE_C NAMES clang++-22 clang++ REQUIRED)

function(lily_add_objective_c source)
  get_filename_component(name ${source} NAME)
  set(object ${PROJECT_BINARY_DIR}/${name}.o)
  add_custom_command(
    OUTPUT ${object}
    DEPENDS ${source}
    DEPFILE ${object}.d
    VERBATIM
    COMMAND ${LILY_OBJECTIVE_C} -std=c++20 -O1 -g -fPIC -fvisibility=hidden -xobjective-c++
            -fobjc-runtime=macosx-10.15 -Wall -Wextra -Wno-unused-parameter -Wno-unguarded-availability-new ${ARGN}
            -I${PROJECT_SOURCE_DIR}/tests/apple/include -I${PROJECT_SOURCE_DIR}/metal -MD -MF ${object}.d
            -c ${source} -o ${object})
  target_sources(lily_core PRIVATE ${object})
endfunction()

lily_add_objective_c(${PROJECT_SOURCE_DIR}/src/lily_ext/metal/apple.mm -fobjc-arc)
lily_add_objective_c(${CMAKE_CURRENT_LIST_DIR}/metal.mm -fobjc-arc)
lily_add_objective_c(${CMAKE_CURRENT_LIST_DIR}/pipelines.mm -fobjc-arc)
lily_add_objective_c(${CMAKE_CURRENT_LIST_DIR}/foundation.mm)
target_sources(lily_core PRIVATE ${CMAKE_CURRENT_LIST_DIR}/runtime.cpp)
