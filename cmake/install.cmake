# What `make install` puts where: the program, its page, what shells complete, the examples, the public header, both
# libraries, and the pkg-config file and CMake package by which other programs find them.
include(CMakePackageConfigHelpers)

if(TARGET trireme_cli)
    install(TARGETS trireme_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    # The program writes the scripts itself.
    foreach(script "bash share/bash-completion/completions/trireme" "zsh share/zsh/site-functions/_trireme")
        string(REPLACE " " ";" script ${script})
        list(GET script 0 shell)
        list(GET script 1 path)
        install(CODE "set(file \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${path}\")
            get_filename_component(directory \"\${file}\" DIRECTORY)
            file(MAKE_DIRECTORY \"\${directory}\")
            execute_process(COMMAND \"${CMAKE_CURRENT_BINARY_DIR}/trireme\" help completion ${shell}
                OUTPUT_FILE \"\${file}\" COMMAND_ERROR_IS_FATAL ANY)")
    endforeach()
endif()
install(FILES include/trireme.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(EXISTS ${PROJECT_SOURCE_DIR}/docs/trireme.1)
    install(FILES docs/trireme.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DATADIR}/trireme PATTERN __pycache__ EXCLUDE)

# Two export sets, so that who links the shared library needs no development files of its dependencies.
set(package_directory ${CMAKE_INSTALL_LIBDIR}/cmake/trireme)
foreach(kind shared static)
    install(TARGETS trireme_${kind} EXPORT trireme-${kind} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(EXPORT trireme-${kind} NAMESPACE trireme:: DESTINATION ${package_directory})
endforeach()
configure_package_config_file(cmake/trireme-config.cmake.in trireme-config.cmake
    INSTALL_DESTINATION ${package_directory})
write_basic_package_version_file(trireme-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/trireme-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/trireme-config-version.cmake
    cmake/dependencies.cmake DESTINATION ${package_directory})

# Static linking needs the dependencies by name, whatever prefix they were found under.
set(private_libraries "")
set(named_libraries yaml jansson sodium xxhash z zstd pcre2-8 utf8proc)
if(TRIREME_URING_FOUND)
    list(APPEND named_libraries uring)
endif()
foreach(name ${named_libraries})
    get_filename_component(directory ${TRIREME_${name}_LIBRARY} DIRECTORY)
    string(APPEND private_libraries " -L${directory} -l${name}")
endforeach()
set(path_libraries ${OpenMP_C_LIBRARIES})
if(TRIREME_MPI_FOUND)
    list(APPEND path_libraries ${MPI_C_LIBRARIES})
endif()
foreach(library ${path_libraries})
    get_filename_component(directory ${library} DIRECTORY)
    get_filename_component(name ${library} NAME_WE)
    string(REGEX REPLACE "^lib" "" name ${name})
    string(APPEND private_libraries " -L${directory} -l${name}")
endforeach()
file(RELATIVE_PATH pkgconfig_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/trireme.pc.in trireme.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/trireme.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
