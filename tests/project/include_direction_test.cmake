# cmake -DROOT=<repository> -DWORK=<empty folder> -P include_direction_test.cmake: adds one
# violation at a time to a small tree and expects cmake/include_direction.cmake to report it.
cmake_minimum_required(VERSION 3.25)

set(tree "${WORK}/tree")

function(write_clean_tree)
  file(REMOVE_RECURSE "${tree}")
  file(WRITE "${tree}/shared/base/status.h" "#include <string>\n")
  file(WRITE "${tree}/shared/config/config.cc" "#include <yaml-cpp/yaml.h>\n#include \"shared/base/status.h\"\n")
  file(WRITE "${tree}/shared/ring/ring.h" "#include \"shared/base/status.h\"\n")
  file(WRITE "${tree}/shared/model/model.h" "#include <torch/nn/module.h>\n#include \"shared/base/status.h\"\n")
  file(WRITE "${tree}/daemon/server/server.h" "#include \"shared/control/protocol.h\"\n")
endfunction()

function(check result output)
  execute_process(COMMAND "${CMAKE_COMMAND}" "-DROOT=${tree}" ${ARGN} -P "${ROOT}/cmake/include_direction.cmake"
    RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err)
  set(${result} ${code} PARENT_SCOPE)
  set(${output} "${out}${err}" PARENT_SCOPE)
endfunction()

# expect_error(what file text expected…): the check must fail with `text` in `file`, and its
# output must contain `expected`.
function(expect_error what file text expected)
  write_clean_tree()
  file(WRITE "${tree}/${file}" "${text}\n")
  check(code output)
  if(code EQUAL 0)
    message(SEND_ERROR "${what}: was accepted")
  elseif(NOT output MATCHES "${expected}")
    message(SEND_ERROR "${what}: rejected, but without '${expected}':\n${output}")
  endif()
endfunction()

write_clean_tree()
check(code output)
if(NOT code EQUAL 0)
  message(SEND_ERROR "a valid tree was rejected:\n${output}")
endif()

expect_error("a row above" shared/base/bad.h "#include \"shared/config/config.h\"" "shared/base must not include shared/config")
expect_error("a sibling" shared/ring/bad.cc "#include \"shared/data/dataset.h\"" "shared/ring must not include shared/data")
expect_error("an include with blanks" shared/ring/bad.cc "  #  include \"daemon/train/trainer.h\"" "must not include daemon/train")
expect_error("evaluator reaching the daemon" evaluator/bad.cc "#include \"daemon/train/trainer.h\"" "evaluator must not include daemon/train")
expect_error("a relative include" shared/ring/bad.cc "#include \"ring.h\"" "from the root of the repository")
expect_error("a path with .." shared/ring/bad.cc "#include \"../base/status.h\"" "from the root of the repository")
expect_error("a folder without a row" shared/helpers/bad.h "#include <string>" "shared/helpers has no row")
expect_error("yaml-cpp outside config" shared/ring/bad.cc "#include <yaml-cpp/yaml.h>" "may include <yaml-cpp>")
expect_error("spdlog outside base" daemon/server/bad.cc "#include <spdlog/spdlog.h>" "may include <spdlog>")
expect_error("LibTorch in a Torch-free folder" ctl/bad.cc "#include <ATen/ATen.h>" "may include <ATen>")

write_clean_tree()
check(code output -DUNUSED=ON)
if(code EQUAL 0 OR NOT output MATCHES "shared/model does not include shared/checkpoint")
  message(SEND_ERROR "a row that allows more than is included was accepted:\n${output}")
endif()

file(REMOVE_RECURSE "${tree}")
check(code output)
if(code EQUAL 0)
  message(SEND_ERROR "a tree without sources passed: nothing was checked")
endif()
file(REMOVE_RECURSE "${WORK}")
