# stoker_test(NAME SOURCES … LIBS … [TIER quick|all|nightly] [PROCESS_PER_CASE] [QUICK_CASES filter…]
#   [SANITIZERS address thread] [LABELS …] [TIMEOUT seconds] [PROCESSORS number] [ENVIRONMENT …] [FIXTURES …])
#
# A test program. Its tier determines which script runs it: `quick` scripts/test.sh (the default), `all`
# scripts/test.sh --all, `nightly` scripts/nightly.sh. The targets quick_tests and nightly_tests build
# those of their tier; `all` builds everything else.
#
# A program is one test of ctest, in one process, with its cases in a random but fixed order
# (GTEST_RANDOM_SEED): starting 5,000 processes would take minutes. Its results are in
# test-results/NAME.xml. With PROCESS_PER_CASE its cases are tests of ctest: programs that start others,
# wait, and can hang. QUICK_CASES puts cases of such a program of tier `all` into the tier `quick`.
#
# SANITIZERS names the builds with sanitizers that every change runs and that include it: `address` for
# what parses untrusted bytes, `thread` for what shares memory between threads; their target is
# sanitizer_tests. With STOKER_SANITIZE_ALL (scripts/nightly.sh) they include all programs.
#
# Test files are compiled with little optimization and without debug information, which takes half the
# time; GCC uses LibTorch's precompiled header with -O1, but not with -O0.
find_package(GTest REQUIRED)
include(GoogleTest)

# In sanitizer builds also of what parses no untrusted bytes and has no threads.
option(STOKER_SANITIZE_ALL "Build and run all tests with sanitizers, not only those marked SANITIZERS" OFF)
set(STOKER_TEST_RESULTS "${CMAKE_BINARY_DIR}/test-results")
add_custom_target(quick_tests)
add_custom_target(nightly_tests)
add_custom_target(sanitizer_tests)

# stoker_test_tier(TIER TARGET…): the targets are built for tests of this tier.
function(stoker_test_tier tier)
  if(tier STREQUAL "nightly")
    set_target_properties(${ARGN} PROPERTIES EXCLUDE_FROM_ALL ON)
    add_dependencies(nightly_tests ${ARGN})
  elseif(tier STREQUAL "quick")
    add_dependencies(quick_tests ${ARGN})
  elseif(NOT tier STREQUAL "all")
    message(FATAL_ERROR "the tier of a test must be quick, all or nightly, got '${tier}'")
  endif()
endfunction()

# Headers that most files of tests include, precompiled with their flags: a file with one short test compiles in half a second
# instead of three, one that includes LibTorch in a few seconds instead of twenty.
function(stoker_test_headers name)
  cmake_parse_arguments(arg "" "" "LIBS;HEADERS" ${ARGN})
  file(WRITE "${PROJECT_BINARY_DIR}/generated/${name}.cc" "")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL "${PROJECT_BINARY_DIR}/generated/${name}.cc")
  target_link_libraries(${name} PRIVATE stoker::options ${arg_LIBS} GTest::gmock GTest::gtest)
  target_compile_options(${name} PRIVATE ${STOKER_TEST_FLAGS})
  target_precompile_headers(${name} PRIVATE <gmock/gmock.h> <gtest/gtest.h> <algorithm> <atomic> <chrono> <condition_variable>
    <deque> <filesystem> <fstream> <functional> <mutex> <numeric> <optional> <random> <set> <span> <sstream> <string> <thread>
    <unordered_map> <variant> <vector> ${arg_HEADERS})
endfunction()

# Little optimization and, but for stacks of sanitizers, no debug information: half the time of a build for installation.
set(STOKER_TEST_FLAGS "")
if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(STOKER_TEST_FLAGS -O0)
  if(NOT STOKER_SANITIZE)
    list(APPEND STOKER_TEST_FLAGS -g0)
  endif()
endif()
if(STOKER_PCH)
  stoker_test_headers(stoker_test_headers)
  if(STOKER_TORCH)
    stoker_test_headers(stoker_torch_test_headers LIBS LibTorch::cpu HEADERS ${STOKER_TORCH_HEADERS})
  endif()
endif()
find_program(STOKER_MOLD mold)

# stoker_test_library(NAME SOURCES … [PUBLIC libs…] [PRIVATE libs…]): as stoker_library, compiled as tests.
function(stoker_test_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(stoker_${name} STATIC ${arg_SOURCES})
  add_library(stoker::${name} ALIAS stoker_${name})
  target_link_libraries(stoker_${name} PUBLIC stoker::options GTest::gmock GTest::gtest ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  stoker_compile_as_test(stoker_${name} stoker_test_headers)
endfunction()

function(stoker_compile_as_test target headers)
  target_compile_options(${target} PRIVATE ${STOKER_TEST_FLAGS})
  if(STOKER_PCH)
    target_precompile_headers(${target} REUSE_FROM ${headers})
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)  # for ccache
  endif()
endfunction()

function(stoker_test name)
  cmake_parse_arguments(arg "PROCESS_PER_CASE;TORCH" "TIER;TIMEOUT;PROCESSORS"
    "SOURCES;LIBS;LABELS;ENVIRONMENT;FIXTURES;SANITIZERS;QUICK_CASES" ${ARGN})
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${name}: unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()
  foreach(default "TIER;quick" "LABELS;unit" "TIMEOUT;600" "PROCESSORS;1")
    list(GET default 0 key)
    if(NOT arg_${key})
      list(GET default 1 arg_${key})
    endif()
  endforeach()

  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE stoker::options ${arg_LIBS} stoker_test_main GTest::gmock GTest::gtest)
  if(STOKER_MOLD)
    target_link_options(${name} PRIVATE -fuse-ld=mold)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  set(headers stoker_test_headers)
  if(arg_TORCH)
    set(headers stoker_torch_test_headers)
  endif()
  stoker_compile_as_test(${name} ${headers})

  if(STOKER_SANITIZE AND NOT STOKER_SANITIZE_ALL)
    string(REGEX MATCH "address|thread" sanitizer "${STOKER_SANITIZE}")
    if(NOT sanitizer IN_LIST arg_SANITIZERS)
      set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
      return()
    endif()
    if(NOT arg_TIER STREQUAL "nightly")
      add_dependencies(sanitizer_tests ${name})
    endif()
  endif()
  stoker_test_tier(${arg_TIER} ${name})
  if(arg_QUICK_CASES)
    stoker_test_tier(quick ${name})
  endif()

  # ThreadSanitizer does not support threads in a process that was forked from one with threads, as other cases leave them.
  if(STOKER_SANITIZE STREQUAL "thread")
    set(arg_PROCESS_PER_CASE ON)
  endif()
  if(STOKER_SANITIZE)
    math(EXPR arg_TIMEOUT "3 * ${arg_TIMEOUT}")
  endif()
  set(properties TIMEOUT ${arg_TIMEOUT} PROCESSORS ${arg_PROCESSORS})
  if(arg_FIXTURES)
    list(APPEND properties FIXTURES_REQUIRED ${arg_FIXTURES})
  endif()
  # The cases of a program that is not built cannot be listed: those of the tier nightly run as one test.
  if(NOT arg_PROCESS_PER_CASE OR arg_TIER STREQUAL "nightly")
    set_property(GLOBAL APPEND PROPERTY stoker_test_programs ${name})
    add_test(NAME ${name} COMMAND ${name} "--gtest_output=xml:${STOKER_TEST_RESULTS}/${name}.xml")
    set_tests_properties(${name} PROPERTIES ${properties} LABELS "${arg_LABELS} ${arg_TIER}"
      ENVIRONMENT "GTEST_SHUFFLE=1;${arg_ENVIRONMENT}")
    return()
  endif()
  # With DISCOVERY_MODE PRE_TEST the cases are listed when ctest runs, so that a cross build or a sanitizer that cannot run at
  # build time does not break the build. NO_PRETTY_VALUES keeps the names stable: the printed value of a parameter can contain
  # addresses.
  list(JOIN arg_QUICK_CASES ":" quick)
  foreach(cases "quick;${quick}" "${arg_TIER};*-${quick}")
    list(POP_FRONT cases tier)
    if(cases)
      gtest_discover_tests(${name} TEST_FILTER "${cases}" TEST_LIST ${name}_${tier} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
        NO_PRETTY_VALUES PROPERTIES ${properties} LABELS "${arg_LABELS} ${tier}" ENVIRONMENT "${arg_ENVIRONMENT}")
    endif()
  endforeach()
endfunction()

# stoker_list_test_programs(): writes the names of the programs that run as one test each, of which
# scripts/test_results.py requires a file of results.
function(stoker_list_test_programs)
  get_property(programs GLOBAL PROPERTY stoker_test_programs)
  list(JOIN programs "\n" text)
  file(WRITE "${CMAKE_BINARY_DIR}/test-programs.txt" "${text}\n")
endfunction()
