// main() of the test programs. One that has loaded LibTorch ends without the destructors of its
// globals: they take 70 ms, a quarter of a short test, and stokerd does not run them either, so
// no test may leave a file or a process to such a destructor. A sanitizer reports, and changes the exit status,
// in an exit handler.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include <gmock/gmock.h>

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  const int failed = RUN_ALL_TESTS();
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  if (::dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD) != nullptr) {
    std::fflush(nullptr);
    std::quick_exit(failed);
  }
#endif
  return failed;
}
