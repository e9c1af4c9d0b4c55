// libcuda.so.1, the interface of NVIDIA's driver: what LibTorch reads from it.
extern "C" {
int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* is_active) {
  *flags = 0;
  *is_active = 1;
  return device < 0;
}
int cuCtxGetCurrent(void** context) {
  static int of_device;
  *context = &of_device;
  return 0;
}
int cuCtxSetCurrent(void* context) { return context == nullptr; }
int cuGetErrorString(int error, const char** text) {
  *text = error == 0 ? "no error" : "an error of a dry run";
  return 0;
}
}
