// DeviceCollectives: the collectives of a group on the memory of GPUs, one for each rank. The CUDA module
// has those of NCCL.
//
// Each starts after the work that the current stream of the calling thread has, and the later work of
// that stream starts after it. The sums of start_all_reduce() and start_reduce() run concurrently with that
// work until finish_sums(). The host does not wait for any of them.
//
// Threads:  one at a time, except abort(). All ranks must call the same collectives in the same order.
// Blocking: opening them until all ranks have done so. Destroying them calls abort().
// Errors:   LibTorch's exceptions. A rank that is lost, or hangs, is not one: its collectives never
//           complete, so the group must notice it and call abort().
// Owner:    the store must outlive this object.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace at {
class Tensor;
}
namespace c10d {
class Store;
}

namespace stoker::group {

class DeviceCollectives {
 public:
  virtual ~DeviceCollectives() = default;

  // Overwrites the tensor by its sum over all ranks.
  virtual void start_all_reduce(const at::Tensor& tensor) = 0;
  // Same, on rank `root` only; the tensors of the others do not change.
  virtual void start_reduce(const at::Tensor& tensor, int root) = 0;
  virtual void finish_sums() = 0;

  virtual void broadcast(const at::Tensor& tensor, int root) = 0;
  // Of world_size parts of equal size: part r of `from` becomes part `rank` of `to` on rank r.
  virtual void all_to_all(const at::Tensor& to, const at::Tensor& from) = 0;
  // `from` of rank r becomes part r of `to` on all ranks.
  virtual void all_gather(const at::Tensor& to, const at::Tensor& from) = 0;

  // Whether all collectives so far are complete. Throws if the last one failed.
  virtual bool is_complete() = 0;
  // Ends all collectives of this rank, so that the device does not wait for other ranks any more. Their
  // results are undefined. From any thread.
  virtual void abort() noexcept = 0;
};

struct CollectivesOptions {
  c10d::Store* store = nullptr;  // of the group
  std::string prefix;            // of its keys
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout{120'000};
  bool is_single_node = true;
  std::string interface;  // "auto", a name, or an address
};

// Opens them for the device of this rank. LibTorch's exceptions pass through.
using OpenCollectives =
    std::function<std::unique_ptr<DeviceCollectives>(const CollectivesOptions&)>;

}  // namespace stoker::group
