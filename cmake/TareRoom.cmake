include(GoogleTest)

# tare_room(NAME [DEPS lib...] [TEST_DEPS lib...])
#
# The room in the current folder: every *.cc is part of library tare_NAME, every *_test.cc of the
# test program NAME_test. Files are globbed so that a new file needs no edit elsewhere; sources of
# one instruction set set their own flags with set_source_files_properties beside this call.
function(tare_room name)
  cmake_parse_arguments(ROOM "" "" "DEPS;TEST_DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cc")
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")

  if(sources)
    add_library(tare_${name} STATIC ${sources})
    target_include_directories(tare_${name} PUBLIC "${CMAKE_SOURCE_DIR}/src")
    target_link_libraries(tare_${name} PUBLIC ${ROOM_DEPS})
  else()
    add_library(tare_${name} INTERFACE)
    target_include_directories(tare_${name} INTERFACE "${CMAKE_SOURCE_DIR}/src")
    target_link_libraries(tare_${name} INTERFACE ${ROOM_DEPS})
  endif()

  if(TARE_BUILD_TESTS AND tests)
    tare_test(${name}_test SOURCES ${tests} DEPS tare_${name} ${ROOM_TEST_DEPS})
  endif()
endfunction()

file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/generated/source_dir.h"
     CONTENT "#ifndef TARE_SOURCE_DIR\n#define TARE_SOURCE_DIR \"${CMAKE_SOURCE_DIR}\"\n#endif\n")

# tare_test(NAME SOURCES file... [DEPS lib...]): one GoogleTest program, each test a ctest of its own.
function(tare_test name)
  cmake_parse_arguments(TEST "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${TEST_SOURCES})
  target_link_libraries(${name} PRIVATE ${TEST_DEPS} GTest::gmock GTest::gtest_main rapidcheck)
  target_include_directories(${name} PRIVATE "${CMAKE_BINARY_DIR}/generated")
  # Half the compile time of a test is optimising gtest's macros; the code under test keeps -O2.
  target_compile_options(${name} PRIVATE -O1)
  if(TARE_SANITIZE STREQUAL "address")
    # Checking gtest's macros for undefined behaviour doubles the build; the rooms are checked.
    target_compile_options(${name} PRIVATE -O0 -fno-sanitize=undefined)
  endif()
  # TARE_SOURCE_DIR is an absolute path, so only files that use it get it: the others' compiler
  # results are shared between clones. (After a file's first use of the macro, configure again; a
  # header of tests includes "source_dir.h" instead.)
  foreach(source IN LISTS TEST_SOURCES)
    cmake_path(ABSOLUTE_PATH source OUTPUT_VARIABLE absolute)
    file(STRINGS "${absolute}" uses REGEX "TARE_SOURCE_DIR" LIMIT_COUNT 1)
    if(uses)
      set_property(SOURCE "${source}" APPEND PROPERTY COMPILE_DEFINITIONS
                   TARE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    endif()
  endforeach()
  # PRE_TEST: tests are listed when ctest runs, not while ninja links (which would double build time).
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 300)
endfunction()
