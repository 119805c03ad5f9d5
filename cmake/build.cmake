# What tells builds of one version apart: a hash of what the library is made of, wherever that lies, and the compiler.
# Appends a generated file, which defines what base/build.h declares, to the list named by `sources`.
function(trireme_identify sources)
    file(GLOB_RECURSE files CONFIGURE_DEPENDS src/*.c src/*.h src/*.def include/*.h)
    list(FILTER files EXCLUDE REGEX "/src/cli/")
    list(APPEND files ${PROJECT_SOURCE_DIR}/CMakeLists.txt ${PROJECT_SOURCE_DIR}/cmake/isa.cmake)
    string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
    set(compiler "${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}")
    set(flags "${CMAKE_C_FLAGS} ${CMAKE_C_FLAGS_${type}} ${TRIREME_SANITIZE} ${TRIREME_ISA_VARIANTS}")
    set(inputs ${CMAKE_CURRENT_BINARY_DIR}/build_inputs.cmake)
    set(content "")
    foreach(name files compiler flags PROJECT_SOURCE_DIR)
        string(APPEND content "set(${name} [[${${name}}]])\n")
    endforeach()
    file(CONFIGURE OUTPUT ${inputs} CONTENT "${content}" @ONLY)
    set(generated ${CMAKE_CURRENT_BINARY_DIR}/build.c)
    add_custom_command(OUTPUT ${generated}
        COMMAND ${CMAKE_COMMAND} -Dinputs=${inputs} -Doutput=${generated} -P ${PROJECT_SOURCE_DIR}/cmake/identify.cmake
        DEPENDS ${files} ${inputs} ${PROJECT_SOURCE_DIR}/cmake/identify.cmake VERBATIM)
    set(${sources} ${${sources}} ${generated} PARENT_SCOPE)
endfunction()
