# Run by CPack (generator External) on the installed files: makes the Python wheel of them.
cmake_minimum_required(VERSION 3.25)
set(prefixes)
foreach(component ${CPACK_COMPONENTS_ALL})
  list(APPEND prefixes "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component}")
endforeach()
find_program(patchelf patchelf)
if(NOT patchelf)
  message(FATAL_ERROR "the wheel needs patchelf: apt install patchelf")
endif()
execute_process(COMMAND python3 -B "${CPACK_STOKER_SOURCE_DIR}/packaging/wheel.py" "${CPACK_STOKER_SOURCE_DIR}" ${prefixes}
  "${CPACK_PACKAGE_DIRECTORY}" COMMAND_ERROR_IS_FATAL ANY)
file(GLOB CPACK_EXTERNAL_BUILT_PACKAGES "${CPACK_PACKAGE_DIRECTORY}/*.whl")
