# How the targets of this project are made: warnings, sanitizers and the rule that a room sees only the rooms below it.
# Everything is set on targets, nothing globally.

# bloomery_harden(<target>): protection against faults, for a program that parses bytes of strangers. Not with sanitizers:
# they find more, and FORTIFY_SOURCE would hide calls from them.
function(bloomery_harden target)
  get_target_property(type ${target} TYPE)
  target_compile_options(${target} PRIVATE -fstack-protector-strong)
  target_link_options(${target} PRIVATE -Wl,-z,relro -Wl,-z,now)
  if(NOT type MATCHES "MODULE|SHARED")
    target_compile_options(${target} PRIVATE -fPIE)
  endif()
  if(type STREQUAL "EXECUTABLE")
    target_link_options(${target} PRIVATE -pie)
  endif()
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug") # Debug may be without optimisation; some compilers define it by themselves
    target_compile_options(${target} PRIVATE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
  endif()
endfunction()

# bloomery_target(<target>): warnings, sanitizers, hardening and frame pointers as every target of the project has them.
function(bloomery_target target)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wno-missing-field-initializers -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wvla -Wformat=2
    -Wcast-align -Wpointer-arith -Wwrite-strings -fno-omit-frame-pointer
    # A filter has the same size on every machine: no fused operations, which round once where others round twice.
    -ffp-contract=off)
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug") # the same bytes wherever the source is; debuggers and coverage want the paths
    target_compile_options(${target} PRIVATE -ffile-prefix-map=${PROJECT_BINARY_DIR}=build -ffile-prefix-map=${PROJECT_SOURCE_DIR}=.)
  endif()
  if(BLOOMERY_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(BLOOMERY_VERIFY)
    target_compile_definitions(${target} PRIVATE BLOOMERY_VERIFY=1)
  endif()
  if(BLOOMERY_COVERAGE)
    target_link_options(${target} PRIVATE --coverage)
    if(NOT target STREQUAL disk_shim) # it stands between the counters and their files
      target_compile_options(${target} PRIVATE --coverage -fprofile-update=atomic -fprofile-abs-path)
    endif()
  endif()
  if(BLOOMERY_SANITIZE STREQUAL "address")
    target_compile_options(${target} PRIVATE -fsanitize=address,undefined -fno-sanitize-recover=all)
    target_link_options(${target} PRIVATE -fsanitize=address,undefined)
  elseif(BLOOMERY_SANITIZE STREQUAL "thread")
    # gcc has no model of atomic_thread_fence under TSan; the code pairs fences only where TSan needs no proof of order.
    target_compile_options(${target} PRIVATE -fsanitize=thread -Wno-tsan)
    target_link_options(${target} PRIVATE -fsanitize=thread)
  elseif(BLOOMERY_SANITIZE)
    message(FATAL_ERROR "BLOOMERY_SANITIZE is '${BLOOMERY_SANITIZE}'; it takes '', 'address' or 'thread'")
  else()
    bloomery_harden(${target})
  endif()
endfunction()

# bloomery_room(<name> SOURCES ... [DEPENDS rooms-and-libraries ...]): a room is a static library whose headers are
# found only by targets that depend on it, so that an include against the order of rooms does not compile.
# SHARED: it goes into the module, too. Functions are hidden, so that position-independent code costs the daemon nothing.
function(bloomery_room name)
  cmake_parse_arguments(room "SHARED" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${room_SOURCES})
  target_include_directories(${name} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${room_DEPENDS})
  bloomery_target(${name})
  if(room_SHARED)
    target_compile_options(${name} PRIVATE -fPIC -fvisibility=hidden)
  endif()
endfunction()
