#include "daemon/cuda/preload_nvrtc.h"

#include <dlfcn.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>

#include "tests/support/temporary_directory.h"

namespace stoker::cuda {
namespace {

constexpr int kMajor = 9999;  // of no installed CUDA

// A directory with the stub libraries of NVRTC under the names of an imaginary version.
class PreloadNvrtcTest : public ::testing::Test {
 protected:
  void add(const std::string& stub, const std::string& name) const {
    std::filesystem::copy_file(std::string(STOKER_STUBS) + '/' + stub, path(name));
  }
  std::string path(const std::string& name) const { return directory_ / name; }

  const test::TemporaryDirectory directory_;
};

TEST_F(PreloadNvrtcTest, MakesBuiltinsFoundByTheirBareName) {
  add("libnvrtc-stub.so.9999", "libnvrtc.so.9999");
  add("libnvrtc-builtins-stub.so.9999.0", "libnvrtc-builtins.so.9999.0");
  EXPECT_EQ(::dlopen("libnvrtc-builtins-stub.so.9999.0", RTLD_LAZY | RTLD_NOLOAD), nullptr);
  EXPECT_EQ(preload_nvrtc(directory_.path(), kMajor), "");
  EXPECT_NE(::dlopen("libnvrtc-builtins-stub.so.9999.0", RTLD_LAZY | RTLD_NOLOAD), nullptr);
}

TEST_F(PreloadNvrtcTest, ReportsMissingLibraries) {
  EXPECT_THAT(preload_nvrtc(directory_.path(), kMajor), ::testing::HasSubstr("libnvrtc.so.9999"));
  add("libnvrtc-stub.so.9999", "libnvrtc.so.9999");
  EXPECT_THAT(preload_nvrtc(directory_.path(), kMajor),
              ::testing::EndsWith("has no libnvrtc-builtins.so.9999"));
}

TEST_F(PreloadNvrtcTest, ReportsLibraryThatCannotBeLoaded) {
  std::ofstream(path("libnvrtc.so.9999")) << "not a library";
  add("libnvrtc-builtins-stub.so.9999.0", "libnvrtc-builtins.so.9999.0");
  EXPECT_THAT(preload_nvrtc(directory_.path(), kMajor), ::testing::HasSubstr("libnvrtc.so.9999"));
}

}  // namespace
}  // namespace stoker::cuda
