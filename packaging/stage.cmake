# Run by CPack on the installed files before it packs them: adds what only packages have.
cmake_minimum_required(VERSION 3.25)
set(source "${CPACK_STOKER_SOURCE_DIR}")

# write_sbom(FOLDER)
function(write_sbom folder)
  file(MAKE_DIRECTORY "${folder}")
  execute_process(COMMAND "${CMAKE_COMMAND}" "-DSOURCE=${source}" "-DVERSION=${CPACK_PACKAGE_VERSION}"
    "-DOUTPUT=${folder}/stoker.spdx.json" -P "${source}/packaging/sbom.cmake" COMMAND_ERROR_IS_FATAL ANY)
endfunction()

if(CPACK_GENERATOR STREQUAL "External")
  return()
elseif(CPACK_GENERATOR STREQUAL "TGZ")
  # The units were installed into CPack's folder; /usr/local is the prefix that systemd also searches.
  file(GLOB_RECURSE units "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/*.service")
  foreach(unit ${units})
    file(READ "${unit}" text)
    string(REGEX REPLACE "\nExecStart=[^ ]*/bin/" "\nExecStart=/usr/local/bin/" text "${text}")
    file(WRITE "${unit}" "${text}")
  endforeach()
  return()
endif()

# A folder of CPack's per component.
set(runtime "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/runtime")
set(dev "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/dev")

function(compress_file file)
  execute_process(COMMAND gzip -9nf "${file}" COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# stage(SOURCE FILE): a copy of SOURCE, or SOURCE.in with variables replaced.
function(stage from to)
  if(EXISTS "${from}.in")
    configure_file("${from}.in" "${to}" @ONLY)
  else()
    configure_file("${from}" "${to}" COPYONLY)
  endif()
  file(CHMOD "${to}" PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
endfunction()

# SOURCE_DATE_EPOCH, if it is set.
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
foreach(component runtime dev)
  set(package stoker)
  if(component STREQUAL "dev")
    set(package stoker-dev)
  endif()
  set(documents "${${component}}/usr/share/doc/${package}")
  stage("${source}/packaging/deb/copyright" "${documents}/copyright")
  stage("${source}/packaging/deb/changelog" "${documents}/changelog")
  compress_file("${documents}/changelog")
endforeach()
write_sbom("${runtime}/usr/share/doc/stoker")
file(GLOB pages "${runtime}/usr/share/man/man*/*.[0-9]")
foreach(page ${pages})
  compress_file("${page}")
endforeach()

# The folder of Debian's zsh for packages.
file(RENAME "${runtime}/usr/share/zsh/site-functions" "${runtime}/usr/share/zsh/vendor-completions")

# The first configuration, which an upgrade does not overwrite (packaging/deb/conffiles).
stage("${source}/config/demo.yaml" "${runtime}/etc/stoker/demo.yaml")
file(READ "${runtime}/etc/stoker/demo.yaml" demo)
string(REPLACE "$schema=stoker.schema.json" "$schema=/usr/share/stoker/config/stoker.schema.json" demo "${demo}")
file(WRITE "${runtime}/etc/stoker/demo.yaml" "${demo}")
stage("${source}/packaging/deb/needrestart.conf" "${runtime}/etc/needrestart/conf.d/stoker.conf")
stage("${source}/packaging/deb/lintian-overrides" "${runtime}/usr/share/lintian/overrides/stoker")
# The administrator's choice of LibTorch is not in /usr.
file(MAKE_DIRECTORY "${runtime}/usr/${CPACK_STOKER_LIBRARY_FOLDER}")
file(CREATE_LINK /etc/stoker/libtorch "${runtime}/usr/${CPACK_STOKER_LIBRARY_FOLDER}/torch" SYMBOLIC)
