# What `cmake --install` makes: a tree that runs from any folder, with the few libraries of its own (those that are not of
# the C++ or C runtime, nor LibTorch's), without debug information.
#
#   bin/            stokerd, stoker-eval, stokerctl, stoker-libtorch
#   libexec/stoker/ stoker-feed; gpu-check/
#   lib/stoker/     libraries, the CUDA module, and `torch`: a link to the LibTorch to use, made by stoker-libtorch
#
# Without that link, LibTorch is looked for where it was found when stoker was built; LD_LIBRARY_PATH goes before both.
option(STOKER_BUNDLE_LIBRARIES "Install the libraries that stoker needs beside it (off for a distribution's package)" ON)
set(STOKER_LIBRARY_FOLDER "${CMAKE_INSTALL_LIBDIR}/stoker")

# Where a program in a folder finds its libraries; `up` leads from it to the prefix.
function(stoker_rpath out up)
  set(libraries "$ORIGIN/${up}${STOKER_LIBRARY_FOLDER}")
  set(${out} "$ORIGIN" "${libraries}" "${libraries}/torch/lib" ${LibTorch_LIBRARY_DIR} PARENT_SCOPE)
endfunction()
stoker_rpath(CMAKE_INSTALL_RPATH "../")

# stoker_install(TARGET FOLDER [IF_BUILT]): a program, and what it needs. IF_BUILT: one that `programs` does not build; it
# needs no more libraries than the others.
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

# After all programs.
function(stoker_install_libraries)
  if(NOT STOKER_BUNDLE_LIBRARIES)
    return()
  endif()
  install(RUNTIME_DEPENDENCY_SET stoker_libraries
    PRE_EXCLUDE_REGEXES "^lib(torch|c10|gomp|cu|nv|stdc|gcc_s|c[.]|m[.]|dl[.]|rt[.]|pthread|util|resolv)" "^ld-linux"
    LIBRARY DESTINATION "${STOKER_LIBRARY_FOLDER}")
endfunction()
