// ProcessGroup: the ranks that train one run, and their collectives.
//
// Threads:  one: all ranks must call the same collectives in the same order.
// Blocking: a collective waits for the other ranks, at most for the group's timeout; a stop wakes
//           it within 100 ms, after which the group cannot be used any more.
// Errors:   kPeerLost: a rank exited, hangs or cannot be reached; the message names it and its host.
//           The process must then exit with ExitCode::kCollectiveTimedOut, and its launcher restart
//           all ranks. kCancelled: stopped. Tensors are undefined after an error.
// Crash:    the other ranks get kPeerLost.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "daemon/group/device_collectives.h"
#include "shared/base/status.h"

namespace at {
class Tensor;  // so that this header does not include LibTorch
}

namespace stoker::group {

// Names and values that must be the same on all ranks, such as settings.
using SharedSettings = std::vector<std::pair<std::string, std::string>>;

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  bool is_chief() const { return rank() == 0; }

  // The step of the collectives that follow, for records of them.
  virtual void begin_step(uint64_t) {}

  // The collectives accept tensors in host memory and, after this, also of GPUs, of which each rank has one.
  // The host does not wait for those, except in broadcast(). If a rank is lost, they are ended, so that a wait of the
  // host for its GPU ends too, and the next collective, or check_lost(), returns the error. All ranks must call it.
  virtual Status add_devices(const OpenCollectives&) {
    return Status(StatusCode::kInternal, "this group has no GPUs");
  }
  // Waits until the collectives of GPUs so far are complete, for the timeout of the group: before work of
  // the host that nothing else limits, such as the last checkpoint. Nothing without GPUs, or
  // after an error.
  virtual Status wait_for_devices(const std::stop_token&) { return {}; }
  // kPeerLost if another rank is lost, so that collectives of GPUs were ended: all that depends on them is then
  // undefined. Finds that without a collective. Nothing without GPUs.
  virtual Status check_lost() { return {}; }
  // After that, at the end of a run: waits for the start timeout until all ranks have called this, so that none
  // still reads from another, and then closes the collectives of GPUs, in any case. Nothing without GPUs.
  virtual Status end_devices(const std::stop_token&) { return {}; }

  // Overwrites the tensor by that of rank `root`.
  virtual Status broadcast(const at::Tensor& tensor, int root, const std::stop_token& stop) = 0;
  // Overwrites each tensor by its sum over all ranks, added in a fixed tree: the first half of the
  // ranks plus the second half, recursively. The bytes of the result depend only on the tensors, and
  // are equal on all ranks. All tensors are in host memory, or none.
  virtual Status all_reduce_ordered(const std::vector<at::Tensor>& tensors,
                                    const std::stop_token& stop) = 0;

  // Elements ends[r - 1] … ends[r] of the flat tensor become those of rank r, from 0 on, for all ranks
  // r. The last end is the number of elements.
  virtual Status all_gather(const at::Tensor& flat, const std::vector<int64_t>& ends,
                            const std::stop_token& stop) = 0;

  // Sums in two parts, for the computation in between. The tensor must not be used before
  // finish_sums(), which waits for all sums that have been started. Between the two there are no other
  // collectives.
  //
  // By the collective of the backend: the order of the sum, and with it the bytes of the result, depend
  // on the number of ranks; they are equal on all ranks.
  virtual Status start_all_reduce(const at::Tensor& tensor) = 0;
  // Each rank r gets the sum of its elements ends[r - 1] … ends[r] of the flat tensor only; those of
  // other ranks do not change. Host memory is added in the tree of all_reduce_ordered(), GPUs' in the order of
  // their backend. The last end is the number of elements.
  virtual Status start_reduce_scatter(const at::Tensor& flat, const std::vector<int64_t>& ends) = 0;
  virtual Status finish_sums(const std::stop_token& stop) = 0;

  // The next three do not use the connections between the ranks, and wait for the start timeout.
  //
  // Compares the settings of all ranks with those of rank 0. kMismatch on all ranks, with the same
  // message, which names the first difference and its rank. The group has then ended.
  virtual Status check_same(const SharedSettings& settings, const std::stop_token& stop) = 0;
  // Returns the text of rank 0 when it has called this.
  virtual Result<std::string> text_of_chief(const std::string& text,
                                            const std::stop_token& stop) = 0;
  // The texts of all ranks, by rank, on the chief; nothing on the others, which do not wait.
  virtual Result<std::vector<std::string>> gather(const std::string& text,
                                                  const std::stop_token& stop) = 0;

  // The next five may be called from any thread. Texts for other ranks: the last one that the rank has
  // sent under this name; empty: none.
  virtual Status send_text(const std::string& name, const std::string& text) = 0;
  virtual Result<std::string> receive_text(const std::string& name, int of_rank) = 0;
  // kPeerLost, which names the rank, if any has failed, or `rank` is known to have exited: on the host
  // of this one. The chief knows of all ranks, the others of the chief.
  virtual Status check_rank(int rank) = 0;
  // kPeerLost if this group has been replaced by another one, or cannot be reached: nothing of the run
  // may be changed any more.
  virtual Status check_newest() = 0;
  // "rank 3 (node-2, pid 4711)"
  virtual std::string name_of(int rank) = 0;

  // Whether this rank, after an error of a collective, waits until others have read the reason, as in
  // report_failure(). From any thread.
  virtual bool is_leaving() const { return false; }

  // Tells the other ranks why this one leaves. If the chief serves the store, it waits until they have
  // left: at most 20 s, and 10 s for those that have not joined. Does nothing after an error of a
  // collective, which the others get too.
  virtual void report_failure(const Status& reason) = 0;
};

// The group of a process that trains alone. Its collectives do nothing, and LibTorch's distributed
// code is never called.
class SingleProcessGroup final : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  Status broadcast(const at::Tensor&, int, const std::stop_token&) override { return {}; }
  Status all_reduce_ordered(const std::vector<at::Tensor>&, const std::stop_token&) override {
    return {};
  }
  Status all_gather(const at::Tensor&, const std::vector<int64_t>&,
                    const std::stop_token&) override {
    return {};
  }
  Status start_all_reduce(const at::Tensor&) override { return {}; }
  Status start_reduce_scatter(const at::Tensor&, const std::vector<int64_t>&) override {
    return {};
  }
  Status finish_sums(const std::stop_token&) override { return {}; }
  Status check_same(const SharedSettings&, const std::stop_token&) override { return {}; }
  Result<std::string> text_of_chief(const std::string& text, const std::stop_token&) override {
    return text;
  }
  Result<std::vector<std::string>> gather(const std::string& text,
                                          const std::stop_token&) override {
    return std::vector<std::string>{text};
  }
  Status send_text(const std::string&, const std::string&) override { return {}; }
  Result<std::string> receive_text(const std::string&, int) override { return std::string(); }
  Status check_rank(int) override { return {}; }
  Status check_newest() override { return {}; }
  std::string name_of(int rank) override { return "rank " + std::to_string(rank); }
  void report_failure(const Status&) override {}
};

}  // namespace stoker::group
