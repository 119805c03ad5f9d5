# Finds the libraries that Trireme links. Also installed: the CMake package uses it for the static library.
# Everything is looked for by header and library name, so that any prefix in CMAKE_PREFIX_PATH will do.

# Defines the target trireme::NAME, or adds the Debian package that has it to TRIREME_MISSING.
function(trireme_find_library name header library package)
    # What was found under other prefixes is looked for again.
    if(DEFINED TRIREME_${name}_PREFIX AND NOT TRIREME_${name}_PREFIX STREQUAL "${CMAKE_PREFIX_PATH}")
        unset(TRIREME_${name}_INCLUDE CACHE)
        unset(TRIREME_${name}_LIBRARY CACHE)
    endif()
    set(TRIREME_${name}_PREFIX "${CMAKE_PREFIX_PATH}" CACHE INTERNAL "prefixes that ${name} was looked for in")
    find_path(TRIREME_${name}_INCLUDE ${header})
    find_library(TRIREME_${name}_LIBRARY ${library})
    mark_as_advanced(TRIREME_${name}_INCLUDE TRIREME_${name}_LIBRARY)
    if(NOT TRIREME_${name}_INCLUDE OR NOT TRIREME_${name}_LIBRARY)
        set(TRIREME_MISSING ${TRIREME_MISSING} ${package} PARENT_SCOPE)
        return()
    endif()
    if(NOT TARGET trireme::${name})
        add_library(trireme::${name} UNKNOWN IMPORTED)
        set_target_properties(trireme::${name} PROPERTIES
            IMPORTED_LOCATION ${TRIREME_${name}_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${TRIREME_${name}_INCLUDE})
    endif()
endfunction()

macro(trireme_refuse_missing)
    if(TRIREME_MISSING)
        list(JOIN TRIREME_MISSING " " missing)
        message(FATAL_ERROR "  missing Debian packages: ${missing} (or give their prefix: make PREFIX_PATH=/prefix)")
    endif()
endmacro()

macro(trireme_find_dependencies)
    trireme_find_library(yaml yaml.h yaml libyaml-dev)
    trireme_find_library(jansson jansson.h jansson libjansson-dev)
    trireme_find_library(sodium sodium.h sodium libsodium-dev)
    trireme_refuse_missing()
    set(THREADS_PREFER_PTHREAD_FLAG ON)
    find_package(Threads REQUIRED)
    set(TRIREME_DEPENDENCIES trireme::yaml trireme::jansson trireme::sodium Threads::Threads m)
endmacro()
