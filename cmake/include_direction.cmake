# cmake -DROOT=<tree> [-DUNUSED=ON] -P include_direction.cmake: fails if a folder includes
# headers that it is not allowed to include.
#
# One row per folder lists the folders that it may include in addition to itself. A source folder
# without a row is an error; with UNUSED, so is a row that allows more than is included.
cmake_minimum_required(VERSION 3.25)

set(ALLOW_shared/base "")
set(ALLOW_shared/eval_metrics "shared/base")
set(ALLOW_shared/archive "shared/base")
set(ALLOW_shared/config "shared/base shared/eval_metrics")
set(ALLOW_shared/control "shared/base")
set(ALLOW_shared/data/files "shared/base")
set(ALLOW_shared/image "shared/base")
set(ALLOW_shared/metrics "shared/base")
set(ALLOW_shared/queue "shared/base")
set(ALLOW_shared/ring "shared/base")
set(ALLOW_shared/tokenizer "shared/base")
set(ALLOW_shared/checkpoint "shared/base shared/archive")
set(ALLOW_shared/data "shared/base shared/config shared/data/files")
set(ALLOW_shared/run "shared/base shared/eval_metrics shared/config")
set(ALLOW_shared/data/order "shared/base shared/config shared/data")
set(ALLOW_shared/data/transform "shared/base shared/config shared/image shared/data")
set(ALLOW_shared/pretrained "shared/base shared/config shared/checkpoint")
set(ALLOW_shared/graph "shared/base shared/checkpoint")
set(ALLOW_shared/model "shared/base shared/eval_metrics shared/config shared/checkpoint shared/graph shared/pretrained")
set(ALLOW_shared/retention "shared/base shared/config shared/checkpoint shared/run")
set(ALLOW_shared/data/cache "shared/base shared/tokenizer shared/data/files shared/image shared/data shared/data/transform")
set(ALLOW_shared/data/record "shared/base shared/eval_metrics shared/tokenizer shared/config shared/data/files shared/data shared/data/transform")
set(ALLOW_shared/http "shared/base shared/config")
set(ALLOW_shared/view "shared/base shared/checkpoint shared/config shared/control shared/eval_metrics shared/metrics shared/run")
set(ALLOW_shared/task "shared/base shared/eval_metrics shared/config shared/data/transform shared/data/record shared/model")
set(ALLOW_shared/data/format "shared/base shared/tokenizer shared/archive shared/config shared/data/files shared/image shared/data \
shared/data/transform shared/data/cache shared/data/record")
set(ALLOW_shared/data/stream "shared/base shared/config shared/data/files shared/data shared/data/transform shared/data/record \
shared/data/format")
set(ALLOW_shared/data/pipeline "shared/base shared/config shared/data/files shared/data shared/data/transform \
shared/data/record shared/data/cache shared/data/format shared/data/stream")
set(ALLOW_shared/feed "shared/base shared/config shared/data/files shared/queue shared/ring shared/data \
shared/data/order shared/data/record shared/data/stream")
set(ALLOW_shared/batch "shared/base shared/config shared/metrics shared/data shared/run shared/data/order shared/data/transform \
shared/data/pipeline shared/feed")
set(ALLOW_shared/evaluated_data "shared/base shared/config shared/data/files shared/data shared/data/record shared/data/pipeline \
shared/feed shared/model shared/task")
set(ALLOW_feeder "shared/base shared/tokenizer shared/config shared/image shared/ring shared/data shared/data/record \
shared/data/stream shared/feed shared/data/pipeline")
set(ALLOW_daemon/group "shared/base")
set(ALLOW_daemon/cuda "shared/model daemon/cuda/kernels daemon/group")
set(ALLOW_daemon/cuda/kernels "shared/model")
set(ALLOW_daemon/monitoring "shared/control shared/http shared/view")
set(ALLOW_daemon/parameter_server "shared/base shared/config shared/metrics shared/checkpoint shared/data \
shared/data/order shared/run shared/feed shared/control daemon/group daemon/train daemon/writer")
set(ALLOW_daemon/server "shared/base shared/control")
set(ALLOW_daemon/service "shared/base shared/config shared/control shared/run")
set(ALLOW_daemon/stacks "")
set(ALLOW_daemon/writer "shared/base shared/config shared/checkpoint shared/run shared/retention")
set(ALLOW_daemon/supervisor "shared/base shared/config shared/metrics shared/ring shared/data shared/data/order \
shared/feed")
set(ALLOW_daemon/train "shared/base shared/config shared/control shared/metrics shared/ring shared/checkpoint shared/run \
shared/data shared/data/order shared/pretrained shared/model shared/feed shared/task daemon/cuda daemon/group daemon/writer")
set(ALLOW_daemon/app "shared/base shared/tokenizer shared/config shared/control shared/data/files shared/image shared/metrics \
shared/ring shared/checkpoint shared/data shared/run shared/data/order shared/data/transform shared/pretrained shared/model \
shared/data/record shared/data/stream shared/feed shared/data/pipeline shared/batch shared/view shared/task shared/evaluated_data daemon/monitoring daemon/server daemon/service daemon/writer daemon/supervisor \
daemon/group daemon/parameter_server daemon/train")
set(ALLOW_evaluator "shared/base shared/tokenizer shared/eval_metrics shared/config shared/image shared/metrics shared/checkpoint \
shared/data shared/run shared/data/files shared/data/order shared/data/transform shared/pretrained shared/model shared/data/record shared/task \
shared/data/pipeline shared/evaluated_data")
set(ALLOW_ctl "shared/base shared/tokenizer shared/config shared/control shared/metrics shared/checkpoint shared/pretrained shared/run \
shared/retention shared/batch shared/view shared/http")

# Folders that may include a library; other libraries are not restricted.
set(ONLY_yaml-cpp "shared/config")
set(ONLY_spdlog "shared/base")
set(ONLY_systemd "shared/base")
set(ONLY_elfutils "daemon/stacks")
set(ONLY_prometheus "daemon/monitoring")
set(ONLY_torch "shared/model shared/task daemon/train daemon/cuda daemon/group daemon/parameter_server daemon/app evaluator")
set(ONLY_ATen "${ONLY_torch}")
set(ONLY_c10 "${ONLY_torch}")
set(ONLY_stoker "shared/model")  # include/stoker: the plugin headers
set(ONLY_cuda_runtime_api.h "daemon/cuda daemon/cuda/kernels")

set(bad 0)
macro(complain text)
  message("${text}")
  math(EXPR bad "${bad} + 1")
endmacro()

if(NOT IS_DIRECTORY "${ROOT}")
  message(FATAL_ERROR "give the tree to check: cmake -DROOT=<tree> -P include_direction.cmake")
endif()
file(GLOB_RECURSE files RELATIVE "${ROOT}"
  "${ROOT}/shared/*.h" "${ROOT}/shared/*.cc" "${ROOT}/daemon/*.h" "${ROOT}/daemon/*.cc" "${ROOT}/daemon/*.cu"
  "${ROOT}/feeder/*.h" "${ROOT}/feeder/*.cc" "${ROOT}/evaluator/*.h" "${ROOT}/evaluator/*.cc"
  "${ROOT}/ctl/*.h" "${ROOT}/ctl/*.cc")
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
      list(APPEND "USED_${folder}" "${CMAKE_MATCH_2}")
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

# With UNUSED, each row must list exactly the included folders, so that the rows describe the
# architecture.
if(UNUSED)
  get_cmake_property(variables VARIABLES)
  foreach(variable ${variables})
    if(variable MATCHES "^ALLOW_(.+)$")
      set(folder "${CMAKE_MATCH_1}")
      separate_arguments(allowed UNIX_COMMAND "${${variable}}")
      foreach(other ${allowed})
        if(NOT other IN_LIST "USED_${folder}")
          complain("cmake/include_direction.cmake: ${folder} does not include ${other}; remove it from its row")
        endif()
      endforeach()
    endif()
  endforeach()
endif()

if(bad)
  message(FATAL_ERROR "${bad} include(s) against the direction; the rows are in cmake/include_direction.cmake")
endif()
message(STATUS "${count} files include only what they may")
