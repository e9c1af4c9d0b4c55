# The tree created by `cmake --install`: relocatable, without debug information, with its own copies
# of the few libraries that belong neither to the C/C++ runtime nor to LibTorch.
#
#   bin/            stokerd, stoker-eval, stokerctl, stoker-libtorch
#   libexec/stoker/ stoker-feed; gpu-check/
#   lib/stoker/     libraries, the CUDA module, and `torch`: a link to LibTorch, set by stoker-libtorch
#   share/          man pages, bash completion, stoker/config
#
# Without that link, LibTorch is searched where it was found at build time. LD_LIBRARY_PATH takes
# precedence over both.
option(STOKER_BUNDLE_LIBRARIES "Install stoker's library dependencies with it (off for a distribution's package)" ON)
set(STOKER_LIBRARY_FOLDER "${CMAKE_INSTALL_LIBDIR}/stoker")

# RPATH of a program; `up` is the relative path from its folder to the prefix.
function(stoker_rpath out up)
  set(libraries "$ORIGIN/${up}${STOKER_LIBRARY_FOLDER}")
  set(${out} "$ORIGIN" "${libraries}" "${libraries}/torch/lib" ${LibTorch_LIBRARY_DIR} PARENT_SCOPE)
endfunction()
stoker_rpath(CMAKE_INSTALL_RPATH "../")

# stoker_install(TARGET FOLDER [IF_BUILT]): installs a program and its libraries. IF_BUILT: for a
# program that `programs` does not build and that needs no further libraries.
function(stoker_install target folder)
  string(REGEX REPLACE "[^/]+" ".." up "${folder}")
  stoker_rpath(rpath "${up}/")
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "${rpath}")
  if("IF_BUILT" IN_LIST ARGN)
    install(TARGETS ${target} RUNTIME DESTINATION "${folder}" OPTIONAL)
  else()
    install(TARGETS ${target} RUNTIME_DEPENDENCY_SET stoker_libraries RUNTIME DESTINATION "${folder}")
  endif()
endfunction()

# stoker_install_documents(TARGET SECTION): installs the man page and the bash completion that the
# program prints. It runs on installation, not in each build.
function(stoker_install_documents target section)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/installed")
  install(CODE "
    file(MAKE_DIRECTORY \"${folder}\")
    execute_process(COMMAND \"$<TARGET_FILE:${target}>\" --print-document man
      OUTPUT_FILE \"${folder}/${target}.${section}\" COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND \"$<TARGET_FILE:${target}>\" --print-document completion
      OUTPUT_FILE \"${folder}/${target}.bash\" COMMAND_ERROR_IS_FATAL ANY)")
  install(FILES "${folder}/${target}.${section}" DESTINATION "${CMAKE_INSTALL_MANDIR}/man${section}")
  install(FILES "${folder}/${target}.bash" DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" RENAME ${target})
endfunction()

# Call after all stoker_install().
function(stoker_install_libraries)
  if(NOT STOKER_BUNDLE_LIBRARIES)
    return()
  endif()
  install(RUNTIME_DEPENDENCY_SET stoker_libraries
    PRE_EXCLUDE_REGEXES "^lib(torch|c10|gomp|cu|nv|stdc|gcc_s|c[.]|m[.]|dl[.]|rt[.]|pthread|util|resolv)" "^ld-linux"
    LIBRARY DESTINATION "${STOKER_LIBRARY_FOLDER}")
endfunction()
