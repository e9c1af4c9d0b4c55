# Packages of the installed tree, by CPack: `scripts/package.sh`, or cpack in a build folder.
#
#   stoker_VERSION_amd64.deb       runtime: /usr, with the system's libraries; systemd's user and folders
#   stoker-dev_VERSION_amd64.deb   dev: plugin headers, example, CMake package
#   stoker-VERSION-x86_64.tar.gz   runtime, libraries and dev, relocatable; its units are for /usr/local
#   stoker-VERSION-….whl           the same for a Python environment, whose LibTorch it uses (packaging/wheel.py)
#
# None contains LibTorch or the link to it: stoker-libtorch or pip installs it.
# packaging/stage.cmake adds what the kinds of packages have in addition to the installed tree.
set(CPACK_PACKAGE_NAME stoker)
set(CPACK_PACKAGE_VENDOR stoker)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # the first line of each description
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGE_FILE_NAME "stoker-${PROJECT_VERSION}-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_PACKAGE_DIRECTORY "${CMAKE_BINARY_DIR}/packages")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PROJECT_CONFIG_FILE "${PROJECT_SOURCE_DIR}/packaging/generators.cmake")
set(CPACK_PRE_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/packaging/stage.cmake")
# Independent of the umask.
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
# The wheel, which CPack does not know.
set(CPACK_EXTERNAL_ENABLE_STAGING ON)
set(CPACK_EXTERNAL_PACKAGE_SCRIPT "${PROJECT_SOURCE_DIR}/packaging/wheel.cmake")
set(CPACK_STOKER_SOURCE_DIR "${PROJECT_SOURCE_DIR}")
set(CPACK_STOKER_LIBRARY_FOLDER "${STOKER_LIBRARY_FOLDER}")

set(STOKER_PACKAGE_MAINTAINER "stoker maintainers <maintainers@example.org>" CACHE STRING "Maintainer of the .deb packages, to be set by who publishes them: NAME <ADDRESS>")
set(CPACK_PACKAGE_CONTACT "${STOKER_PACKAGE_MAINTAINER}")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(scripts "${PROJECT_SOURCE_DIR}/packaging/deb")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME stoker)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "training daemon for PyTorch-style models, with a separate evaluator
stokerd trains models in C++ as a systemd service: it saves crash-safe
checkpoints and resumes bit for bit after a crash. stoker-eval evaluates the
checkpoints in a separate process, and stokerctl controls and inspects a run.
.
LibTorch is not part of this package: \"stoker-libtorch --install\" downloads
it, or uses an existing copy.")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${LibTorch_LIBRARY_DIR}")
if(STOKER_CUDART)
  get_filename_component(cudart_folder "${STOKER_CUDART}" DIRECTORY)
  list(APPEND CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${cudart_folder}")
endif()
set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS
  "systemd | systemd-standalone-sysusers | systemd-sysusers, systemd | systemd-standalone-tmpfiles | systemd-tmpfiles")
# For stoker-libtorch --install.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "ca-certificates, python3-venv, unzip")
# librsvg2-bin: stokerctl plot --output FILE.png; python3: the examples of run.on_event_command.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "librsvg2-bin, python3:any, stoker-dev (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA
  "${scripts}/postinst" "${scripts}/prerm" "${scripts}/postrm" "${scripts}/conffiles")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME stoker-dev)
set(CPACK_COMPONENT_DEV_DESCRIPTION "headers for models of stoker in C++
The plugin interface of stoker: headers, a CMake package and an example with
its test. A plugin is compiled with the headers of LibTorch, which
\"stoker-libtorch --install\" downloads.")
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "stoker (= ${PROJECT_VERSION}), python3:any")  # for an example
set(CPACK_DEBIAN_DEV_PACKAGE_RECOMMENDS "g++")
include(CPack)
