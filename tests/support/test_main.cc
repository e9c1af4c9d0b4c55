// main() of the test programs. One that has loaded LibTorch ends without the destructors of its
// globals: they take 70 ms, a quarter of a short test, and stokerd does not run them either, so
// no test may leave a file or a process to such a destructor. A sanitizer reports, and changes the exit status,
// in an exit handler; tools for GPUs may do so, too.
//
// A filter that selects no test fails; a shard that has none does not.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include <gmock/gmock.h>

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  int failed = RUN_ALL_TESTS();
  const testing::UnitTest& tests = *testing::UnitTest::GetInstance();
  if (tests.test_to_run_count() == 0 && !GTEST_FLAG_GET(list_tests) &&
      std::getenv("GTEST_TOTAL_SHARDS") == nullptr) {
    std::fprintf(stderr, "%s: --gtest_filter=%s selects no test; --gtest_list_tests lists them\n",
                 argv[0], GTEST_FLAG_GET(filter).c_str());
    failed = 1;
  }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const auto is_loaded = [](const char* name) {
    return ::dlopen(name, RTLD_LAZY | RTLD_NOLOAD) != nullptr;
  };
  if (is_loaded("libtorch_cpu.so") && !is_loaded("libcuda.so.1")) {
    std::fflush(nullptr);
    std::quick_exit(failed);
  }
#endif
  return failed;
}
