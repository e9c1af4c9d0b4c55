// Optimizer: updates the parameters with the arithmetic of PyTorch's optimizers. sgd, adam and adamw use
// LibTorch's fused kernels, or adamw stoker's (fused_kernels.h); the others are made of operations on lists of
// tensors (update_rules.h, muon.h). Clips the gradient by value and by global norm.
//
// A parameter that no backward pass of a step has reached keeps its value and its state, as one whose grad
// is None in PyTorch: note_reached().
//
// Weight decay applies to every other parameter, as in PyTorch by default. It is decoupled from the
// gradient in adamw, lion, muon, adafactor and if configured in nadam and radam, part of the update in lamb,
// and added to the gradient in the others. config.param_groups
// sets a learning rate scale and a weight decay for some parameters, like PyTorch's parameter
// groups. The norm is computed over all groups together.
//
// Of several ranks that share the steps, each can have the state of a shard of the parameters only. It
// then updates these, and gather_parameters() distributes them. Gradients and their norm are complete
// on each rank, unless sums_own_gradients(). A parameter whose update depends on all of its
// elements (config::updates_whole_parameters()) is on one rank, and so is one that is not contiguous.
//
// Threads:   the trainer thread only.
// Blocking:  step() never waits for the device.
// Ownership: shares the parameter tensors. Allocates their gradients once, so that the addresses
//            never change, unless take_gradients() was called; no other code may drop or replace a
//            gradient.
// Errors:    LibTorch's exceptions pass through step() and zero_grad().
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "daemon/train/layer_decay.h"
#include "daemon/train/optimizer_shards.h"
#include "shared/base/status.h"
#include "shared/checkpoint/sharded_tensors.h"
#include "shared/config/training_config.h"
#include "shared/model/kernel_table.h"
#include "shared/model/model.h"
#include "shared/model/weight_copies.h"

namespace stoker::train {

using model::NamedTensors;

class Optimizer {
 public:
  // Which part of the state this process has: all of it by default.
  struct Shard {
    int index = 0;
    int count = 1;
    bool sums_own_gradients = false;  // see below
  };
  // `parameters`: the parameters to train by name, on their final device. Uses max_grad_norm and
  // max_grad_value of `train`. `frozen`: names of those that set_frozen() applies to.
  // `lr_scales`: further factors of the learning rate by name, or empty. `embeddings`: embedding_parameters() of
  // the model, for groups by kind. `is_own`: which of them this process updates, in the groups that they have among
  // all; empty: all of them. kInvalidArgument: all parameters are among `frozen`, or a group matches none. kOutOfMemory.
  using IsOwn = std::function<bool(size_t parameter)>;
  static Result<std::unique_ptr<Optimizer>> create(
      const config::OptimizerConfig& config, const config::TrainConfig& train,
      const NamedTensors& parameters, const std::set<std::string>& frozen, const Shard& shard,
      const LrScales& lr_scales = {}, const std::set<std::string>& embeddings = {},
      const IsOwn& is_own = {});
  static Result<std::unique_ptr<Optimizer>> create(const config::OptimizerConfig& config,
                                                   const config::TrainConfig& train,
                                                   const NamedTensors& parameters,
                                                   const std::set<std::string>& frozen = {}) {
    return create(config, train, parameters, frozen, Shard{});
  }

  // Whether updates leave the parameters named in create() and their state unchanged. They then do
  // not require a gradient, as with requires_grad_(False) in PyTorch. False after create(). Call it
  // between zero_grad() and the backward pass, with no captured work that has other gradients.
  void set_frozen(bool is_frozen);
  bool is_frozen() const { return is_frozen_; }

  // Clips the gradients, then updates the parameters. Clipping is the only change to the gradients.
  // Returns the norm before clipping, an F32 scalar on the device.
  at::Tensor step(double lr);
  const at::Tensor& skipped() const { return found_inf_; }  // F32 scalar on the device: 1 or 0

  // step() in two parts, so that the second can be captured in a CUDA graph: all inputs of an
  // update are on the device. update_if_finite() changes nothing if the norm or `loss` (a scalar on
  // the device) is not finite; skipped() is then 1. update_unless() changes nothing if `found_inf`,
  // an F32 scalar on the device, is 1; so does update_if_finite() with one. skip() is an update that
  // changes nothing. None waits for the device.
  void set_lr(double lr);
  // Keeps the learning rate in a tensor, as parameters on a device always do.
  void use_device_lr();
  bool has_device_lr() const { return groups_.front().device_lr.defined(); }
  // Scales the gradients in the kernels of sgd, adam and adamw instead of before, which reads them
  // once less. The parameters can differ in the last bit. On a device always so.
  void scale_in_kernels() { scales_in_kernels_ = true; }
  at::Tensor update();
  at::Tensor update_if_finite(const at::Tensor& loss, const at::Tensor& maybe_found_inf = {});
  at::Tensor update_unless(const at::Tensor& found_inf);
  at::Tensor skip();

  // After an update, with a shard: replaces the parameters of the other shards by those of the ranks
  // that have updated them. `all_gather`: as group::ProcessGroup. Uses the memory of the gradients,
  // which are zero then.
  bool is_sharded() const { return shard_.count > 1; }
  using AllGather = std::function<Status(const at::Tensor& flat, const std::vector<int64_t>& ends)>;
  Status gather_parameters(const AllGather& all_gather);

  // Whether only the gradients of the shard are sums over the ranks. Each update then needs the sums over
  // the ranks of squares_to_sum(), F64 scalars, which must be called once before it, after the backward pass.
  bool sums_own_gradients() const { return shard_.sums_own_gradients; }
  const std::vector<at::Tensor>& squares_to_sum();
  // Of flat_gradients()[i]: where the shards end.
  const std::vector<std::vector<int64_t>>& shard_ends() const { return shard_ends_; }

  // For gradients of a step that several processes have parts of: the norm of each, F32, and as after
  // max_grad_value (`norms`: those before it); and update() that clips by the norm of all of these instead of
  // by that of the own ones. norm_of() adds up the norms of the parts as update() does in one process.
  at::Tensor gradient_norms();
  at::Tensor clamped_gradient_norms(const at::Tensor& norms);
  static at::Tensor norm_of(const at::Tensor& norms);
  void update_by_norm(const at::Tensor& clamped_norm);

  // Copies of the weights, which updates by stoker's fused kernel keep up to date.
  model::WeightCopies& weight_copies() { return weight_copies_; }

  // Which parameters have got a gradient since zero_grad(), in the order of parameters(). Empty: not
  // known, and an update is one of all. note_reached() adds those of the backward pass before it;
  // nothing else may have changed a gradient. assume_reached() adds those of backward passes that were
  // replayed: all that were ever noted.
  using Reached = std::vector<char>;
  void note_reached();
  void assume_reached();
  const Reached& reached() const { return reached_; }
  void set_reached(Reached reached);
  void zero_grad();
  // From now on, the gradients of a step are the tensors of its one backward pass, which autograd
  // otherwise adds to zeros. zero_grad() drops them. flat_gradients() is empty.
  void take_gradients();
  // Of all groups, after the backward pass; zeros for a parameter that it did not reach. After
  // take_gradients() those that are frozen have none.
  const std::vector<at::Tensor>& gradients();
  uint64_t gradient_bytes() const;
  // The memory of all gradients: one tensor per dtype, with zeros between the gradients.
  const std::vector<at::Tensor>& flat_gradients() const { return flat_gradients_; }

  // The state for a checkpoint: "exp_avg.<parameter>", "exp_avg_sq.<parameter>" and
  // "step.<parameter>" (adam, adamw); "momentum_buffer.<parameter>" (sgd with momentum; otherwise
  // nothing); PyTorch's names for the other optimizers. The tensors are not copies; names and
  // shapes never change. With a shard its part: tensors in state_ranges() are ranges.
  const NamedTensors& state() const { return state_; }
  const checkpoint::TensorRanges& state_ranges() const { return ranges_; }
  // Of all shards.
  const std::vector<TensorSpec>& complete_state() const { return complete_state_; }
  int num_shards() const { return shard_.count; }
  // Parameters that are updated together. Order: the parameters in no configured group, then the
  // groups of config.param_groups. With muon: first all groups that muon updates, then in the same
  // order those that adamw updates. Then in the same order those that can be frozen. With
  // optimizer.layer_decay each of these is divided into one for each layer, the first layer first.
  struct Group {
    config::OptimizerName name = {};  // the optimizer of this group
    std::string match;                // which parameters, for people; empty: no configured group
    double lr_scale = 1;
    double weight_decay = 0;
    bool can_be_frozen = false;  // set_frozen() applies to it
    uint64_t num_parameters = 0, num_elements = 0;
    // With a shard those of its part, of which one can be a range of a parameter.
    std::vector<at::Tensor> parameters, gradients;
    std::vector<size_t> indexes;  // of these among all parameters
    // One tensor per parameter if the optimizer has this state, else empty. Undefined where only other
    // parameters have it, such as matrices.
    std::vector<at::Tensor> exp_avgs, exp_avg_sqs, square_avgs, sums, steps, momentum_buffers,
        mu_products, exp_infs, acc_deltas, row_vars, col_vars, variances, z_offsets, weight_sums,
        lr_maxs;
    double lr = 0;
    // Scalar, F32 or on the CPU F64. Undefined: the kernels take the double.
    at::Tensor device_lr;
  };
  const std::vector<Group>& groups() const { return groups_; }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }  // of all shards
  // With config.averages(): copies of the parameters' averages, which are to be evaluated; otherwise empty. Not with a
  // shard.
  NamedTensors averages() const;

  // `saved` must contain exactly the tensors of complete_state(), of which the own ones are loaded; see
  // model::load_tensors().
  Status load(const checkpoint::TensorRangeSource& saved);

 private:
  Optimizer(const config::OptimizerConfig& config, const config::TrainConfig& train,
            const Shard& shard)
      : config_(config),
        max_norm_(train.max_grad_norm),
        max_value_(train.max_grad_value),
        shard_(shard) {}
  // Creates a group for the parameters in no configured group and one for each configured group;
  // with muon a second set for the parameters it leaves to adamw. Returns the size of the first
  // set.
  size_t create_groups();
  Status make_groups(const NamedTensors& parameters, const std::set<std::string>& frozen,
                     const LrScales& lr_scales, const std::set<std::string>& embeddings,
                     const IsOwn& is_own);
  void divide_groups(const NamedTensors& parameters, const LrScales& lr_scales,
                     std::vector<size_t>& group_of);
  Status check_matches(size_t rows, const std::vector<size_t>& group_of,
                       const NamedTensors& parameters) const;
  void allocate_gradients(const NamedTensors& parameters);
  void collect_gradients();
  void add_parameters(const NamedTensors& parameters, const std::vector<size_t>& groups);
  void find_shard_ends(const std::vector<ShardCut>& cuts);
  // `range`: the elements of the parameter that are of this shard.
  void add_own(Group& group, const std::string& name, const at::Tensor& parameter,
               ElementRange range);
  at::Tensor gradient_norm();
  at::Tensor own_squares(std::optional<double> limit) const;
  void clamp(const std::vector<at::Tensor>& gradients) const;
  at::Tensor clip();
  at::Tensor clip_own();
  void scale_gradients(const at::Tensor& norm);
  void set_found_inf(const at::Tensor& found_inf);
  std::optional<at::Tensor> maybe_grad_scale() const;
  void apply();
  void apply(Group& group, const std::optional<at::Tensor>& found_inf);
  std::optional<Group> reached_part(const Group& group) const;
  void apply_sgd(Group& group, const std::optional<at::Tensor>& found_inf);
  void apply_adam(Group& group, const std::optional<at::Tensor>& found_inf);
  // False: the kernel does not support the memory layout of the group.
  bool apply_fused_adamw(Group& group, const model::KernelTable& kernels,
                         const std::optional<at::Tensor>& found_inf);

  const config::OptimizerConfig config_;
  const std::optional<double> max_norm_, max_value_;
  const Shard shard_;
  bool is_frozen_ = false;
  std::vector<Group> groups_;  // none is empty
  bool takes_gradients_ = false;
  std::vector<at::Tensor> parameters_;  // of all groups
  std::vector<std::string> names_;      // of these
  // Of parameters_, after take_gradients() without those that are frozen. Empty: not collected yet.
  std::vector<at::Tensor> gradients_;
  std::vector<at::Tensor> flat_gradients_;
  std::vector<std::vector<int64_t>> shard_ends_;  // of flat_gradients_[i], by shard
  std::vector<at::Tensor> freezable_;
  Reached reached_, ever_reached_;
  // Of the gradients at zero_grad(): a backward pass that adds to one increases its version. Not with
  // take_gradients().
  std::vector<int64_t> versions_;
  // Of the own gradients and, with max_value_, of copies after clamp(). At fixed addresses, which a captured
  // update reads.
  std::vector<at::Tensor> squares_;
  NamedTensors state_;
  checkpoint::TensorRanges ranges_;  // of those in state_ that are no complete tensors
  std::vector<TensorSpec> complete_state_;
  // F32 scalar: 1 makes the kernels change nothing. Undefined after update(). Otherwise found_, which has
  // a fixed address, because captured work can read it after that of the update.
  at::Tensor found_inf_, found_;
  bool scales_in_kernels_ = false;
  model::WeightCopies weight_copies_;
  at::Tensor grad_scale_;  // F32 scalar by which the kernels divide; undefined: they do not
};

}  // namespace stoker::train
