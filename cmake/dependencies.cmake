# Finds the libraries that Trireme links. Also installed: the CMake package uses it for the static library.
# Everything is looked for by header and library name, so that any prefix in CMAKE_PREFIX_PATH will do.

function(trireme_find_library name header library package)
    find_path(TRIREME_${name}_INCLUDE ${header})
    find_library(TRIREME_${name}_LIBRARY ${library})
    mark_as_advanced(TRIREME_${name}_INCLUDE TRIREME_${name}_LIBRARY)
    if(NOT TRIREME_${name}_INCLUDE OR NOT TRIREME_${name}_LIBRARY)
        message(FATAL_ERROR "${name} was not found: install the Debian package ${package}, "
            "or name its prefix with `make PREFIX_PATH=/prefix` (CMAKE_PREFIX_PATH)")
    endif()
    if(NOT TARGET trireme::${name})
        add_library(trireme::${name} UNKNOWN IMPORTED)
        set_target_properties(trireme::${name} PROPERTIES
            IMPORTED_LOCATION ${TRIREME_${name}_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${TRIREME_${name}_INCLUDE})
    endif()
endfunction()

macro(trireme_find_dependencies)
    trireme_find_library(dnnl oneapi/dnnl/dnnl.h dnnl libdnnl-dev)
    trireme_find_library(yaml yaml.h yaml libyaml-dev)
    trireme_find_library(jansson jansson.h jansson libjansson-dev)
    trireme_find_library(sodium sodium.h sodium libsodium-dev)
    find_package(OpenMP QUIET COMPONENTS C)
    if(NOT OpenMP_C_FOUND)
        message(FATAL_ERROR "OpenMP was not found: with clang, install the Debian package libomp-dev")
    endif()
    set(THREADS_PREFER_PTHREAD_FLAG ON)
    find_package(Threads REQUIRED)
    # The OpenMP target itself would compile every file with -fopenmp; only the fast kernels want that.
    set(TRIREME_DEPENDENCIES trireme::dnnl trireme::yaml trireme::jansson trireme::sodium
        ${OpenMP_C_LIBRARIES} Threads::Threads m)
endmacro()
