# Run by CPack (generator External) on the installed files: makes the Python wheel of them.
cmake_minimum_required(VERSION 3.25)
set(prefixes)
foreach(component ${CPACK_COMPONENTS_ALL})
  list(APPEND prefixes "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component}")
endforeach()
execute_process(COMMAND python3 -B "${CPACK_STOKER_SOURCE_DIR}/packaging/wheel.py" "${CPACK_STOKER_SOURCE_DIR}" ${prefixes}
  "${CPACK_PACKAGE_DIRECTORY}" COMMAND_ERROR_IS_FATAL ANY)
file(GLOB CPACK_EXTERNAL_BUILT_PACKAGES "${CPACK_PACKAGE_DIRECTORY}/*.whl")
