# End-to-end tests: programs that talk to the real daemon over the network and link no room of the project. They are
# never sanitized themselves, even if the daemon is: Criterion does not work with ThreadSanitizer, and a report must
# come from the daemon alone.

# bloomery_e2e_support(): the library e2e_support of the helpers in tests/support that need no room; and e2e_power for power
# failures, which knows the table of file operations by its header and links no room either.
function(bloomery_e2e_support)
  find_program(BLOOMERY_REDIS_SERVER redis-server)
  find_program(redis_tool redis-check-rdb)
  if(NOT BLOOMERY_REDIS_SERVER AND redis_tool) # Debian's redis-tools: the server is this program by another name
    file(CREATE_LINK ${redis_tool} ${PROJECT_BINARY_DIR}/redis-server SYMBOLIC)
    set(BLOOMERY_REDIS_SERVER ${PROJECT_BINARY_DIR}/redis-server CACHE FILEPATH "" FORCE)
  endif()
  set(sanitized 0)
  if(BLOOMERY_SANITIZE)
    set(sanitized 1)
  endif()
  set(BLOOMERY_SANITIZE "")
  set(support ${PROJECT_SOURCE_DIR}/tests/support)
  add_library(e2e_support STATIC
    ${support}/client.c ${support}/compat.c ${support}/corpus.c ${support}/corpus_compare.c ${support}/corpus_each.c
    ${support}/daemon.c
    ${support}/disk_control.c ${support}/environment.c ${support}/golden.c ${support}/http.c ${support}/metrics_parse.c
    ${support}/ports.c ${support}/program.c ${support}/rng.c ${support}/tmpdir.c ${support}/wire.c
    ${support}/wire_tls.c)
  add_library(disk_shim MODULE ${support}/disk_shim.c)
  target_link_libraries(disk_shim PRIVATE ${CMAKE_DL_LIBS} Threads::Threads)
  target_compile_definitions(disk_shim PRIVATE DAEMON_SANITIZED=${sanitized})
  bloomery_target(disk_shim)
  target_include_directories(e2e_support PUBLIC ${support})
  target_compile_definitions(e2e_support PUBLIC DAEMON_SANITIZED=${sanitized} BLOOMERYD_PATH="$<TARGET_FILE:bloomeryd>"
    MODULE_PATH="$<TARGET_FILE:bloomery_module>" ENGINE_PATH="${BLOOMERY_REDIS_SERVER}")
  target_compile_definitions(e2e_support PRIVATE DISK_SHIM_PATH="$<TARGET_FILE:disk_shim>"
    CERTIFICATES_PATH="${support}/certificates")
  target_link_libraries(e2e_support PRIVATE PkgConfig::OPENSSL)
  target_link_libraries(e2e_support PUBLIC PkgConfig::CRITERION PkgConfig::HIREDIS Threads::Threads)
  bloomery_target(e2e_support)
  add_dependencies(e2e_support bloomeryd bloomery_module disk_shim)

  add_library(e2e_power STATIC ${support}/power.c ${support}/disk_trace.c ${support}/crash_fs.c ${support}/crash_names.c
    ${support}/lateness.c)
  target_include_directories(e2e_power PUBLIC ${support} ${PROJECT_SOURCE_DIR}/persist/base ${PROJECT_SOURCE_DIR}/base)
  target_link_libraries(e2e_power PUBLIC e2e_support)
  bloomery_target(e2e_power)
endfunction()

# bloomery_e2e_test(<name> SOURCES ... [LABEL label]): a Criterion program, labelled e2e.
function(bloomery_e2e_test name)
  cmake_parse_arguments(t "" "LABEL" "SOURCES" ${ARGN})
  set(BLOOMERY_SANITIZE "")
  if(NOT t_LABEL)
    set(t_LABEL e2e)
  endif()
  add_executable(${name} ${t_SOURCES})
  bloomery_target(${name})
  target_compile_definitions(${name} PRIVATE
    BLOOMERY_GOLDEN_DIR="${PROJECT_SOURCE_DIR}/tests/golden"
    BLOOMERY_DOCS_DIR="${PROJECT_SOURCE_DIR}/docs"
    BLOOMERY_CONF_DIR="${PROJECT_SOURCE_DIR}/conf"
    BLOOMERY_CONF_FILE="${PROJECT_SOURCE_DIR}/conf/bloomery.conf"
    BLOOMERY_SHARED_GOLDEN_DIR="${BLOOMERY_SHARED_GOLDEN_DIR}"
    BLOOMERY_TOOL_PATH="$<$<TARGET_EXISTS:bloomery>:$<TARGET_FILE:bloomery>>"
    BLOOMERY_VERSION="${PROJECT_VERSION}")
  target_link_libraries(${name} PRIVATE e2e_support m)
  if(TARGET bloomery)
    add_dependencies(${name} bloomery)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS ${t_LABEL} TIMEOUT 3600)
endfunction()
