// The functions of cuBLAS, cuDNN and NCCL that LibTorch calls for stoker's models. They are declared by what
// they do here, without the types of the libraries, whose headers the build does not need: on x86-64 a
// function can ignore its arguments.
#include "tests/daemon/cuda/dry_run/libraries.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kSuccess = 0;  // of all libraries
// What they return for an error of the device: CUBLAS_STATUS_EXECUTION_FAILED, CUDNN_STATUS_EXECUTION_FAILED,
// ncclUnhandledCudaError.
constexpr int kFailedInCublas = 13, kFailedInCudnn = 5000, kFailedInNccl = 1;
constexpr size_t kObjectBytes = 4096;  // more than any descriptor

thread_local cudaStream_t stream_of_cublas = nullptr, stream_of_cudnn = nullptr;

int submit(cudaStream_t stream, int error) {
  return stoker::cuda::submit_to_library(stream) ? kSuccess : error;
}
int submit_to_cublas(cudaStream_t stream) { return submit(stream, kFailedInCublas); }
int submit_to_cudnn(cudaStream_t stream) { return submit(stream, kFailedInCudnn); }
int submit_to_nccl(cudaStream_t stream) { return submit(stream, kFailedInNccl); }

int create(void** object) {
  *object = std::calloc(1, kObjectBytes);
  return kSuccess;
}
int destroy(void* object) {
  std::free(object);
  return kSuccess;
}

struct Communicator {
  int size, rank;
};

struct TensorDescriptor {
  int type, num_dims, dims[8], strides[8];
};

// LSTM layers; a direction is a layer.
constexpr int kGates = 4;
struct RnnDescriptor {
  int type, input_size, hidden_size, num_layers, num_directions;

  size_t element_bytes() const { return type == 0 ? 4 : 2; }  // 0: F32
  int inputs_of(int layer) const {
    return layer < num_directions ? input_size : hidden_size * num_directions;
  }
  size_t matrix_bytes(int layer) const {
    return element_bytes() *
           static_cast<size_t>(kGates * hidden_size * (inputs_of(layer) + hidden_size));
  }
  // Of the layers before one.
  size_t layer_bytes(int layer) const {
    size_t bytes = 0;
    for (int i = 0; i < layer; ++i)
      bytes += matrix_bytes(i) + element_bytes() * static_cast<size_t>(2 * kGates * hidden_size);
    return bytes;
  }
};

}  // namespace

#define STOKER_SUCCEEDS(name) \
  int name() { return kSuccess; }
#define STOKER_CREATES(name) \
  int name(void** object) { return create(object); }
#define STOKER_DESTROYS(name) \
  int name(void* object) { return destroy(object); }
#define STOKER_SUBMITS_TO_CUBLAS(name) \
  int name() { return submit_to_cublas(stream_of_cublas); }
#define STOKER_SUBMITS_TO_CUDNN(name) \
  int name() { return submit_to_cudnn(stream_of_cudnn); }

extern "C" {

// ---- cuBLAS

STOKER_CREATES(cublasCreate_v2)
STOKER_DESTROYS(cublasDestroy_v2)
STOKER_SUCCEEDS(cublasSetWorkspace_v2)
STOKER_SUCCEEDS(cublasSetMathMode)
STOKER_SUCCEEDS(cublasSetPointerMode_v2)
int cublasSetStream_v2(void*, cudaStream_t stream) {
  stream_of_cublas = stream;
  return kSuccess;
}
int cublasGetMathMode(void*, int* mode) {
  *mode = 0;
  return kSuccess;
}
int cublasGetPointerMode_v2(void*, int* mode) {
  *mode = 0;
  return kSuccess;
}
STOKER_SUBMITS_TO_CUBLAS(cublasGemmEx)
STOKER_SUBMITS_TO_CUBLAS(cublasGemmStridedBatchedEx)
STOKER_SUBMITS_TO_CUBLAS(cublasSgemm_v2)
STOKER_SUBMITS_TO_CUBLAS(cublasDgemm_v2)
STOKER_SUBMITS_TO_CUBLAS(cublasSgemmStridedBatched)
STOKER_SUBMITS_TO_CUBLAS(cublasSgemv_v2)
STOKER_SUBMITS_TO_CUBLAS(cublasSdot_v2)
STOKER_SUBMITS_TO_CUBLAS(cublasDotEx)

STOKER_CREATES(cublasLtMatmulDescCreate)
STOKER_DESTROYS(cublasLtMatmulDescDestroy)
STOKER_SUCCEEDS(cublasLtMatmulDescSetAttribute)
STOKER_CREATES(cublasLtMatmulPreferenceCreate)
STOKER_DESTROYS(cublasLtMatmulPreferenceDestroy)
STOKER_SUCCEEDS(cublasLtMatmulPreferenceSetAttribute)
STOKER_CREATES(cublasLtMatrixLayoutCreate)
STOKER_DESTROYS(cublasLtMatrixLayoutDestroy)
STOKER_SUCCEEDS(cublasLtMatrixLayoutSetAttribute)
size_t cublasLtGetVersion() { return 130100; }
// One algorithm without a workspace: all of the result's 96 bytes are 0.
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int,
                                   void* results, int* count) {
  std::memset(results, 0, 96);
  *count = 1;
  return kSuccess;
}
int cublasLtMatmul(void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*,
                   void*, void*, void*, size_t, cudaStream_t stream) {
  return submit_to_cublas(stream);
}

// ---- cuDNN: graphs of operations, each with one engine; batch normalization and RNNs of its older interface

STOKER_CREATES(cudnnCreate)
STOKER_DESTROYS(cudnnDestroy)
size_t cudnnGetVersion() { return 91900; }
size_t cudnnGetCudartVersion() { return CUDART_VERSION; }
const char* cudnnGetErrorString(int) { return "an error of a dry run"; }
int cudnnSetStream(void*, cudaStream_t stream) {
  stream_of_cudnn = stream;
  return kSuccess;
}
int cudnnGetStream(void*, cudaStream_t* stream) {
  *stream = stream_of_cudnn;
  return kSuccess;
}
int cudnnBackendCreateDescriptor(int, void** object) { return create(object); }
STOKER_DESTROYS(cudnnBackendDestroyDescriptor)
STOKER_SUCCEEDS(cudnnBackendFinalize)
STOKER_SUCCEEDS(cudnnBackendSetAttribute)
// Lists have one element; numbers, as the size of a workspace, are 0.
int cudnnBackendGetAttribute(void*, int, int type, int64_t capacity, int64_t* count,
                             void* elements) {
  constexpr int kInt64 = 3;
  if (count != nullptr) *count = 1;
  if (type == kInt64 && capacity > 0 && elements != nullptr) std::memset(elements, 0, 8);
  return kSuccess;
}
STOKER_SUBMITS_TO_CUDNN(cudnnBackendExecute)

STOKER_CREATES(cudnnCreateTensorDescriptor)
STOKER_DESTROYS(cudnnDestroyTensorDescriptor)
int cudnnSetTensorNdDescriptor(TensorDescriptor* tensor, int type, int num_dims, const int* dims,
                               const int* strides) {
  tensor->type = type;
  tensor->num_dims = num_dims;
  std::copy_n(dims, num_dims, tensor->dims);
  std::copy_n(strides, num_dims, tensor->strides);
  return kSuccess;
}
int cudnnGetTensorNdDescriptor(const TensorDescriptor* tensor, int capacity, int* type,
                               int* num_dims, int* dims, int* strides) {
  *type = tensor->type;
  *num_dims = tensor->num_dims;
  std::copy_n(tensor->dims, std::min(capacity, tensor->num_dims), dims);
  std::copy_n(tensor->strides, std::min(capacity, tensor->num_dims), strides);
  return kSuccess;
}
STOKER_CREATES(cudnnCreateActivationDescriptor)
STOKER_DESTROYS(cudnnDestroyActivationDescriptor)
STOKER_SUCCEEDS(cudnnSetActivationDescriptor)
int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void*, int, int, void*, void*, void*,
                                                             void*, void*, size_t* bytes) {
  *bytes = 0;
  return kSuccess;
}
int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void*, int, int, void*, void*, void*, void*,
                                                      void*, void*, void*, size_t* bytes) {
  *bytes = 0;
  return kSuccess;
}
int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void*, int, int, void*, void*,
                                                         size_t* bytes) {
  *bytes = 0;
  return kSuccess;
}
STOKER_SUBMITS_TO_CUDNN(cudnnBatchNormalizationForwardTrainingEx)
STOKER_SUBMITS_TO_CUDNN(cudnnBatchNormalizationForwardInference)
STOKER_SUBMITS_TO_CUDNN(cudnnBatchNormalizationBackwardEx)

STOKER_CREATES(cudnnCreateDropoutDescriptor)
STOKER_DESTROYS(cudnnDestroyDropoutDescriptor)
STOKER_SUBMITS_TO_CUDNN(cudnnSetDropoutDescriptor)
STOKER_SUCCEEDS(cudnnRestoreDropoutDescriptor)
int cudnnDropoutGetStatesSize(void*, size_t* bytes) {
  *bytes = 1024;
  return kSuccess;
}
STOKER_CREATES(cudnnCreateRNNDataDescriptor)
STOKER_DESTROYS(cudnnDestroyRNNDataDescriptor)
STOKER_SUCCEEDS(cudnnSetRNNDataDescriptor)
STOKER_CREATES(cudnnCreateRNNDescriptor)
STOKER_DESTROYS(cudnnDestroyRNNDescriptor)
int cudnnSetRNNDescriptor_v8(RnnDescriptor* rnn, int, int, int, int direction, int, int type, int,
                             int, int input_size, int hidden_size, int, int num_layers, void*,
                             unsigned) {
  *rnn = {type, input_size, hidden_size, num_layers, direction == 0 ? 1 : 2};
  return kSuccess;
}
int cudnnGetRNNWeightSpaceSize(void*, const RnnDescriptor* rnn, size_t* bytes) {
  *bytes = rnn->layer_bytes(rnn->num_layers * rnn->num_directions);
  return kSuccess;
}
int cudnnGetRNNTempSpaceSizes(void*, void*, int, void*, size_t* maybe_workspace,
                              size_t* maybe_reserve) {
  if (maybe_workspace != nullptr) *maybe_workspace = 1024;
  if (maybe_reserve != nullptr) *maybe_reserve = 1024;
  return kSuccess;
}
// The matrices of a layer come first, then its biases. Without a descriptor, these are not needed.
int cudnnGetRNNWeightParams(void*, const RnnDescriptor* rnn, int layer, size_t, char* weights,
                            int gate, TensorDescriptor* maybe_matrix, void** matrix_address,
                            TensorDescriptor* maybe_bias, void** bias_address) {
  const int rows = rnn->hidden_size, inputs = rnn->inputs_of(layer);
  char* const of_layer = weights + rnn->layer_bytes(layer);
  if (maybe_matrix != nullptr) {
    const int columns = gate < kGates ? inputs : rows;
    *maybe_matrix = {rnn->type, 3, {1, rows, columns}, {rows * columns, columns, 1}};
    const int values = rows * (std::min(gate, kGates) * inputs + std::max(gate - kGates, 0) * rows);
    *matrix_address = of_layer + rnn->element_bytes() * static_cast<size_t>(values);
  }
  if (maybe_bias != nullptr) {
    *maybe_bias = {rnn->type, 3, {1, rows, 1}, {rows, 1, 1}};
    *bias_address = of_layer + rnn->matrix_bytes(layer) +
                    rnn->element_bytes() * static_cast<size_t>(rows * gate);
  }
  return kSuccess;
}
STOKER_SUBMITS_TO_CUDNN(cudnnRNNForward)
STOKER_SUBMITS_TO_CUDNN(cudnnRNNBackwardData_v8)
STOKER_SUBMITS_TO_CUDNN(cudnnRNNBackwardWeights_v8)

// ---- NCCL: the other ranks are not met, and nothing is summed

STOKER_SUCCEEDS(ncclGroupStart)
STOKER_SUCCEEDS(ncclGroupEnd)
STOKER_SUCCEEDS(ncclCommRegister)
STOKER_SUCCEEDS(ncclCommDeregister)
STOKER_SUCCEEDS(ncclCommFinalize)
const char* ncclGetErrorString(int) { return "an error of a dry run"; }
const char* ncclGetLastError(void*) { return "none"; }
int ncclGetVersion(int* version) {
  *version = 22809;
  return kSuccess;
}
int ncclGetUniqueId(void* id) {
  std::memset(id, 0, 128);
  return kSuccess;
}
struct UniqueId {
  char bytes[128];
};
int ncclCommInitRank(Communicator** communicator, int size, UniqueId, int rank) {
  *communicator = new Communicator{size, rank};
  return kSuccess;
}
int ncclCommInitRankConfig(Communicator** communicator, int size, UniqueId id, int rank, void*) {
  return ncclCommInitRank(communicator, size, id, rank);
}
int ncclCommGetAsyncError(void*, int* error) {
  *error = kSuccess;
  return kSuccess;
}
int ncclCommCount(const Communicator* communicator, int* count) {
  *count = communicator->size;
  return kSuccess;
}
int ncclCommUserRank(const Communicator* communicator, int* rank) {
  *rank = communicator->rank;
  return kSuccess;
}
int ncclCommDestroy(Communicator* communicator) {
  delete communicator;
  return kSuccess;
}
int ncclCommAbort(Communicator* communicator) { return ncclCommDestroy(communicator); }
int ncclAllReduce(const void*, void*, size_t, int, int, void*, cudaStream_t stream) {
  return submit_to_nccl(stream);
}
int ncclReduceScatter(const void*, void*, size_t, int, int, void*, cudaStream_t stream) {
  return submit_to_nccl(stream);
}
int ncclAllGather(const void*, void*, size_t, int, void*, cudaStream_t stream) {
  return submit_to_nccl(stream);
}
int ncclBroadcast(const void*, void*, size_t, int, int, void*, cudaStream_t stream) {
  return submit_to_nccl(stream);
}
int ncclBcast(void*, size_t, int, int, void*, cudaStream_t stream) {
  return submit_to_nccl(stream);
}
int ncclReduce(const void*, void*, size_t, int, int, int, void*, cudaStream_t stream) {
  return submit_to_nccl(stream);
}
int ncclAlltoAll(const void*, void*, size_t, int, void*, cudaStream_t stream) {
  return submit_to_nccl(stream);
}
int ncclSend(const void*, size_t, int, int, void*, cudaStream_t stream) {
  return submit_to_nccl(stream);
}
int ncclRecv(void*, size_t, int, int, void*, cudaStream_t stream) { return submit_to_nccl(stream); }
}
