# One program bench_NAME per bench/NAME.c, built on demand: `cmake --build build --target bench_kernels`.
# oneDNN, where it is installed, is timed beside our matrix products; nothing else uses it.
find_path(TRIREME_dnnl_INCLUDE oneapi/dnnl/dnnl.h)
find_library(TRIREME_dnnl_LIBRARY dnnl)
mark_as_advanced(TRIREME_dnnl_INCLUDE TRIREME_dnnl_LIBRARY)

file(GLOB bench_sources CONFIGURE_DEPENDS bench/*.c)
foreach(source ${bench_sources})
    get_filename_component(name ${source} NAME_WE)
    add_executable(bench_${name} EXCLUDE_FROM_ALL ${source} $<TARGET_OBJECTS:trireme_objects>)
    target_link_libraries(bench_${name} PRIVATE trireme_flags)
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${OpenMP_C_FLAGS}")
    set_target_properties(bench_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/bench)
endforeach()
if(TARGET bench_kernels AND TRIREME_dnnl_INCLUDE AND TRIREME_dnnl_LIBRARY)
    target_compile_definitions(bench_kernels PRIVATE BENCH_ONEDNN)
    target_include_directories(bench_kernels PRIVATE ${TRIREME_dnnl_INCLUDE})
    target_link_libraries(bench_kernels PRIVATE ${TRIREME_dnnl_LIBRARY})
endif()
