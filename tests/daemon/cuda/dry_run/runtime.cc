#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "tests/daemon/cuda/dry_run/dry_run.h"
#include "tests/daemon/cuda/dry_run/libraries.h"

namespace stoker::cuda {
namespace {

// An H100 without its memory. Of compute capability 8.0: LibTorch then selects attention without cuDNN, whose
// graphs this library cannot describe.
constexpr int kMajor = 8, kProcessors = 132, kSharedBytes = 166912;

struct Capture {
  std::thread::id thread;
  cudaStreamCaptureMode mode;
  unsigned long long id;
  cudaStream_t first;
  bool is_invalid = false;
  std::set<cudaStream_t> streams, not_joined;
  uint64_t nodes = 0;
};

struct StreamState {
  Capture* capture = nullptr;
  uint64_t captured = 0;  // calls that add to a capture, of all captures
};

struct EventState {
  unsigned flags;
  unsigned long long capture_id = 0;  // in which it was recorded, or 0
  cudaStream_t stream = nullptr;
  uint64_t captured = 0;  // of the stream, when it was recorded
  bool is_recorded = false;
  std::chrono::steady_clock::time_point time;
};

uint64_t number_of(const char* variable, uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// More than one for the ranks of a group, each of which is a process.
int num_devices() {
  static const auto number = static_cast<int>(number_of("STOKER_DRY_RUN_DEVICES", 1));
  return number;
}

size_t device_bytes() {
  static const size_t bytes = number_of("STOKER_DRY_RUN_BYTES", uint64_t{8} << 30);
  return bytes;
}

thread_local int current_device = 0;

// Ranges of memory by their first byte.
using Ranges = std::map<const char*, size_t>;

bool contains(const Ranges& ranges, const void* address) {
  auto next = ranges.upper_bound(static_cast<const char*>(address));
  if (next == ranges.begin()) return false;
  --next;
  return static_cast<const char*>(address) < next->first + next->second;
}

struct Runtime {
  std::recursive_mutex mutex;
  std::map<cudaStream_t, std::unique_ptr<StreamState>> streams;
  std::map<cudaEvent_t, std::unique_ptr<EventState>> events;
  std::map<Capture*, std::unique_ptr<Capture>> captures;
  Ranges device_memory, host_memory, registered;
  DryRunCounts counts;
  std::vector<std::string> errors;
  unsigned long long last_capture = 0;
  uint64_t submissions = 0;  // outside of captures
};

// Not destroyed: LibTorch's globals call CUDA at exit.
Runtime& runtime() {
  static auto* const instance = new Runtime;
  return *instance;
}

thread_local cudaError_t last_error = cudaSuccess;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

cudaError_t report(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t report_misuse(cudaError_t error, const std::string& what) {
  runtime().errors.push_back(what);
  return report(error);
}

Capture* capture_of(cudaStream_t stream) {
  const auto found = runtime().streams.find(stream);
  return found == runtime().streams.end() ? nullptr : found->second->capture;
}

EventState* find_event(cudaEvent_t event) {
  const auto found = runtime().events.find(event);
  return found == runtime().events.end() ? nullptr : found->second.get();
}

Capture* find_capture(unsigned long long id) {
  for (const auto& [key, capture] : runtime().captures)
    if (capture->id == id) return key;
  return nullptr;
}

// Counts a call that adds to the capture of a stream. Another stream than the first one then has to be joined.
void add_to_capture(cudaStream_t stream, Capture& capture) {
  ++runtime().streams.at(stream)->captured;
  if (stream != capture.first) capture.not_joined.insert(stream);
}

cudaError_t invalidate(Capture& capture, cudaError_t error) {
  capture.is_invalid = true;
  return report(error);
}

// The error of a kernel, with which the device stays. Submission number STOKER_DRY_RUN_FAULT has it: as on a
// device, the calls after it return it.
cudaError_t device_error() {
  static const uint64_t last = number_of("STOKER_DRY_RUN_FAULT", UINT64_MAX);
  return runtime().submissions < last ? cudaSuccess : cudaErrorIllegalAddress;
}

// For calls that a capture forbids: in mode global to all threads, in mode thread-local to the one that
// began it, unless the calling thread has relaxed its own mode.
cudaError_t check_allowed() {
  if (device_error() != cudaSuccess) return report(device_error());
  if (capture_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  for (const auto& [key, capture] : runtime().captures) {
    const bool is_own = capture->thread == std::this_thread::get_id();
    const bool is_global =
        capture->mode == cudaStreamCaptureModeGlobal && capture_mode == cudaStreamCaptureModeGlobal;
    if (capture->mode != cudaStreamCaptureModeRelaxed && (is_own || is_global))
      return invalidate(*capture, cudaErrorStreamCaptureUnsupported);
  }
  return cudaSuccess;
}

// Kernels, copies, launches of graphs. Sets `is_captured`, with which the work is not executed.
cudaError_t submit(cudaStream_t stream, const std::string& what, bool& is_captured) {
  Runtime& of = runtime();
  is_captured = false;
  if (device_error() != cudaSuccess) return report(device_error());
  if (stream != nullptr && !of.streams.contains(stream))
    return report_misuse(cudaErrorInvalidResourceHandle, what + " on a stream that does not exist");
  if (Capture* const capture = capture_of(stream)) {
    if (capture->is_invalid) return report(cudaErrorStreamCaptureInvalidated);
    is_captured = true;
    add_to_capture(stream, *capture);
    ++capture->nodes;
    ++of.counts.captured_kernels;
    return cudaSuccess;
  }
  ++of.submissions;
  for (const auto& [key, capture] : of.captures)
    if (stream == nullptr && capture->thread == std::this_thread::get_id())
      of.errors.push_back(what + " on the default stream during a capture");
  return cudaSuccess;
}

cudaError_t launch(cudaStream_t stream, const dim3& grid, const dim3& block) {
  const std::lock_guard lock(runtime().mutex);
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (grid.x == 0 || grid.y - 1 > 65534 || grid.z - 1 > 65534 || threads - 1 > 1023)
    return report_misuse(cudaErrorInvalidConfiguration, "the size of a grid");
  bool is_captured = false;
  const cudaError_t error = submit(stream, "kernel", is_captured);
  if (error == cudaSuccess && !is_captured) ++runtime().counts.kernels;
  return error;
}

// Memory of the host that a kernel of a graph may read or write when it is replayed.
bool is_page_locked(const void* memory) {
  return contains(runtime().host_memory, memory) || contains(runtime().registered, memory);
}

// Pages that are zero, and take no memory of the host until they are written.
cudaError_t allocate(void** memory, size_t bytes, Ranges& ranges) {
  *memory = ::mmap(nullptr, std::max<size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (*memory == MAP_FAILED) return report(cudaErrorMemoryAllocation);
  ranges.emplace(static_cast<const char*>(*memory), bytes);
  return cudaSuccess;
}

cudaError_t release(void* memory, Ranges& ranges, uint64_t& bytes) {
  const auto found = ranges.find(static_cast<const char*>(memory));
  if (found == ranges.end())
    return report_misuse(cudaErrorInvalidValue, "free of memory that was not allocated");
  bytes -= found->second;
  ::munmap(memory, std::max<size_t>(found->second, 1));
  ranges.erase(found);
  return cudaSuccess;
}

// The host waits for a stream, or in another way.
cudaError_t wait_for(cudaStream_t stream) {
  const std::lock_guard lock(runtime().mutex);
  ++runtime().counts.waits;
  if (Capture* const capture = capture_of(stream))
    return invalidate(*capture, cudaErrorStreamCaptureUnsupported);
  return check_allowed();
}

struct Configuration {
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
};
thread_local Configuration configuration;

}  // namespace

DryRunCounts dry_run_counts() {
  const std::lock_guard lock(runtime().mutex);
  return runtime().counts;
}

std::vector<std::string> dry_run_errors() {
  const std::lock_guard lock(runtime().mutex);
  return runtime().errors;
}

bool submit_to_library(cudaStream_t stream) {
  return launch(stream, dim3(1), dim3(1)) == cudaSuccess;
}

}  // namespace stoker::cuda

using namespace stoker::cuda;  // NOLINT: the functions of C below

extern "C" {

// ---- Kernels

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*,
                            dim3*, int*) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                     cudaStream_t stream) {
  configuration = {grid, block, shared_bytes, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes,
                                       void* stream) {
  *grid = configuration.grid;
  *block = configuration.block;
  *shared_bytes = configuration.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = configuration.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3 grid, dim3 block, void**, size_t,
                               cudaStream_t stream) {
  return launch(stream, grid, block);
}
cudaError_t cudaLaunchKernel(const void*, dim3 grid, dim3 block, void**, size_t,
                             cudaStream_t stream) {
  return launch(stream, grid, block);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void*, void**) {
  return launch(config->stream, config->gridDim, config->blockDim);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  const std::lock_guard lock(runtime().mutex);
  bool is_captured = false;
  const cudaError_t error = submit(stream, "host function", is_captured);
  if (error == cudaSuccess && !is_captured) function(data);
  return error;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->binaryVersion = attributes->ptxVersion = 10 * kMajor;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  *blocks = 2;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int,
                                                                   size_t, unsigned) {
  *blocks = 2;
  return cudaSuccess;
}
cudaError_t cudaGetSymbolAddress(void** address, const void*) {
  static char memory[1 << 16];
  *address = memory;
  return cudaSuccess;
}
cudaError_t cudaMemcpyToSymbol(const void*, const void*, size_t, size_t, cudaMemcpyKind) {
  return cudaSuccess;
}

// ---- The device

cudaError_t cudaGetDeviceCount(int* count) {
  *count = num_devices();
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= num_devices()) return report(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  static const std::map<int, int> values{{cudaDevAttrComputeCapabilityMajor, kMajor},
                                         {cudaDevAttrComputeCapabilityMinor, 0},
                                         {cudaDevAttrMultiProcessorCount, kProcessors},
                                         {cudaDevAttrMaxSharedMemoryPerBlock, 49152},
                                         {cudaDevAttrMaxSharedMemoryPerBlockOptin, kSharedBytes},
                                         {cudaDevAttrWarpSize, 32},
                                         {cudaDevAttrMaxThreadsPerBlock, 1024},
                                         {cudaDevAttrMaxThreadsPerMultiProcessor, 2048}};
  const auto found = values.find(attribute);
  *value = found == values.end() ? 1 : found->second;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {};
  properties->uuid.bytes[15] = static_cast<char>(device + 1);
  std::strcpy(properties->name, "dry run");
  properties->major = kMajor;
  properties->multiProcessorCount = kProcessors;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->maxBlocksPerMultiProcessor = 32;
  properties->sharedMemPerBlock = 49152;
  properties->sharedMemPerBlockOptin = properties->sharedMemPerMultiprocessor = kSharedBytes;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->totalGlobalMem = device_bytes();
  properties->maxGridSize[0] = 2147483647;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->maxThreadsDim[2] = 64;
  properties->l2CacheSize = 50 << 20;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int) {
  std::strncpy(id, "0000:01:00.0", static_cast<size_t>(size));
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can_access, int, int) {
  *can_access = 0;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  // LibTorch only asks whether it exists.
  *function = reinterpret_cast<void*>(+[] { return cudaErrorNotSupported; });
  if (result != nullptr) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t error) {
  thread_local std::string text;
  text = "CUDA error " + std::to_string(error) + " of a dry run";
  return text.c_str();
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : cudaGetErrorName(error);
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }
cudaError_t cudaDeviceSynchronize() {
  const std::lock_guard lock(runtime().mutex);
  // In each mode: the device includes the streams of all captures.
  if (const auto capture = runtime().captures.begin(); capture != runtime().captures.end())
    return invalidate(*capture->second, cudaErrorStreamCaptureUnsupported);
  return wait_for(nullptr);
}

// ---- Memory

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  const std::lock_guard lock(runtime().mutex);
  if (const cudaError_t error = check_allowed(); error != cudaSuccess) return error;
  DryRunCounts& counts = runtime().counts;
  *memory = nullptr;
  if (counts.device_bytes + bytes > device_bytes()) return report(cudaErrorMemoryAllocation);
  ++counts.allocations;
  counts.device_bytes += bytes;
  return allocate(memory, bytes, runtime().device_memory);
}
cudaError_t cudaFree(void* memory) {
  const std::lock_guard lock(runtime().mutex);
  if (memory == nullptr) return cudaSuccess;
  if (const cudaError_t error = check_allowed(); error != cudaSuccess) return error;
  return release(memory, runtime().device_memory, runtime().counts.device_bytes);
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  const std::lock_guard lock(runtime().mutex);
  if (const cudaError_t error = check_allowed(); error != cudaSuccess) return error;
  runtime().counts.host_bytes += bytes;
  return allocate(memory, bytes, runtime().host_memory);
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) { return cudaHostAlloc(memory, bytes, 0); }
cudaError_t cudaFreeHost(void* memory) {
  const std::lock_guard lock(runtime().mutex);
  if (const cudaError_t error = check_allowed(); error != cudaSuccess) return error;
  return release(memory, runtime().host_memory, runtime().counts.host_bytes);
}
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned) {
  const std::lock_guard lock(runtime().mutex);
  if (const cudaError_t error = check_allowed(); error != cudaSuccess) return error;
  if (!runtime().registered.emplace(static_cast<const char*>(memory), bytes).second)
    return report_misuse(cudaErrorHostMemoryAlreadyRegistered, "memory is registered twice");
  ++runtime().counts.registered_ranges;
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* memory) {
  const std::lock_guard lock(runtime().mutex);
  if (runtime().registered.erase(static_cast<const char*>(memory)) == 0)
    return report_misuse(cudaErrorHostMemoryNotRegistered, "memory is unregistered twice");
  --runtime().counts.registered_ranges;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  const std::lock_guard lock(runtime().mutex);
  *total = device_bytes();
  *free_bytes = device_bytes() - runtime().counts.device_bytes;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  const std::lock_guard lock(runtime().mutex);
  *attributes = {};
  attributes->device = current_device;  // a process uses one
  attributes->devicePointer = attributes->hostPointer = const_cast<void*>(memory);
  attributes->type = contains(runtime().device_memory, memory) ? cudaMemoryTypeDevice
                     : is_page_locked(memory)                  ? cudaMemoryTypeHost
                                                               : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const std::lock_guard lock(runtime().mutex);
  bool is_captured = false;
  if (const cudaError_t error = submit(stream, "copy", is_captured); error != cudaSuccess)
    return error;
  const bool is_pageable = (kind == cudaMemcpyHostToDevice && !is_page_locked(from)) ||
                           (kind == cudaMemcpyDeviceToHost && !is_page_locked(to));
  if (!is_captured) {
    if (is_pageable) ++runtime().counts.waits;  // the call does not return before the copy
    std::memcpy(to, from, bytes);
  } else if (is_pageable) {
    runtime().errors.push_back("captured copy of memory that is not page-locked");
  }
  return cudaSuccess;
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes,
                                cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  if (const cudaError_t error = wait_for(nullptr); error != cudaSuccess) return error;
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  const std::lock_guard lock(runtime().mutex);
  bool is_captured = false;
  if (const cudaError_t error = submit(stream, "memset", is_captured); error != cudaSuccess)
    return error;
  if (!is_captured) std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}

// ---- Events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const std::lock_guard lock(runtime().mutex);
  auto state = std::make_unique<EventState>(EventState{.flags = flags});
  *event = reinterpret_cast<cudaEvent_t>(state.get());
  runtime().events.emplace(*event, std::move(state));
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(runtime().mutex);
  if (runtime().events.erase(event) == 0)
    return report_misuse(cudaErrorInvalidResourceHandle, "an event is destroyed twice");
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  const std::lock_guard lock(runtime().mutex);
  EventState* const state = find_event(event);
  if (state == nullptr)
    return report_misuse(cudaErrorInvalidResourceHandle, "record of an event that does not exist");
  Capture* const capture = capture_of(stream);
  if (capture != nullptr && capture->is_invalid) return report(cudaErrorStreamCaptureInvalidated);
  if ((flags & cudaEventRecordExternal) != 0) {
    // A node of the graph, which records the event at each replay.
    if (capture == nullptr) return report(cudaErrorInvalidValue);
    add_to_capture(stream, *capture);
    ++capture->nodes;
    return cudaSuccess;
  }
  state->capture_id = capture == nullptr ? 0 : capture->id;
  state->stream = stream;
  state->captured = capture == nullptr ? 0 : runtime().streams.at(stream)->captured;
  state->is_recorded = true;
  state->time = std::chrono::steady_clock::now();
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(runtime().mutex);
  const EventState* const state = find_event(event);
  if (state == nullptr)
    return report_misuse(cudaErrorInvalidResourceHandle, "query of an event that does not exist");
  if (state->capture_id != 0) {  // also after the end of the capture
    Capture* const capture = find_capture(state->capture_id);
    return capture == nullptr ? report(cudaErrorCapturedEvent)
                              : invalidate(*capture, cudaErrorCapturedEvent);
  }
  return check_allowed();
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return cudaEventQuery(event); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const std::lock_guard lock(runtime().mutex);
  const EventState *const from = find_event(begin), *const to = find_event(end);
  if (from == nullptr || to == nullptr || !from->is_recorded || !to->is_recorded ||
      ((from->flags | to->flags) & cudaEventDisableTiming) != 0)
    return report_misuse(cudaErrorInvalidResourceHandle, "time between events without a time");
  *milliseconds = std::chrono::duration<float, std::milli>(to->time - from->time).count();
  return cudaSuccess;
}

// ---- Streams and captures

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  const std::lock_guard lock(runtime().mutex);
  auto state = std::make_unique<StreamState>();
  *stream = reinterpret_cast<cudaStream_t>(state.get());
  runtime().streams.emplace(*stream, std::move(state));
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(runtime().mutex);
  runtime().streams.erase(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return wait_for(stream); }
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const std::lock_guard lock(runtime().mutex);
  if (Capture* const capture = capture_of(stream))
    return invalidate(*capture, cudaErrorStreamCaptureUnsupported);
  return check_allowed();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  const std::lock_guard lock(runtime().mutex);
  const EventState* const state = find_event(event);
  if (state == nullptr)
    return report_misuse(cudaErrorInvalidResourceHandle, "wait for an event that does not exist");
  Capture* const own = capture_of(stream);
  if ((flags & cudaEventWaitExternal) != 0)
    return own != nullptr ? cudaSuccess : report(cudaErrorInvalidValue);
  if (Capture* const capture = find_capture(state->capture_id)) {
    const auto found = runtime().streams.find(stream);
    if (found == runtime().streams.end()) return report(cudaErrorStreamCaptureImplicit);
    if (own != nullptr && own != capture) return invalidate(*own, cudaErrorStreamCaptureMerge);
    // The stream becomes part of the capture, and joins what it waits for.
    found->second->capture = capture;
    capture->streams.insert(stream);
    add_to_capture(stream, *capture);
    const auto other = runtime().streams.find(state->stream);
    if (state->stream != stream && other != runtime().streams.end() &&
        other->second->captured == state->captured)
      capture->not_joined.erase(state->stream);
    return cudaSuccess;
  }
  if (state->capture_id != 0)
    return report_misuse(cudaErrorCapturedEvent, "wait for an event of a capture that has ended");
  if (own != nullptr && state->is_recorded)
    return invalidate(*own, cudaErrorStreamCaptureIsolation);
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const std::lock_guard lock(runtime().mutex);
  const auto found = runtime().streams.find(stream);
  if (found == runtime().streams.end()) return report(cudaErrorStreamCaptureUnsupported);
  if (found->second->capture != nullptr) return report(cudaErrorIllegalState);
  auto capture = std::make_unique<Capture>(Capture{.thread = std::this_thread::get_id(),
                                                   .mode = mode,
                                                   .id = ++runtime().last_capture,
                                                   .first = stream});
  capture->streams.insert(stream);
  found->second->capture = capture.get();
  runtime().captures.emplace(capture.get(), std::move(capture));
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard lock(runtime().mutex);
  *graph = nullptr;
  Capture* const capture = capture_of(stream);
  if (capture == nullptr) return report(cudaErrorIllegalState);
  const bool is_wrong_thread = capture->mode != cudaStreamCaptureModeRelaxed &&
                               capture->thread != std::this_thread::get_id();
  const cudaError_t error = is_wrong_thread                ? cudaErrorStreamCaptureWrongThread
                            : capture->is_invalid          ? cudaErrorStreamCaptureInvalidated
                            : !capture->not_joined.empty() ? cudaErrorStreamCaptureUnjoined
                                                           : cudaSuccess;
  for (const cudaStream_t each : capture->streams)
    if (const auto found = runtime().streams.find(each); found != runtime().streams.end())
      found->second->capture = nullptr;
  // Not null; nothing reads it.
  if (error == cudaSuccess) *graph = reinterpret_cast<cudaGraph_t>(capture->nodes + 1);
  runtime().captures.erase(capture);
  return report(error);
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t**, const cudaGraphEdgeData**,
                                     size_t* num_dependencies) {
  const std::lock_guard lock(runtime().mutex);
  const Capture* const capture = capture_of(stream);
  *status = capture == nullptr    ? cudaStreamCaptureStatusNone
            : capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                  : cudaStreamCaptureStatusActive;
  if (capture != nullptr && id != nullptr) *id = capture->id;
  if (graph != nullptr) *graph = nullptr;
  if (num_dependencies != nullptr) *num_dependencies = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return cudaStreamGetCaptureInfo(stream, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long) {
  const std::lock_guard lock(runtime().mutex);
  ++runtime().counts.graphs;
  *executable = reinterpret_cast<cudaGraphExec_t>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t stream) {
  const std::lock_guard lock(runtime().mutex);
  ++runtime().counts.graph_launches;
  bool is_captured = false;
  return submit(stream, "graph", is_captured);
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* count) {
  *count = reinterpret_cast<size_t>(graph) - 1;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) {
  const std::lock_guard lock(runtime().mutex);
  --runtime().counts.graphs;
  return cudaSuccess;
}
}
