# Turns src/sim/clusters/*.yaml into a table of texts (src/sim/shipped.h), so that a cluster is found by its name
# wherever the program is. They are read when the build is configured, which a change of one of them does again.
function(trireme_embed_clusters sources)
    file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/sim/clusters/*.yaml)
    set(texts "")
    set(table "")
    foreach(file ${files})
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
        get_filename_component(name ${file} NAME_WE)
        string(MAKE_C_IDENTIFIER ${name} identifier)
        file(READ ${file} bytes HEX)
        string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
        string(APPEND texts "static const char ${identifier}[] = {${bytes}0};\n")
        string(APPEND table "    {\"${name}\", ${identifier}},\n")
    endforeach()
    set(generated ${CMAKE_CURRENT_BINARY_DIR}/clusters.c)
    file(CONFIGURE OUTPUT ${generated} CONTENT
        "#include \"sim/shipped.h\"\n\n#include <stddef.h>\n\n${texts}\nconst struct shipped_cluster shipped_clusters[] = {\n${table}    {NULL, NULL},\n};\n"
        @ONLY)
    set(${sources} ${${sources}} ${generated} PARENT_SCOPE)
endfunction()
