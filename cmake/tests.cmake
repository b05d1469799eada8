# How tests are added. Every test carries a label: unit, e2e, fault, fuzz, stress, slow. Those with the label long are left out of
# `scripts/test` without arguments; so are those that need node or prometheus.

# bloomery_long_tests(<name> ...): tests of this directory that take ten seconds and more, while others touch the same promises.
function(bloomery_long_tests)
  foreach(name ${ARGN})
    if(TEST ${name})
      set_property(TEST ${name} APPEND PROPERTY LABELS long)
    elseif(NOT BLOOMERY_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
      message(FATAL_ERROR "there is no test ${name} to be called long")
    endif()
  endforeach()
endfunction()

# bloomery_test_program(<name> <sources>): an executable. The files of tests/support that need nothing of their program are compiled
# once, in test_support: a hundred programs use them.
function(bloomery_test_program name)
  set(support ${PROJECT_SOURCE_DIR}/tests/support)
  list(TRANSFORM ARGN REPLACE "^.*/tests/support/(rng|tmpdir|golden|program|crash_names|crash_fs|fault_fs)\\.c$" ""
       OUTPUT_VARIABLE own)
  list(REMOVE_ITEM own "")
  if(NOT TARGET test_support)
    add_library(test_support STATIC ${support}/rng.c ${support}/tmpdir.c ${support}/golden.c ${support}/program.c
                                    ${support}/crash_names.c ${support}/crash_fs.c ${support}/fault_fs.c)
    bloomery_target(test_support)
    target_include_directories(test_support PUBLIC ${support} PRIVATE ${PROJECT_SOURCE_DIR}/persist/base ${PROJECT_SOURCE_DIR}/base)
    target_compile_definitions(test_support PUBLIC
      BLOOMERY_GOLDEN_DIR="${PROJECT_SOURCE_DIR}/tests/golden" BLOOMERY_SHARED_GOLDEN_DIR="${BLOOMERY_SHARED_GOLDEN_DIR}")
    target_link_libraries(test_support PRIVATE PkgConfig::CRITERION)
  endif()
  add_executable(${name} ${own})
  bloomery_target(${name})
  target_link_libraries(${name} PRIVATE test_support)
endfunction()

# bloomery_unit_test(<name> SOURCES ... LIBRARIES ... [LABEL label]): a Criterion program. Not built under
# ThreadSanitizer, whose address-space layout does not work with Criterion's process sandbox: threads are tested
# there by the stress programs and by the end-to-end tests against the daemon.
function(bloomery_unit_test name)
  cmake_parse_arguments(t "" "LABEL" "SOURCES;LIBRARIES" ${ARGN})
  if(BLOOMERY_SANITIZE STREQUAL "thread")
    return()
  endif()
  if(NOT t_LABEL)
    set(t_LABEL unit)
  endif()
  bloomery_test_program(${name} ${t_SOURCES})
  target_link_libraries(${name} PRIVATE ${t_LIBRARIES} PkgConfig::CRITERION Threads::Threads m)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS ${t_LABEL} TIMEOUT 3600)
endfunction()

# bloomery_failing_allocations([MMAP] <name> ...): allocations of the programs can fail (tests/support/alloc_countdown.h), with
# MMAP also those by mmap().
function(bloomery_failing_allocations)
  cmake_parse_arguments(t "MMAP" "" "" ${ARGN})
  foreach(name ${t_UNPARSED_ARGUMENTS})
    if(TARGET ${name})
      target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/alloc_countdown.c)
      target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support)
      target_link_options(${name} PRIVATE
        -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc -Wl,--wrap=aligned_alloc $<$<BOOL:${t_MMAP}>:-Wl,--wrap=mmap>)
    endif()
  endforeach()
endfunction()

# bloomery_stress_test(<name> SOURCES ... LIBRARIES ...): a plain program with main() that exits 0 or prints the
# fault; built in every preset, ThreadSanitizer's included.
function(bloomery_stress_test name)
  cmake_parse_arguments(t "" "LABEL" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT t_LABEL)
    set(t_LABEL stress)
  endif()
  bloomery_test_program(${name} ${t_SOURCES})
  target_link_libraries(${name} PRIVATE ${t_LIBRARIES} Threads::Threads m)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS ${t_LABEL} TIMEOUT 3600)
endfunction()
