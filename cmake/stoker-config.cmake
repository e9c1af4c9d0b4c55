# find_package(stoker): plugins for the installed stoker, with the headers of the LibTorch that it uses.
#
#   stoker_add_plugin(NAME SOURCE…)       NAME.so, for model.path
#   stoker_add_plugin_test(NAME SOURCE…)  a program, of the sources of a plugin and its test
get_filename_component(stoker_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT EXISTS "${stoker_prefix}/bin/stoker-libtorch")
  get_filename_component(stoker_prefix "${stoker_prefix}/.." ABSOLUTE)  # lib/<triple>
endif()
execute_process(COMMAND "${stoker_prefix}/bin/stoker-libtorch" --show OUTPUT_VARIABLE stoker_LIBTORCH
  ERROR_VARIABLE stoker_error RESULT_VARIABLE stoker_code OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT stoker_code EQUAL 0 OR NOT EXISTS "${stoker_LIBTORCH}/include/torch")
  set(stoker_FOUND FALSE)
  set(stoker_NOT_FOUND_MESSAGE "no LibTorch with headers is selected; run stoker-libtorch --install. ${stoker_error}")
  return()
endif()

if(NOT TARGET stoker::plugin)
  add_library(stoker::plugin INTERFACE IMPORTED)
  set_target_properties(stoker::plugin PROPERTIES INTERFACE_COMPILE_FEATURES cxx_std_20
    INTERFACE_INCLUDE_DIRECTORIES
      "${stoker_prefix}/include;${stoker_LIBTORCH}/include;${stoker_LIBTORCH}/include/torch/csrc/api/include")
endif()

# Not linked to LibTorch: a plugin uses that of the program that loads it.
function(stoker_add_plugin name)
  add_library(${name} MODULE ${ARGN})
  target_link_libraries(${name} PRIVATE stoker::plugin)
  set_target_properties(${name} PROPERTIES PREFIX "")
endfunction()

function(stoker_add_plugin_test name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE stoker::plugin -Wl,--no-as-needed "${stoker_LIBTORCH}/lib/libtorch_cpu.so"
    "${stoker_LIBTORCH}/lib/libc10.so" -Wl,--allow-shlib-undefined)
  set_target_properties(${name} PROPERTIES BUILD_RPATH "${stoker_LIBTORCH}/lib")
endfunction()
