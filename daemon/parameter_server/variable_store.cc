#include "daemon/parameter_server/variable_store.h"

#include <cassert>
#include <cmath>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>

#include "daemon/train/sum_tree.h"
#include "daemon/train/train_step.h"
#include "shared/base/log.h"

namespace stoker::parameter_server {
namespace {

constexpr size_t kMaxNorms = 10'000;

}  // namespace

int64_t packed_bytes(const std::vector<at::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

void pack(const std::vector<at::Tensor>& tensors, const at::Tensor& bytes) {
  auto* to = static_cast<std::byte*>(bytes.mutable_data_ptr());
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor dense = tensor.contiguous();
    std::memcpy(to, dense.const_data_ptr(), dense.nbytes());
    to += dense.nbytes();
  }
}

void unpack(const at::Tensor& bytes, const std::vector<at::Tensor>& tensors) {
  const auto* from = static_cast<const std::byte*>(bytes.const_data_ptr());
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor dense = tensor.contiguous();  // itself, but for some buffers
    std::memcpy(dense.mutable_data_ptr(), from, tensor.nbytes());
    if (!dense.is_same(tensor)) tensor.detach().copy_(dense);
    from += tensor.nbytes();
  }
}

int64_t packed_gradient_bytes(const std::vector<at::Tensor>& parameters) {
  return packed_bytes(parameters) + std::ssize(parameters);
}

void pack_gradients(const std::vector<at::Tensor>& gradients,
                    const train::Optimizer::Reached& reached, const at::Tensor& bytes) {
  assert(reached.size() == gradients.size());
  pack(gradients, bytes);
  std::memcpy(static_cast<std::byte*>(bytes.mutable_data_ptr()) + packed_bytes(gradients),
              reached.data(), reached.size());
}

void put_norms(const std::vector<size_t>& variables, const at::Tensor& own, const at::Tensor& all) {
  const auto* const from = own.const_data_ptr<float>();
  auto* const to = all.mutable_data_ptr<float>();
  for (size_t i = 0; i < variables.size(); ++i) to[variables[i]] = from[i];
}

double norm_to_clip_by(const at::Tensor& norms, const at::Tensor& clamped_norms) {
  const auto before = train::Optimizer::norm_of(norms).item<double>();
  return std::isfinite(before) ? train::Optimizer::norm_of(clamped_norms).item<double>() : before;
}

VariableStore::VariableStore(std::unique_ptr<train::Optimizer> optimizer,
                             uint64_t gradients_per_step,
                             std::function<double(uint64_t step)> learning_rate,
                             std::function<bool(uint64_t step)> is_recorded, bool needs_norm,
                             double max_count)
    : optimizer_(std::move(optimizer)),
      gradients_per_step_(gradients_per_step),
      learning_rate_(std::move(learning_rate)),
      is_recorded_(std::move(is_recorded)),
      needs_norm_(needs_norm),
      max_count_(max_count) {
  for (const auto& [name, tensor] : optimizer_->state()) state_.push_back(tensor);
}

void VariableStore::initialize(uint64_t step) {
  step_ = step;
  staged_.clear();
  is_summed_ = false;
  norms_step_.reset();
  applied_below_ = step;
  applied_.clear();
}

void VariableStore::stage(uint64_t ticket, const at::Tensor& bytes, double count) {
  if (ticket / gradients_per_step_ == step_) staged_.try_emplace(ticket, Staged{bytes, count});
}

// As TrainStep::scale_by_count().
double VariableStore::count_scale(double count) const {
  if (max_count_ == 0 || gradients_per_step_ == 1) return 1;
  return count > 0 ? 1 / count * max_count_ : 0;
}

bool VariableStore::can_commit(uint64_t step) const {
  return step <= step_ || (step == step_ + 1 && staged_.size() == gradients_per_step_);
}

Status VariableStore::commit(uint64_t step, double norm) {
  if (step <= step_) return {};
  STOKER_RETURN_IF_ERROR(sum_staged(step));
  if (needs_norm_ && norm < 0)
    return Status(StatusCode::kInvalidArgument,
                  "the update to step " + std::to_string(step) + " has no norm of the gradients");
  staged_.clear();
  is_summed_ = false;
  return update(norm, count_ == 0);
}

// A parameter that one of the micro-batches has reached is updated.
void VariableStore::add_reached(const at::Tensor& bytes) {
  const std::vector<at::Tensor>& own = parameters();
  train::Optimizer::Reached reached = optimizer_->reached();
  reached.resize(own.size());
  const auto* const flags =
      static_cast<const std::byte*>(bytes.const_data_ptr()) + packed_bytes(own);
  for (size_t i = 0; i < own.size(); ++i)
    if (flags[i] != std::byte{0}) reached[i] = 1;
  optimizer_->set_reached(std::move(reached));
}

// As distributed.reduction: ordered adds them in one process.
Status VariableStore::sum_staged(uint64_t step) {
  if (!can_commit(step))
    return Status(StatusCode::kInternal, "step " + std::to_string(step) + " was committed with " +
                                             std::to_string(staged_.size()) +
                                             " gradients of step " + std::to_string(step_));
  if (std::exchange(is_summed_, true)) return {};
  const std::vector<at::Tensor>& gradients = optimizer_->gradients();
  const auto num_gradients = static_cast<int64_t>(gradients_per_step_);
  train::SumTree tree(num_gradients), count_tree(num_gradients);
  const std::vector<at::Tensor> count{at::empty({}, at::kDouble)};
  int64_t index = 0;
  for (const auto& [ticket, staged] : staged_) {
    unpack(staged.bytes, gradients);
    add_reached(staged.bytes);
    count[0].fill_(staged.count);
    const int level = train::SumTree::level_of(index);
    const bool is_last = index + 1 == std::ssize(staged_);
    tree.add(gradients, level, is_last);
    count_tree.add(count, level, is_last);
    ++index;
  }
  count_ = count[0].item<double>();
  const double scale = count_scale(count_);
  const at::NoGradGuard no_grad;
  if (scale != 1)
    for (const at::Tensor& gradient : gradients) gradient.mul_(scale);
  return {};
}

Result<std::optional<at::Tensor>> VariableStore::step_norms(uint64_t step) {
  if (step > step_ && norms_step_ != step) {
    STOKER_RETURN_IF_ERROR(sum_staged(step));
    const at::Tensor norms = optimizer_->gradient_norms();
    step_norms_ = at::stack({norms, optimizer_->clamped_gradient_norms(norms)}).to(at::kFloat);
    norms_step_ = step;
  }
  if (norms_step_ != step) return std::optional<at::Tensor>();
  return std::optional(step_norms_);
}

Status VariableStore::apply(uint64_t ticket, const at::Tensor& bytes, double norm, double count) {
  if (needs_norm_ && norm < 0)
    return Status(StatusCode::kInvalidArgument, "the gradient of ticket " + std::to_string(ticket) +
                                                    " has no norm of all gradients");
  if (ticket < applied_below_ || !applied_.insert(ticket).second) return {};
  while (applied_.erase(applied_below_) > 0) ++applied_below_;
  unpack(bytes, optimizer_->gradients());
  add_reached(bytes);
  return update(norm, count == 0);
}

std::optional<at::Tensor> VariableStore::norms(uint64_t step) const {
  const auto found = norms_.find(step);
  if (found == norms_.end()) return std::nullopt;
  return found->second;
}

void VariableStore::forget_norms(uint64_t saved_step) {
  norms_.erase(norms_.begin(), norms_.upper_bound(saved_step));
}

Status VariableStore::update(double norm, bool is_empty) {
  const at::NoGradGuard no_grad;
  optimizer_->set_lr(learning_rate_(step_));
  // Of a chief that does not return, the newest ones.
  if (is_recorded_(step_ + 1)) {
    at::Tensor norms =
        norms_step_ == step_ + 1 ? step_norms_[0] : optimizer_->gradient_norms().to(at::kFloat);
    // As one process records a step that is skipped.
    norms_[step_ + 1] = is_empty ? at::full_like(norms, std::nan("")) : norms;
  }
  if (norms_.size() > kMaxNorms) norms_.erase(norms_.begin());
  if (is_empty) {
    log_warn("steps skipped",
             {{"step", step_ + 1}, {"count", 1}, {"reason", train::kNoLossValues}});
    norm = 0;
  } else if (needs_norm_) {
    optimizer_->update_by_norm(at::scalar_tensor(norm, at::kFloat));
  } else {
    norm = optimizer_->update().item<double>();
  }
  optimizer_->zero_grad();
  ++step_;
  if (std::isfinite(norm)) return {};
  return Status(StatusCode::kCorrupt, "gradient not finite at step " + std::to_string(step_) +
                                          "; try a smaller optimizer.lr");
}

}  // namespace stoker::parameter_server
