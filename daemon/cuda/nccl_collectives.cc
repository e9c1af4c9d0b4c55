#include "daemon/cuda/nccl_collectives.h"

#include <atomic>
#include <cctype>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace stoker::cuda {
namespace {

using Work = c10::intrusive_ptr<c10d::Work>;

void set_default(const char* variable, const std::string& value) {
  (void)::setenv(variable, value.c_str(), /*replace=*/0);
}

// LibTorch and NCCL read these when a group is made.
void set_environment(const group::CollectivesOptions& options) {
  set_default("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0");
  set_default("TORCH_NCCL_ENABLE_MONITORING", "0");  // ends the process, too
  // Else the watchdog ends it by an exception when the device is lost, before the trainer has the exit code.
  set_default("TORCH_NCCL_RETHROW_CUDA_ERRORS", "0");
  // '=': exactly this one. An address is no name of an interface: NCCL chooses.
  const bool is_name = !options.interface.empty() &&
                       std::isalpha(static_cast<unsigned char>(options.interface.front())) != 0 &&
                       options.interface.find(':') == std::string::npos;
  if (options.interface != "auto" && is_name)
    set_default("NCCL_SOCKET_IFNAME", "=" + options.interface);
  else if (options.interface == "auto" && options.is_single_node)
    set_default("NCCL_SOCKET_IFNAME", "=lo");
}

class NcclCollectives final : public group::DeviceCollectives {
 public:
  NcclCollectives(int device, const group::CollectivesOptions& options) {
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
    // As work has: else the sums of gradients would wait for thread blocks of the backward pass.
    auto nccl = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
    nccl->timeout = options.timeout;
    auto keys = c10::make_intrusive<c10d::PrefixStore>(
        options.prefix + "nccl",
        c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(options.store));
    group_ = c10::make_intrusive<c10d::ProcessGroupNCCL>(std::move(keys), options.rank,
                                                         options.world_size, std::move(nccl));
    group_->eagerConnectSingleDevice(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
  }
  // Not shutdown(): that waits for the other ranks, without a limit.
  ~NcclCollectives() override { abort(); }

  void start_all_reduce(const at::Tensor& tensor) override {
    std::vector<at::Tensor> tensors{tensor};
    start(group_->allreduce(tensors));
  }
  void start_reduce(const at::Tensor& tensor, int root) override {
    std::vector<at::Tensor> tensors{tensor};
    c10d::ReduceOptions options;
    options.rootRank = root;
    start(group_->reduce(tensors, options));
  }
  // The current stream waits, not the host.
  void finish_sums() override {
    for (const Work& work : std::exchange(started_, {})) work->wait();
  }

  void broadcast(const at::Tensor& tensor, int root) override {
    std::vector<at::Tensor> tensors{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    in_order(group_->broadcast(tensors, options));
  }
  void all_to_all(const at::Tensor& to, const at::Tensor& from) override {
    at::Tensor output = to, input = from;
    std::vector<int64_t> equal;  // sizes of the parts
    in_order(group_->alltoall_base(output, input, equal, equal));
  }
  void all_gather(const at::Tensor& to, const at::Tensor& from) override {
    at::Tensor output = to, input = from;
    in_order(group_->_allgather_base(output, input));
  }

  bool is_complete() override {
    if (!last_) return true;
    if (!last_->isCompleted()) return false;
    if (const std::exception_ptr failure = last_->exception()) std::rethrow_exception(failure);
    return true;
  }
  void abort() noexcept override {
    if (is_aborted_.exchange(true)) return;
    try {
      group_->abort();
    } catch (const std::exception&) {  // it has ended already
    }
  }

 private:
  void start(Work work) {
    last_ = work;
    started_.push_back(std::move(work));
  }
  void in_order(Work work) {
    last_ = std::move(work);
    last_->wait();
  }

  c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
  std::vector<Work> started_;
  Work last_;
  std::atomic<bool> is_aborted_{false};
};

}  // namespace

// LibTorch's options of a group contain a struct of NCCL's header.
bool is_nccl_of_libtorch() { return c10d::getNcclVersionNumber() == NCCL_VERSION_CODE; }

std::unique_ptr<group::DeviceCollectives> open_nccl_collectives(
    int device, const group::CollectivesOptions& options) {
  set_environment(options);
  return std::make_unique<NcclCollectives>(device, options);
}

}  // namespace stoker::cuda
