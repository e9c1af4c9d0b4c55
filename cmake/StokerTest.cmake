# stoker_test(NAME SOURCES … LIBS … [LABELS …] [TIMEOUT seconds] [PROCESSORS number] [ENVIRONMENT …]
# [SINGLE_THREADED]): a test program whose cases become ctest tests; with ThreadSanitizer only if
# threads are involved.
# With DISCOVERY_MODE PRE_TEST the cases are listed when ctest runs, so that a cross build or a
# sanitizer that cannot run at build time does not break the build. NO_PRETTY_VALUES keeps the
# names stable: the printed value of a parameter can contain addresses. Test files are compiled with
# little optimization, which takes half the time; GCC uses LibTorch's precompiled header with -O1, but
# not with -O0.
find_package(GTest REQUIRED)
include(GoogleTest)
function(stoker_test name)
  cmake_parse_arguments(arg "SINGLE_THREADED" "TIMEOUT;PROCESSORS" "SOURCES;LIBS;LABELS;ENVIRONMENT;FIXTURES" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(NOT arg_PROCESSORS)
    set(arg_PROCESSORS 1)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE stoker::options ${arg_LIBS} stoker_test_main GTest::gmock GTest::gtest)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    target_compile_options(${name} PRIVATE $<IF:$<BOOL:$<TARGET_PROPERTY:PRECOMPILE_HEADERS_REUSE_FROM>>,-O1,-O0>)
  endif()
  if(arg_SINGLE_THREADED AND STOKER_SANITIZE STREQUAL "thread")
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES
    PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}" ENVIRONMENT "${arg_ENVIRONMENT}"
      FIXTURES_REQUIRED "${arg_FIXTURES}" PROCESSORS ${arg_PROCESSORS})
endfunction()
