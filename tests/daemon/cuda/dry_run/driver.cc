// libcuda.so.1 and libnvidia-ml.so.1, the interfaces of NVIDIA's driver: what LibTorch reads from them. Without the second
// one, LibTorch would load that of an installed driver when it reports that memory is exhausted.
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

int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char*, void** device) {
  *device = nullptr;
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void*) {
  *count = 0;
  return 0;
}
// Not called.
int nvmlDeviceGetNvLinkRemoteDeviceType() { return 1; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2() { return 1; }
int nvmlSystemGetCudaDriverVersion_v2() { return 1; }
}
