# One program per tests/FOLDER/test_NAME.c, known to ctest as FOLDER.NAME with the label FOLDER. A test may link
# whatever lies in tests/support/. Scripts tests/FOLDER/test_NAME.py are tests too; exit status 77 means skipped.
# Who only wants the program needs no cmocka: then there are no tests.
trireme_find_library(cmocka cmocka.h cmocka libcmocka-dev)
if(TRIREME_MISSING)
    message(STATUS "the tests are left out: no cmocka (Debian package ${TRIREME_MISSING})")
    return()
endif()
enable_testing()

set(test_environment "TRIREME_BINARY=${CMAKE_CURRENT_BINARY_DIR}/trireme" "TRIREME_SOURCE=${PROJECT_SOURCE_DIR}"
    "TRIREME_BUILD=${CMAKE_CURRENT_BINARY_DIR}")
# Idle OpenMP threads sleep: tests run side by side and start many short loops.
list(APPEND test_environment "OMP_WAIT_POLICY=passive")
# Modules that scripts share.
list(APPEND test_environment "PYTHONPATH=${PROJECT_SOURCE_DIR}/tests/support")
if(TRIREME_SANITIZE)
    # The leak checker of clang 14 crashes on what it notes of the thread-local storage that glibc 2.36 allocates.
    list(APPEND test_environment "TRIREME_SANITIZE=${TRIREME_SANITIZE}" "UBSAN_OPTIONS=print_stacktrace=1"
        "ASAN_OPTIONS=intercept_tls_get_addr=0"
        "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/leaks.supp:print_suppressions=0")
endif()

# What somebody has set for programs of their own, or a launcher or a job around has, is not for those that are tested.
set(unset "")
foreach(variable OMP_NUM_THREADS OMP_THREAD_LIMIT OMP_DYNAMIC OMP_PROC_BIND OMP_PLACES GOMP_CPU_AFFINITY
        GOMP_SPINCOUNT TRIREME_ISA TRIREME_NODE TEAM_PROCESSES TEAM_ONLY TEAM_TEST TEAM_LOCALS TEAM_ODD
        RANK WORLD_SIZE PMI_RANK PMI_SIZE PMIX_NAMESPACE OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE
        SLURM_JOB_ID SLURM_JOBID SLURM_STEP_ID SLURM_PROCID SLURM_NTASKS)
    list(APPEND unset "${variable}=unset:")
endforeach()

# Archives, of which a test takes what it needs: to link all objects takes half as long as to compile the tests.
add_library(test_objects STATIC $<TARGET_OBJECTS:trireme_objects>)
target_link_libraries(test_objects INTERFACE trireme_flags)
set_target_properties(test_objects PROPERTIES LINKER_LANGUAGE C)
file(GLOB support_sources CONFIGURE_DEPENDS tests/support/*.c tests/reference/outer*.c)
add_library(test_support STATIC ${support_sources})
target_link_libraries(test_support PUBLIC test_objects trireme::cmocka)
target_include_directories(test_support PRIVATE tests)
target_link_options(test_support INTERFACE LINKER:--undefined=thread_end_watch) # support/thread_end.c

# The python that has PyTorch, which need not be the first of the path.
foreach(candidate python3 /usr/bin/python3)
    execute_process(COMMAND ${candidate} -c "import importlib.util as u, sys; sys.exit(not u.find_spec('torch'))"
        RESULT_VARIABLE no_torch OUTPUT_QUIET ERROR_QUIET)
    if(no_torch EQUAL 0)
        set(test_python ${candidate})
        break()
    endif()
endforeach()
if(NOT test_python)
    set(test_python python3)
endif()

set(faulty_calls "")
foreach(call open fopen opendir read pread write pwrite uring_create uring_end fsync fdatasync posix_fadvise fallocate
        ftruncate rename renameat2 mkdir rmdir unlink unlinkat close mmap calloc realloc aligned_alloc pthread_create)
    list(APPEND faulty_calls "LINKER:--wrap=${call}")
endforeach()

file(GLOB test_sources CONFIGURE_DEPENDS tests/*/test_*.c tests/*/test_*.py)
foreach(source ${test_sources})
    get_filename_component(name ${source} NAME_WE)
    string(REGEX REPLACE "^test_" "" name ${name})
    get_filename_component(folder ${source} DIRECTORY)
    get_filename_component(folder ${folder} NAME)
    if(source MATCHES "\\.py$")
        add_test(NAME ${folder}.${name} COMMAND ${test_python} ${source})
    else()
        set(target test_${folder}_${name})
        add_executable(${target} ${source})
        target_link_libraries(${target} PRIVATE test_support)
        target_include_directories(${target} PRIVATE tests)
        target_compile_definitions(${target} PRIVATE
            TRIREME_BINARY="${CMAKE_CURRENT_BINARY_DIR}/trireme" TRIREME_SOURCE="${PROJECT_SOURCE_DIR}")
        if(target STREQUAL test_run_peak) # in which the machine is as fast as the test says
            target_link_options(${target} PRIVATE LINKER:--wrap=peak_flops)
        elseif(target STREQUAL test_kernels_choices) # in which only its own time passes
            target_link_options(${target} PRIVATE LINKER:--wrap=clock_now)
        elseif(target MATCHES # support/faults.h
                "^test_(ckpt_block_writer|ckpt_saver|run_damage|run_faults|run_power_cuts)$")
            target_link_options(${target} PRIVATE ${faulty_calls})
        endif()
        set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/tests)
        add_test(NAME ${folder}.${name} COMMAND ${target})
    endif()
    set_tests_properties(${folder}.${name} PROPERTIES
        LABELS ${folder} TIMEOUT 600 SKIP_RETURN_CODE 77 ENVIRONMENT "${test_environment}"
        ENVIRONMENT_MODIFICATION "${unset}")
endforeach()

if(NOT TRIREME_SANITIZE) # these read sources only
    foreach(check includes files format links touches)
        add_test(NAME check.${check} COMMAND ${PROJECT_SOURCE_DIR}/tools/check_${check})
        set_tests_properties(check.${check} PROPERTIES
            LABELS check TIMEOUT 120 SKIP_RETURN_CODE 77 WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    endforeach()
endif()

# A test has one of three tiers, which is a label: `make check` runs the quick ones, `make test` the usual ones, too,
# and `make test-all` the long ones (tools/run_tests). Here are those that are not quick, longest first, since those
# begin first. Tests that wait most of their time, for deadlines and for mpirun, which gives ranks seconds to end, take
# one of the places that run_tests has, others two.
get_property(tests DIRECTORY PROPERTY TESTS)
set(tier_of_rest ${tests})
set(cost 200)
function(tier name places) # tier NAME PLACES TEST...
    foreach(test ${ARGN})
        math(EXPR cost "${cost} - 1")
        if(TEST ${test})
            set_property(TEST ${test} APPEND PROPERTY LABELS ${name})
            set_tests_properties(${test} PROPERTIES COST ${cost} PROCESSORS ${places})
            list(REMOVE_ITEM tier_of_rest ${test})
        endif()
    endforeach()
    set(cost ${cost} PARENT_SCOPE)
    set(tier_of_rest ${tier_of_rest} PARENT_SCOPE)
endfunction()
tier(long 1 comm.mpi_collectives launch.mpi_starts)
tier(long 2 run.checkpoint_all_meshes)
tier(usual 2 run.meshes cli.commands cli.resume)
tier(long 2 cli.plan_advice cli.plan cli.examples cli.pages cli.memory run.torch run.reshard
    verify.mutants_of_ranks cli.simulate_programs cli.plan_answers cli.readers planner.verified_plans run.faults
    run.power_cuts memory.waste verify.outer_programs pipeline.makers kernels.ways cli.export)
tier(usual 2 verify.mutants run.checkpoint_meshes cli.ranks kernels.cpu cli.simulate run.mpi_meshes
    cli.checkpoints planner.search exec.allocation ckpt.saver comm.collectives cli.names cli.bad_input run.resume
    run.run_directory comm.messages cli.lora model.model_gradients cli.init_from ckpt.checkpoint_faults run.damage
    cli.saving cli.eval_and_generate cli.islands_state)
tier(long 1 run.mpi_faults launch.mpi_lost_ranks comm.mpi_nodes cli.calibrate_processes launch.slurm cli.lm_eval
    cli.gguf)
tier(usual 1 launch.lost_ranks comm.lost exec.deadlines run.saving)
foreach(test ${tier_of_rest})
    set_property(TEST ${test} APPEND PROPERTY LABELS quick)
    set_tests_properties(${test} PROPERTIES PROCESSORS 2)
endforeach()
