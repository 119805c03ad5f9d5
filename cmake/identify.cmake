# cmake -Dinputs=FILE -Doutput=FILE.c -P identify.cmake: a script of cmake/build.cmake. `inputs` sets files, which
# lie below PROJECT_SOURCE_DIR, compiler and flags.
include(${inputs})
set(hashed "${compiler}\n${flags}\n")
foreach(file ${files})
    file(SHA256 ${file} hash)
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${file})
    string(APPEND hashed "${hash} ${name}\n")
endforeach()
string(SHA256 hash "${hashed}")
string(SUBSTRING ${hash} 0 12 hash)
file(WRITE ${output} "#include \"base/build.h\"\n\nconst char build_text[] = \"build ${hash}, ${compiler}\";\n")
