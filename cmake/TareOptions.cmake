# Build options and the flags every target shares.

option(TARE_BUILD_TESTS "Build the unit tests (*_test.cc beside the code) and tests/" ON)
option(TARE_BUILD_BENCH "Build bench/" ON)
option(TARE_FUZZ "Build fuzz/ with libFuzzer (needs clang)" OFF)
option(TARE_WERROR "Treat warnings as errors" ON)
set(TARE_SANITIZE "" CACHE STRING "Sanitizers: empty, 'address' (with undefined) or 'thread'")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
# -g1 keeps line numbers for stack traces at a third of the size of -g.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g1")

find_program(TARE_CCACHE ccache)
if(TARE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${TARE_CCACHE}")
  set(CMAKE_C_COMPILER_LAUNCHER "${TARE_CCACHE}")
endif()

# Everything is built for the baseline; a translation unit of one instruction set raises it for
# itself (src/kernels), so that start-up code never meets an instruction the machine lacks.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  add_compile_options(-march=x86-64-v2)
endif()
add_compile_options(-Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 reports maybe-uninitialized and null-dereference inside std::variant and std::regex.
  add_compile_options(-Wno-maybe-uninitialized -Wno-missing-field-initializers)
  # Asio's coroutines under g++ 12 raise false mismatched-new-delete reports.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-mismatched-new-delete>)
else()
  add_compile_options(-Wno-missing-field-initializers)
endif()
if(TARE_WERROR)
  add_compile_options(-Werror)
endif()
# Reproducible paths: no directory of the build machine in the binary, and ccache hits across clones.
add_compile_options("-ffile-prefix-map=${CMAKE_SOURCE_DIR}=.")

if(TARE_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(TARE_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Asio's fences are no means of synchronisation that ThreadSanitizer knows; its locks are.
    add_compile_options(-Wno-tsan)
  endif()
  add_link_options(-fsanitize=thread)
elseif(TARE_SANITIZE)
  message(FATAL_ERROR "TARE_SANITIZE is '${TARE_SANITIZE}'; it may be empty, 'address' or 'thread'")
endif()
if(TARE_FUZZ)
  # Not 'function': clang 14 cannot assemble its marks in coroutines ("Cannot represent a difference
  # across sections").
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize=function
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
endif()
