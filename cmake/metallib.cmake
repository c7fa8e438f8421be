# Compiles the kernels to one lily.metallib beside their sources in the package, where Xcode has the Metal compiler, and
# those that need Metal 4 to lily_metal4.metallib, where the SDK has it too. Where there is no compiler (the command line
# tools alone lack it, and newer Xcodes have it as a component of its own, and until then a command that only says so), the
# driver compiles the sources when a device is opened.
execute_process(COMMAND xcrun -sdk macosx metal --version RESULT_VARIABLE missing OUTPUT_QUIET ERROR_QUIET)
if(missing)
  message(STATUS "No Metal compiler: kernels will be compiled when a device is opened")
  return()
endif()

file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/metal/*.h)

function(lily_add_metallib name language oldest)
  set(library ${PROJECT_BINARY_DIR}/${name}.metallib)
  foreach(kernel ${ARGN})
    get_filename_component(stem ${kernel} NAME_WE)
    set(object ${PROJECT_BINARY_DIR}/${stem}.air)
    add_custom_command(OUTPUT ${object} DEPENDS ${kernel} ${headers}
      COMMAND xcrun -sdk macosx metal -std=${language} -mmacosx-version-min=${oldest} -O3 -fno-fast-math -Wall -Wextra
              -c ${kernel} -o ${object})
    list(APPEND objects ${object})
  endforeach()
  add_custom_command(OUTPUT ${library} DEPENDS ${objects}
    COMMAND xcrun -sdk macosx metallib ${objects} -o ${library})
  add_custom_target(${name}_metallib ALL DEPENDS ${library})
  install(FILES ${library} DESTINATION lily/_metal)
endfunction()

file(GLOB kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/metal/*.metal)
set(metal4_kernels ${kernels})
list(FILTER metal4_kernels INCLUDE REGEX "_metal4\\.metal$")
list(FILTER kernels EXCLUDE REGEX "_metal4\\.metal$")
lily_add_metallib(lily metal3.1 14.0 ${kernels})

execute_process(COMMAND xcrun -sdk macosx --show-sdk-version OUTPUT_VARIABLE sdk OUTPUT_STRIP_TRAILING_WHITESPACE)
if(sdk VERSION_GREATER_EQUAL 26.2) # the oldest system on which apple.mm loads them
  lily_add_metallib(lily_metal4 metal4.0 26.2 ${metal4_kernels})
else()
  message(STATUS "The SDK is that of macOS ${sdk}, not 26.2: an M5 gets no kernels of its own")
endif()
