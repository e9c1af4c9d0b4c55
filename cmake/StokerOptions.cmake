# stoker::options: language standard, warnings and sanitizers of all stoker targets. It is an
# INTERFACE target so that dependencies and users of the libraries are not affected.
add_library(stoker_options INTERFACE)
add_library(stoker::options ALIAS stoker_options)

file(RELATIVE_PATH relative_source_dir "${PROJECT_BINARY_DIR}" "${PROJECT_SOURCE_DIR}")
string(REGEX REPLACE "([^/])$" "\\1/" relative_source_dir "${relative_source_dir}")
target_compile_features(stoker_options INTERFACE cxx_std_20)
target_include_directories(stoker_options INTERFACE "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/generated")
target_compile_options(stoker_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wundef
  -Wno-missing-field-initializers  # designated initializers rely on default values
  # False positives in GCC 12 for std::string operator+ (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  # Paths in objects, those of assertions for example, do not depend on the folders of the sources and of the build,
  # where compilers run: ccache makes paths relative to it. GCC would resolve links in those of system headers first.
  -ffile-prefix-map=${PROJECT_SOURCE_DIR}/= -ffile-prefix-map=${relative_source_dir}=
  $<$<CXX_COMPILER_ID:GNU>:-fno-canonical-system-headers>
  # GCC collects garbage from 4 GB on only: an eighth of its time, for a sixth more memory.
  $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=4000000>
  $<$<BOOL:${STOKER_WERROR}>:-Werror>)

if(STOKER_SANITIZE)
  target_compile_options(stoker_options INTERFACE
    -fsanitize=${STOKER_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
    # False positives of GCC in instrumented code; the release preset keeps this warning.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(stoker_options INTERFACE -fsanitize=${STOKER_SANITIZE})
  # UBSan's checks for null pointers and dynamic types take a quarter of the build's time.
  # AddressSanitizer reports dereferences of null.
  if(STOKER_SANITIZE MATCHES "undefined")
    target_compile_options(stoker_options INTERFACE -fno-sanitize=null,vptr)
  endif()
endif()

if(STOKER_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "STOKER_FUZZ needs libFuzzer, which comes with Clang: configure with -DCMAKE_CXX_COMPILER=clang++")
  endif()
  target_compile_options(stoker_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

find_package(Threads REQUIRED)
target_link_libraries(stoker_options INTERFACE Threads::Threads)

set(STOKER_TORCH_HEADERS <torch/nn/modules/batchnorm.h> <torch/nn/modules/conv.h> <torch/nn/modules/embedding.h>
  <torch/nn/modules/linear.h> <torch/nn/modules/rnn.h>)
# stoker_precompile_torch(TARGET…): these targets use one precompiled header with LibTorch's headers,
# which take most of the compile time of a file that includes them: 16 s of 33 s of a small file. The
# header takes 0.7 GB of the build folder.
function(stoker_precompile_torch)
  if(NOT STOKER_PCH)
    return()
  endif()
  if(NOT TARGET stoker_torch_headers)
    file(WRITE "${PROJECT_BINARY_DIR}/generated/torch_headers.cc" "")
    add_library(stoker_torch_headers OBJECT "${PROJECT_BINARY_DIR}/generated/torch_headers.cc")
    target_compile_options(stoker_torch_headers PRIVATE -fPIC)
    target_link_libraries(stoker_torch_headers PRIVATE stoker::options LibTorch::cpu)
    target_precompile_headers(stoker_torch_headers PRIVATE ${STOKER_TORCH_HEADERS})
  endif()
  foreach(target ${ARGN})
    target_precompile_headers(${target} REUSE_FROM stoker_torch_headers)
    # The flags of the header and of its users must be equal; -fpch-preprocess is for ccache.
    target_compile_options(${target} PRIVATE -fPIC $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  endforeach()
endfunction()

# stoker_precompile_std(TARGET): it uses a precompiled header with headers of the standard library, which take a fifth of the
# compile time of a small folder.
function(stoker_precompile_std target)
  if(NOT TARGET stoker_std_headers)
    file(WRITE "${PROJECT_BINARY_DIR}/generated/std_headers.cc" "")
    add_library(stoker_std_headers OBJECT "${PROJECT_BINARY_DIR}/generated/std_headers.cc")
    target_compile_options(stoker_std_headers PRIVATE -fPIC)
    target_link_libraries(stoker_std_headers PRIVATE stoker::options)
    target_precompile_headers(stoker_std_headers PRIVATE <algorithm> <array> <atomic> <chrono> <condition_variable> <deque>
      <functional> <map> <memory> <mutex> <optional> <set> <span> <stop_token> <string> <string_view> <thread> <unordered_map>
      <variant> <vector>)
  endif()
  target_precompile_headers(${target} REUSE_FROM stoker_std_headers)
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)  # for ccache
endfunction()

# stoker_library(NAME SOURCES … [PUBLIC libs…] [PRIVATE libs…] [TORCH] [COLD]): defines stoker_NAME and its alias
# stoker::NAME. TORCH: most of its files include LibTorch. COLD: nothing in it runs per sample or per step, so that a release
# build optimizes it less, which takes a quarter off its compile time.
function(stoker_library name)
  cmake_parse_arguments(arg "TORCH;COLD" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(stoker_${name} STATIC ${arg_SOURCES})
  add_library(stoker::${name} ALIAS stoker_${name})
  set_target_properties(stoker_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(stoker_${name} PUBLIC stoker::options ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  if(arg_COLD)
    target_compile_options(stoker_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  if(arg_TORCH)
    stoker_precompile_torch(stoker_${name})
  elseif(STOKER_PCH)
    stoker_precompile_std(stoker_${name})
  endif()
endfunction()
