// Two GPUs; the second one reports neither load nor power.
#include <cstdio>

extern "C" {
struct Utilization {
  unsigned gpu, memory;
};
struct Memory {
  unsigned long long total, free, used;
};
static int devices[2];
constexpr int kNotSupported = 3;

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = &devices[index];
  return 0;
}
int nvmlDeviceGetName(void* device, char* name, unsigned size) {
  std::snprintf(name, size, "Fake %d", device == &devices[1]);
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* device, Utilization* utilization) {
  utilization->gpu = 87;
  return device == &devices[1] ? kNotSupported : 0;
}
int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  *memory = {.total = 80'000'000'000, .free = 49'000'000'000, .used = 31'000'000'000};
  return 0;
}
int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) {
  *celsius = 65;
  return 0;
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  *milliwatts = 410'500;
  return device == &devices[1] ? kNotSupported : 0;
}
}
