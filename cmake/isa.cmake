# Compiles the files of src/kernels/cpu/ once per instruction set (src/kernels/cpu/isa.h says why). The file itself is
# the copy for every CPU; each wider copy is a generated file that includes it, compiled with wider flags. Of matrix
# units (AMX) only what multiplies matrices has a copy: the rest is that of the set before.
# Appends the generated files to the list named by `sources`.
set(TRIREME_ISA_ONCE isa peak bandwidth pin) # files of cpu/ that exist once
# Those that have a copy for matrix units.
set(TRIREME_ISA_MATRIX attention attention_bwd attention_cached gemm gemm_few matmul pack peak_loop table)

# Those in which products and sums are rounded one by one, as by any CPU.
set(TRIREME_ISA_ROUNDED fast_codecs)

function(trireme_isa_variants sources)
    set(cpu_sources ${${sources}})
    list(FILTER cpu_sources INCLUDE REGEX "/src/kernels/cpu/[^/]*\\.c$")
    set_source_files_properties(${cpu_sources} PROPERTIES COMPILE_OPTIONS "${OpenMP_C_FLAGS}")
    foreach(name ${TRIREME_ISA_ROUNDED})
        set_property(SOURCE src/kernels/cpu/${name}.c APPEND PROPERTY COMPILE_OPTIONS -ffp-contract=off)
    endforeach()
    if(NOT TRIREME_ISA_VARIANTS OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
        return()
    endif()
    # Of the wider copies these are left to AddressSanitizer and to the copy for every CPU: they take a third of the
    # time that all take, to compile and to run.
    if(TRIREME_SANITIZE MATCHES undefined)
        set(once -fno-sanitize=pointer-overflow,null,object-size,nonnull-attribute,returns-nonnull-attribute)
    endif()
    set(flags_avx2 ${once} -mavx2 -mfma)
    set(flags_avx512 ${flags_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
    set(flags_avx512bf16 ${flags_avx512} -mavx512bf16)
    set(flags_amx ${flags_avx512bf16} -mamx-tile -mamx-bf16)
    # With sanitizers, those that this machine cannot run are there to be linked alone: they take a quarter of the time.
    if(TRIREME_SANITIZE AND EXISTS /proc/cpuinfo)
        file(STRINGS /proc/cpuinfo able REGEX "^flags" LIMIT_COUNT 1)
        set(wants_avx512 avx512vl)
        set(wants_avx512bf16 avx512_bf16)
        set(wants_amx amx_bf16)
        foreach(isa avx512 avx512bf16 amx)
            if(NOT "${able} " MATCHES " ${wants_${isa}} ")
                list(APPEND flags_${isa} -O0 -g0 -fno-sanitize=all)
            endif()
        endforeach()
    endif()
    foreach(source ${cpu_sources})
        get_filename_component(name ${source} NAME_WE)
        if(name IN_LIST TRIREME_ISA_ONCE)
            set_source_files_properties(${source} PROPERTIES COMPILE_DEFINITIONS TRIREME_ISA_VARIANTS)
            continue()
        endif()
        foreach(isa avx2 avx512 avx512bf16 amx)
            if(isa STREQUAL amx AND NOT name IN_LIST TRIREME_ISA_MATRIX)
                continue()
            endif()
            set(copy ${CMAKE_CURRENT_BINARY_DIR}/isa/${name}_${isa}.c)
            file(CONFIGURE OUTPUT ${copy} CONTENT "#include \"kernels/cpu/${name}.c\"\n" @ONLY)
            set_source_files_properties(${copy} PROPERTIES
                COMPILE_OPTIONS "${OpenMP_C_FLAGS};${flags_${isa}}" COMPILE_DEFINITIONS ISA_SUFFIX=${isa})
            if(name IN_LIST TRIREME_ISA_ROUNDED)
                set_property(SOURCE ${copy} APPEND PROPERTY COMPILE_OPTIONS -ffp-contract=off)
            endif()
            list(APPEND ${sources} ${copy})
        endforeach()
    endforeach()
    set(${sources} ${${sources}} PARENT_SCOPE)
endfunction()
