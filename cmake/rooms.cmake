# How the targets of this project are made: warnings, sanitizers and the rule that a room sees only the rooms below it.
# Everything is set on targets, nothing globally.

# bloomery_target(<target>): warnings, sanitizers and frame pointers as every target of the project has them.
function(bloomery_target target)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wvla -Wformat=2
    -Wcast-align -Wpointer-arith -Wwrite-strings -fno-omit-frame-pointer
    # A filter has the same size on every machine: no fused operations, which round once where others round twice.
    -ffp-contract=off)
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
  if(BLOOMERY_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(BLOOMERY_VERIFY)
    target_compile_definitions(${target} PRIVATE BLOOMERY_VERIFY=1)
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
  endif()
endfunction()

# bloomery_room(<name> SOURCES ... [DEPENDS rooms-and-libraries ...]): a room is a static library whose headers are
# found by those who depend on it and by nobody else, so that an include against the order of rooms does not compile.
function(bloomery_room name)
  cmake_parse_arguments(room "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${room_SOURCES})
  target_include_directories(${name} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${room_DEPENDS})
  bloomery_target(${name})
endfunction()
