# The tree created by `cmake --install`: relocatable, without debug information, with its own copies
# of the few libraries that belong neither to the C/C++ runtime nor to LibTorch.
#
#   bin/            stokerd, stoker-eval, stokerctl, stoker-web, stoker-libtorch
#   libexec/stoker/ stoker-feed, stoker-stacks; gpu-check/
#   lib/stoker/     libraries, the CUDA module, and `torch`: a link to LibTorch, set by stoker-libtorch
#   share/          man pages, bash completion, stoker/config
#
# `cmake --install` creates that link to the LibTorch of the build if there is none; LD_LIBRARY_PATH
# takes precedence over it. The build folder has the same layout, so that programs are linked once,
# with paths relative to themselves: the folder of a build does not change their bytes.
#
# Components: runtime (the default), libraries (copies of libraries), dev, libtorch (the link),
# gpu-check. cmake/Packages.cmake makes packages of the first three.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME runtime)
option(STOKER_BUNDLE_LIBRARIES "Install stoker's library dependencies with it (off for a distribution's package)" ON)
set(STOKER_LIBRARY_FOLDER "${CMAKE_INSTALL_LIBDIR}/stoker")

# RPATH of a program; `up` is the relative path from its folder to the prefix.
function(stoker_rpath out up)
  set(libraries "$ORIGIN/${up}${STOKER_LIBRARY_FOLDER}")
  set(${out} "$ORIGIN" "${libraries}" "${libraries}/torch/lib" ${STOKER_LIBTORCH_RPATH} PARENT_SCOPE)
endfunction()
set(STOKER_LIBTORCH_RPATH "")
if(LibTorch_LIBRARY_DIR AND NOT LibTorch_LIBRARY_DIR MATCHES "/lib$")
  set(STOKER_LIBTORCH_RPATH "${LibTorch_LIBRARY_DIR}")  # a distribution's: not a folder with include/ and lib/
elseif(LibTorch_LIBRARY_DIR)
  get_filename_component(libtorch_folder "${LibTorch_LIBRARY_DIR}" DIRECTORY)
  file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/${STOKER_LIBRARY_FOLDER}")
  file(CREATE_LINK "${libtorch_folder}" "${CMAKE_BINARY_DIR}/${STOKER_LIBRARY_FOLDER}/torch" SYMBOLIC)
  install(CODE "
    set(link \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${STOKER_LIBRARY_FOLDER}/torch\")
    if(NOT IS_SYMLINK \"\${link}\")
      file(MAKE_DIRECTORY \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${STOKER_LIBRARY_FOLDER}\")
      file(CREATE_LINK \"${libtorch_folder}\" \"\${link}\" SYMBOLIC)
    endif()" COMPONENT libtorch)
endif()
stoker_rpath(CMAKE_INSTALL_RPATH "../")

# stoker_install(TARGET FOLDER [IF_BUILT]): installs a program and its libraries. IF_BUILT: for a
# program of gpu-check, which `programs` does not build and which needs no further libraries.
function(stoker_install target folder)
  string(REGEX REPLACE "[^/]+" ".." up "${folder}")
  stoker_rpath(rpath "${up}/")
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "${rpath}")
  if("IF_BUILT" IN_LIST ARGN)
    install(TARGETS ${target} RUNTIME DESTINATION "${folder}" COMPONENT gpu-check OPTIONAL)
  else()
    set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON)
    install(TARGETS ${target} RUNTIME_DEPENDENCY_SET stoker_libraries RUNTIME DESTINATION "${folder}")
  endif()
endfunction()

# stoker_install_documents(TARGET SECTION): installs the man page and the completions that the program
# prints. It runs on installation, not in each build.
function(stoker_install_documents target section)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/installed")
  install(CODE "
    file(MAKE_DIRECTORY \"${folder}\")
    foreach(document man bash zsh fish)
      execute_process(COMMAND \"$<TARGET_FILE:${target}>\" --print-document \${document}
        OUTPUT_FILE \"${folder}/${target}.\${document}\" COMMAND_ERROR_IS_FATAL ANY)
    endforeach()")
  set(share "${CMAKE_INSTALL_DATADIR}")
  install(FILES "${folder}/${target}.man" DESTINATION "${CMAKE_INSTALL_MANDIR}/man${section}" RENAME ${target}.${section})
  install(FILES "${folder}/${target}.bash" DESTINATION "${share}/bash-completion/completions" RENAME ${target})
  install(FILES "${folder}/${target}.zsh" DESTINATION "${share}/zsh/site-functions" RENAME _${target})
  install(FILES "${folder}/${target}.fish" DESTINATION "${share}/fish/vendor_completions.d")
endfunction()

# Call after all stoker_install().
function(stoker_install_libraries)
  if(NOT STOKER_BUNDLE_LIBRARIES)
    return()
  endif()
  install(RUNTIME_DEPENDENCY_SET stoker_libraries
    PRE_EXCLUDE_REGEXES "^lib(torch|c10|gomp|cu|nv|stdc|gcc_s|c[.]|m[.]|dl[.]|rt[.]|pthread|util|resolv)" "^ld-linux"
    LIBRARY DESTINATION "${STOKER_LIBRARY_FOLDER}" COMPONENT libraries)
  # With their licenses, and a bill of materials; the .deb has its own (packaging/stage.cmake).
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/stoker" COMPONENT libraries)
  install(CODE "
    set(prefix \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
    set(documents \"\${prefix}/${CMAKE_INSTALL_DATADIR}/doc/stoker\")
    file(GLOB libraries \"\${prefix}/${STOKER_LIBRARY_FOLDER}/*.so.*\")
    set(names)
    foreach(library \${libraries})
      file(REAL_PATH \"\${library}\" library)
      get_filename_component(name \"\${library}\" NAME)
      list(APPEND names \"*/\${name}\")
    endforeach()
    list(REMOVE_DUPLICATES names)
    # Once for all, because dpkg reads the list of all files.
    execute_process(COMMAND dpkg -S \${names} OUTPUT_VARIABLE owners ERROR_QUIET RESULT_VARIABLE ignored)
    string(REGEX MATCHALL \"[^\\n]+\" owners \"\${owners}\")
    foreach(owner \${owners})
      string(REGEX REPLACE \"[:,].*\" \"\" owner \"\${owner}\")
      if(EXISTS \"/usr/share/doc/\${owner}/copyright\")
        configure_file(\"/usr/share/doc/\${owner}/copyright\" \"\${documents}/licenses/\${owner}\" COPYONLY)
      endif()
    endforeach()
    execute_process(COMMAND \"\${CMAKE_COMMAND}\" \"-DSOURCE=${PROJECT_SOURCE_DIR}\" \"-DVERSION=${PROJECT_VERSION}\"
      \"-DOUTPUT=\${documents}/stoker.spdx.json\" -P \"${PROJECT_SOURCE_DIR}/packaging/sbom.cmake\" COMMAND_ERROR_IS_FATAL ANY)"
    COMPONENT libraries)
endfunction()
