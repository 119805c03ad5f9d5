# One libFuzzer program per fuzz/fuzz_NAME.c, in the build directory's fuzz/. `make fuzz` runs each of them.
if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "fuzz targets need clang: use `cmake --preset fuzz` (Debian package clang)")
endif()
# Targets parse and compute nothing.
file(GLOB kernel_sources src/kernels/cpu/*.c src/kernels/ref/*.c)
set_property(SOURCE ${kernel_sources} APPEND PROPERTY COMPILE_OPTIONS -O0 -fno-sanitize=all)
file(GLOB fuzz_sources CONFIGURE_DEPENDS fuzz/fuzz_*.c)
foreach(source ${fuzz_sources})
    get_filename_component(target ${source} NAME_WE)
    add_executable(${target} ${source} $<TARGET_OBJECTS:trireme_objects>)
    target_link_libraries(${target} PRIVATE trireme_flags)
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS -Wno-missing-prototypes) # after those of all
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fuzz)
endforeach()
