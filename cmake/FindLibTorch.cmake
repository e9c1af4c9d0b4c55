# FindLibTorch: LibTorch as imported targets, without a CUDA toolkit.
#
# The TorchConfig.cmake of a PyTorch build with CUDA calls enable_language(CUDA) and therefore
# requires a working nvcc, even for a program that only uses the CPU. stoker needs only the headers
# and these libraries:
#
#   LibTorch::cpu    libc10, libtorch_cpu        every program that uses LibTorch
#   LibTorch::cuda   libc10_cuda, libtorch_cuda  the CUDA module only; defined if the library and the
#                                                CUDA headers are found
#
# Search path: LIBTORCH_DIR (CMake or environment) is a folder with include/ and lib/, such as
# site-packages/torch or an unpacked libtorch zip. Default: .deps/libtorch/torch in the source tree,
# which scripts/deps.sh creates. With STOKER_USE_TORCH_CONFIG=ON, or if there is no such folder,
# find_package(Torch) is used (Debian's libtorch-dev).
set(LIBTORCH_DIR "$ENV{LIBTORCH_DIR}" CACHE PATH "Folder of LibTorch, with include/ and lib/")
option(STOKER_USE_TORCH_CONFIG "Find LibTorch through its own TorchConfig.cmake" OFF)
set(libtorch_root "${LIBTORCH_DIR}")
if(NOT libtorch_root)
  set(libtorch_root "${PROJECT_SOURCE_DIR}/.deps/libtorch/torch")
endif()

if(NOT STOKER_USE_TORCH_CONFIG AND EXISTS "${libtorch_root}/lib/libtorch_cpu.so")
  set(LibTorch_LIBRARY_DIR "${libtorch_root}/lib")
  set(LibTorch_INCLUDE_DIRS "${libtorch_root}/include" "${libtorch_root}/include/torch/csrc/api/include")
  # The first is that of 2.8 and later.
  foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(NOT LibTorch_VERSION AND EXISTS "${libtorch_root}/include/${header}")
      file(STRINGS "${libtorch_root}/include/${header}" numbers REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      list(TRANSFORM numbers REPLACE ".* " "")
      list(JOIN numbers "." LibTorch_VERSION)
    endif()
  endforeach()
  if(NOT TARGET LibTorch::cpu)
    add_library(LibTorch::c10 SHARED IMPORTED)
    set_target_properties(LibTorch::c10 PROPERTIES IMPORTED_LOCATION "${libtorch_root}/lib/libc10.so"
      INTERFACE_INCLUDE_DIRECTORIES "${LibTorch_INCLUDE_DIRS}"
      # Its headers' assertions hold their path: everywhere that of the default folder.
      INTERFACE_COMPILE_OPTIONS "-ffile-prefix-map=${libtorch_root}/=.deps/libtorch/torch/")
    add_library(LibTorch::cpu SHARED IMPORTED)
    set_target_properties(LibTorch::cpu PROPERTIES IMPORTED_LOCATION "${libtorch_root}/lib/libtorch_cpu.so"
      INTERFACE_INCLUDE_DIRECTORIES "${LibTorch_INCLUDE_DIRS}" INTERFACE_LINK_LIBRARIES LibTorch::c10)
    # Link only the directly used libraries; the dependencies of libtorch_cpu (cudart, cupti) are
    # found through its RPATH.
    set_property(TARGET LibTorch::cpu PROPERTY INTERFACE_LINK_OPTIONS "-Wl,--allow-shlib-undefined")
    # Included by cuda_runtime_api.h, but part of a separate package.
    find_path(LibTorch_CUDA_INCLUDE crt/host_defines.h
      HINTS "${libtorch_root}/../nvidia/cu13/include" ENV CUDA_PATH PATHS /usr/local/cuda/include)
    if(LibTorch_CUDA_INCLUDE AND EXISTS "${libtorch_root}/lib/libtorch_cuda.so")
      add_library(LibTorch::c10_cuda SHARED IMPORTED)
      set_target_properties(LibTorch::c10_cuda PROPERTIES IMPORTED_LOCATION "${libtorch_root}/lib/libc10_cuda.so")
      add_library(LibTorch::cuda SHARED IMPORTED)
      set_target_properties(LibTorch::cuda PROPERTIES IMPORTED_LOCATION "${libtorch_root}/lib/libtorch_cuda.so"
        INTERFACE_INCLUDE_DIRECTORIES "${LibTorch_INCLUDE_DIRS};${LibTorch_CUDA_INCLUDE}"
        INTERFACE_COMPILE_OPTIONS "-ffile-prefix-map=${LibTorch_CUDA_INCLUDE}=.deps/libtorch/nvidia/cu13/include"
        INTERFACE_LINK_LIBRARIES "LibTorch::cpu;LibTorch::c10_cuda")
    endif()
  endif()
else()
  find_package(Torch QUIET CONFIG)
  if(Torch_FOUND)
    if(TORCH_CXX_FLAGS MATCHES "_GLIBCXX_USE_CXX11_ABI=0")
      message(FATAL_ERROR "This LibTorch was built for the old C++ ABI; take one from PyTorch 2.7 or later")
    endif()
    set(LibTorch_VERSION "${Torch_VERSION}")
    set(LibTorch_INCLUDE_DIRS "${TORCH_INCLUDE_DIRS}")
    find_library(LibTorch_C10 c10 HINTS "${TORCH_INSTALL_PREFIX}/lib" REQUIRED)
    get_filename_component(LibTorch_LIBRARY_DIR "${LibTorch_C10}" DIRECTORY)
    if(NOT TARGET LibTorch::cpu)
      # Only the CPU libraries of a CUDA build, so that programs without the CUDA module start
      # without CUDA.
      set(cpu_libraries "${TORCH_LIBRARIES}")
      if(TARGET torch_cpu_library)
        set(cpu_libraries torch_cpu_library c10)
      endif()
      add_library(LibTorch::cpu INTERFACE IMPORTED)
      set_target_properties(LibTorch::cpu PROPERTIES INTERFACE_LINK_LIBRARIES "${cpu_libraries}"
        INTERFACE_INCLUDE_DIRECTORIES "${TORCH_INCLUDE_DIRS}" INTERFACE_LINK_OPTIONS "-Wl,--allow-shlib-undefined")
      if(TARGET torch_cuda_library)
        add_library(LibTorch::cuda INTERFACE IMPORTED)
        set_target_properties(LibTorch::cuda PROPERTIES
          INTERFACE_LINK_LIBRARIES "LibTorch::cpu;torch_cuda_library;c10_cuda")
      endif()
    endif()
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch REQUIRED_VARS LibTorch_INCLUDE_DIRS VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "run scripts/deps.sh, or set LIBTORCH_DIR to a folder of LibTorch >= 2.6, or configure with -DSTOKER_TORCH=OFF")
