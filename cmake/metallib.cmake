# Compiles the kernels to one lily.metallib beside their sources in the package, where Xcode has the Metal compiler. Where
# it does not (the command line tools alone lack it, and newer Xcodes have it as a component of its own, and until then a
# command that only says so), the driver compiles the sources when a device is opened.
execute_process(COMMAND xcrun -sdk macosx metal --version RESULT_VARIABLE missing OUTPUT_QUIET ERROR_QUIET)
if(missing)
  message(STATUS "No Metal compiler: kernels will be compiled when a device is opened")
  return()
endif()

file(GLOB kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/metal/*.metal)
file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/metal/*.h)
set(library ${PROJECT_BINARY_DIR}/lily.metallib)
foreach(kernel ${kernels})
  get_filename_component(name ${kernel} NAME_WE)
  set(object ${PROJECT_BINARY_DIR}/${name}.air)
  add_custom_command(OUTPUT ${object} DEPENDS ${kernel} ${headers}
    COMMAND xcrun -sdk macosx metal -std=metal3.1 -mmacosx-version-min=14.0 -O3 -fno-fast-math -Wall -Wextra
            -c ${kernel} -o ${object})
  list(APPEND objects ${object})
endforeach()
add_custom_command(OUTPUT ${library} DEPENDS ${objects}
  COMMAND xcrun -sdk macosx metallib ${objects} -o ${library})
add_custom_target(metallib ALL DEPENDS ${library})
install(FILES ${library} DESTINATION lily/_metal)
