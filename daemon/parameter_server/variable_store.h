// VariableStore: the variables of one parameter server, with the part of the optimizer that updates them.
//
// sync:  the gradients of a step are staged by ticket. commit() adds them in a tree over the tickets, as
//        distributed.reduction: ordered does in one process, and updates the variables.
// async: each gradient updates the variables when it arrives, once for each ticket.
//
// Of several servers with train.max_grad_norm, none has the norm of all gradients. commit() and apply()
// then take it, and in a sync run it is that of the step_norms() of all servers.
//
// Threads:   none; the owner serializes the calls.
// Ownership: shares the tensors of the parameters.
// Errors:    kInternal: the tickets of a step are not complete. kInvalidArgument: there is no norm, but this
//            server needs it. kCorrupt: a gradient is not finite; the variables are then not usable any more.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include <ATen/core/Tensor.h>

#include "daemon/train/optimizer.h"
#include "shared/base/status.h"

namespace stoker::parameter_server {

// The bytes of all tensors, one after the other.
int64_t packed_bytes(const std::vector<at::Tensor>& tensors);
void pack(const std::vector<at::Tensor>& tensors, const at::Tensor& bytes);
void unpack(const at::Tensor& bytes, const std::vector<at::Tensor>& tensors);

// The gradients of a micro-batch, packed, and a byte for each: whether it has reached this parameter, see
// train::Optimizer::note_reached(). `bytes`: packed_gradient_bytes() or more.
int64_t packed_gradient_bytes(const std::vector<at::Tensor>& parameters);
void pack_gradients(const std::vector<at::Tensor>& gradients,
                    const train::Optimizer::Reached& reached, const at::Tensor& bytes);

// Puts the norms of `variables`, which are indexes among all, among those of all. F32.
void put_norms(const std::vector<size_t>& variables, const at::Tensor& own, const at::Tensor& all);
// By which all updates clip: the norm of the clamped gradients, unless that before train.max_grad_value is not
// finite, so that all servers report it. Both by parameter, F32.
double norm_to_clip_by(const at::Tensor& norms, const at::Tensor& clamped_norms);

class VariableStore {
 public:
  // `learning_rate`: of the update from a step to the next one. `is_recorded`: whether the norms of the
  // gradients in the update to this step are kept. `needs_norm`: see above. `max_count`: by which gradients
  // of a step are divided instead of by their count, see TrainStep::max_count(); 0: there are no counts.
  VariableStore(std::unique_ptr<train::Optimizer> optimizer, uint64_t gradients_per_step,
                std::function<double(uint64_t step)> learning_rate,
                std::function<bool(uint64_t step)> is_recorded, bool needs_norm = false,
                double max_count = 0);

  const std::vector<at::Tensor>& parameters() const { return optimizer_->parameters(); }
  const std::vector<at::Tensor>& state() const { return state_; }
  void initialize(uint64_t step);  // after parameters and state were written

  // `bytes`: of pack_gradients(), in the order of parameters().
  // `count`: Sums::count, as in apply(). If that of an update is 0, it changes nothing.
  void stage(uint64_t ticket, const at::Tensor& bytes, double count = -1);
  // Whether this server has what commit() needs.
  bool can_commit(uint64_t step) const;
  // Updates to `step`, if that is the one after the current one. `norm`: see above; negative: none.
  Status commit(uint64_t step, double norm = -1);
  // The async update.
  Status apply(uint64_t ticket, const at::Tensor& bytes, double norm = -1, double count = -1);
  // By which gradients and loss of a step are multiplied, given its count.
  double count_scale(double count) const;
  // Of the update to `step`, which can be due or the last one: the norm of each own gradient, F32 [2, n],
  // before and after train.max_grad_value. nullopt: of an earlier one, which all servers have done.
  Result<std::optional<at::Tensor>> step_norms(uint64_t step);

  bool needs_norm() const { return needs_norm_; }
  uint64_t step() const { return step_; }
  // The norms of the own gradients in the update to `step`, F32; nullopt: they are not recorded.
  std::optional<at::Tensor> norms(uint64_t step) const;
  void forget_norms(uint64_t saved_step);  // up to this step

 private:
  Status sum_staged(uint64_t step);
  void add_reached(const at::Tensor& bytes);
  Status update(double norm, bool is_empty);

  std::unique_ptr<train::Optimizer> optimizer_;
  uint64_t gradients_per_step_;
  std::function<double(uint64_t step)> learning_rate_;
  std::function<bool(uint64_t step)> is_recorded_;
  std::vector<at::Tensor> state_;
  uint64_t step_ = 0;
  bool needs_norm_;
  double max_count_;
  std::map<uint64_t, at::Tensor> norms_;  // by recorded step
  struct Staged {
    at::Tensor bytes;
    double count = -1;
  };
  std::map<uint64_t, Staged> staged_;   // of the current step, by ticket
  double count_ = -1;                   // of all of them, if is_summed_
  bool is_summed_ = false;              // the gradients of the optimizer are the sum of staged_
  at::Tensor step_norms_;               // of the step below
  std::optional<uint64_t> norms_step_;  // nullopt: there are none
  // Async: all tickets below one are applied, and these above it.
  uint64_t applied_below_ = 0;
  std::set<uint64_t> applied_;
};

}  // namespace stoker::parameter_server
