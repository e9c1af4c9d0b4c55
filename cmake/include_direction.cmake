# cmake -DROOT=<tree> -P include_direction.cmake: fails when a folder includes what it may not.
#
# One row per folder: what it may include besides itself; docs/architecture.md has the rows in words. A folder with sources
# and no row fails too, so that nothing new escapes.
cmake_minimum_required(VERSION 3.25)

set(torch_free_shared "shared/base shared/archive shared/config shared/score shared/run shared/ring shared/dataset shared/image \
shared/checkpoint shared/retention shared/metrics shared/control shared/feed")
set(all_shared "${torch_free_shared} shared/model shared/task")

set(ALLOW_shared/base "")
set(ALLOW_shared/archive "shared/base")
set(ALLOW_shared/config "shared/base")
set(ALLOW_shared/score "shared/base")
set(ALLOW_shared/run "shared/base shared/config shared/score")  # a result holds what was scored
set(ALLOW_shared/ring "shared/base shared/config")
set(ALLOW_shared/image "shared/base shared/config")
set(ALLOW_shared/dataset "shared/base shared/archive shared/config shared/image")  # a sample is decoded where it is read
set(ALLOW_shared/checkpoint "shared/base shared/archive shared/config")
# Which checkpoints are kept follows from what the evaluator found of them.
set(ALLOW_shared/retention "shared/base shared/config shared/run shared/checkpoint")
set(ALLOW_shared/metrics "shared/base shared/config")
set(ALLOW_shared/control "shared/base shared/config")
set(ALLOW_shared/feed "shared/base shared/config shared/ring shared/dataset shared/image")
set(ALLOW_shared/model "shared/base shared/config shared/checkpoint")
set(ALLOW_shared/task "shared/base shared/config shared/score shared/dataset shared/model")  # a loss is computed with a model
set(ALLOW_daemon/feeder "${torch_free_shared}")
set(ALLOW_daemon/checkpoint "${torch_free_shared}")
set(ALLOW_daemon/control "${torch_free_shared}")
set(ALLOW_daemon/service "${torch_free_shared}")
set(ALLOW_daemon/ctl "${torch_free_shared}")
set(ALLOW_daemon/cuda "shared/base")
# daemon/cuda: the module's interface, one header without CUDA. daemon/checkpoint: the trainer hands its snapshots over.
set(ALLOW_daemon/train "${all_shared} daemon/cuda daemon/checkpoint")
set(ALLOW_daemon/daemon_app "${all_shared} daemon/feeder daemon/train daemon/checkpoint daemon/control daemon/service \
daemon/cuda")
set(ALLOW_evaluator "${all_shared}")

# Which folders may include a library. Not named here: free for all.
set(ONLY_yaml-cpp "shared/config")
set(ONLY_spdlog "shared/base")
set(ONLY_torch "shared/model shared/task daemon/train daemon/cuda daemon/daemon_app evaluator")
set(ONLY_ATen "${ONLY_torch}")
set(ONLY_c10 "${ONLY_torch}")
set(ONLY_stoker "shared/model")  # include/stoker: what plugins are compiled with
set(ONLY_cuda_runtime_api.h "daemon/cuda")

set(bad 0)
macro(complain text)
  message("${text}")
  math(EXPR bad "${bad} + 1")
endmacro()

if(NOT IS_DIRECTORY "${ROOT}")
  message(FATAL_ERROR "give the tree to check: cmake -DROOT=<tree> -P include_direction.cmake")
endif()
file(GLOB_RECURSE files RELATIVE "${ROOT}"
  "${ROOT}/shared/*.h" "${ROOT}/shared/*.cc" "${ROOT}/daemon/*.h" "${ROOT}/daemon/*.cc"
  "${ROOT}/evaluator/*.h" "${ROOT}/evaluator/*.cc")
list(LENGTH files count)
if(count EQUAL 0)
  message(FATAL_ERROR "${ROOT}: no sources here; nothing was checked")
endif()

foreach(file ${files})
  get_filename_component(folder "${file}" DIRECTORY)
  if(NOT DEFINED "ALLOW_${folder}")
    complain("${file}: ${folder} has no row in cmake/include_direction.cmake; say there what it may include")
    continue()
  endif()
  separate_arguments(allowed UNIX_COMMAND "${folder} ${ALLOW_${folder}}")
  file(STRINGS "${ROOT}/${file}" lines REGEX "^[ \t]*#[ \t]*include[ \t]*[\"<]")
  foreach(line IN LISTS lines)
    if(line MATCHES "\"(\\.[^\"]*|[^/\"]+)\"")
      complain("${file}: include \"${CMAKE_MATCH_1}\" by its path from the root of the repository")
    elseif(line MATCHES "\"(([^\"]+)/[^/\"]+)\"")
      if(NOT CMAKE_MATCH_2 IN_LIST allowed)
        complain("${file}: ${folder} must not include ${CMAKE_MATCH_1}")
      endif()
    elseif(line MATCHES "<([^/>]+)")
      set(library "${CMAKE_MATCH_1}")
      if(DEFINED "ONLY_${library}")
        separate_arguments(owners UNIX_COMMAND "${ONLY_${library}}")
        if(NOT folder IN_LIST owners)
          complain("${file}: only ${ONLY_${library}} may include <${library}>")
        endif()
      endif()
    endif()
  endforeach()
endforeach()

if(bad)
  message(FATAL_ERROR "${bad} include(s) against the direction; the rows are in cmake/include_direction.cmake")
endif()
message(STATUS "${count} files include only what they may")
