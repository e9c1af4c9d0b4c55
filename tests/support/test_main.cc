// main() of the test programs. One that has loaded LibTorch ends without the destructors of its
// globals: they take 70 ms, a quarter of a short test, and stokerd does not run them either.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include <gmock/gmock.h>

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  if (::dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD) == nullptr) return failed;
  std::fflush(nullptr);
  std::quick_exit(failed);
}
