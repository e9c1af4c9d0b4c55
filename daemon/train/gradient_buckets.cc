#include "daemon/train/gradient_buckets.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "shared/base/thread_registry.h"

namespace stoker::train {
namespace {

// So that the first sum starts early in the backward pass.
constexpr int64_t kFirstBucketBytes = int64_t{1} << 20;
constexpr ThreadActivity kWaitForGradients{.operation = "wait for gradients of other ranks",
                                           .is_waiting = true};

}  // namespace

class GradientBuckets::Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(GradientBuckets& buckets, size_t member) : buckets_(buckets), member_(member) {}
  void operator()(const torch::autograd::Variable&) override { buckets_.complete(member_); }

 private:
  GradientBuckets& buckets_;
  const size_t member_;
};

GradientBuckets::GradientBuckets(group::ProcessGroup& group, const Optimizer& optimizer,
                                 double bucket_mib)
    : group_(group) {
  const auto max_bytes = std::max<int64_t>(1, static_cast<int64_t>(bucket_mib * (1 << 20)));
  for (size_t i = 0; i < optimizer.flat_gradients().size(); ++i)
    add_buckets(optimizer.flat_gradients()[i],
                optimizer.sums_own_gradients() ? &optimizer.shard_ends()[i] : nullptr, optimizer,
                max_bytes);
  for (size_t i = 0; i < members_.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(members_[i].parameter,
                                                   std::make_unique<Hook>(*this, i));
}

GradientBuckets::~GradientBuckets() {
  for (const Member& member : members_)
    torch::autograd::impl::set_post_acc_grad_hooks(member.parameter, nullptr);
}

// Each gradient is a view of `flat`, or of that of another type.
void GradientBuckets::add_buckets(const at::Tensor& flat, const std::vector<int64_t>* maybe_ends,
                                  const Optimizer& optimizer, int64_t max_bytes) {
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& parameter : optimizer.parameters())
    if (parameter.grad().is_alias_of(flat)) parameters.push_back(parameter);
  std::ranges::sort(parameters, std::ranges::greater(),
                    [](const at::Tensor& each) { return each.grad().storage_offset(); });
  int64_t end = flat.numel();
  for (size_t i = 0; i < parameters.size();) {
    const int64_t limit = buckets_.empty() ? std::min(kFirstBucketBytes, max_bytes) : max_bytes;
    Bucket bucket;
    int64_t begin = end;
    do {
      begin = parameters[i].grad().storage_offset();
      members_.push_back({.parameter = parameters[i], .bucket = buckets_.size()});
      ++bucket.parameters;
      ++i;
    } while (i < parameters.size() && (end - parameters[i].grad().storage_offset()) *
                                              static_cast<int64_t>(flat.element_size()) <=
                                          limit);
    bucket.part = flat.narrow(0, begin, end - begin);
    if (maybe_ends != nullptr)
      for (const int64_t shard_end : *maybe_ends)
        bucket.ends.push_back(std::clamp(shard_end, begin, end) - begin);
    buckets_.push_back(std::move(bucket));
    end = begin;
  }
}

void GradientBuckets::begin(OnComplete on_complete) {
  on_complete_ = std::move(on_complete);
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters;
  for (Member& member : members_) {
    // Its hook is not called.
    member.is_complete = !member.parameter.requires_grad();
    if (member.is_complete) --buckets_[member.bucket].missing;
  }
  completed_ = 0;
  status_ = {};
  is_active_ = true;
}

// Not an exception, which would have to pass through the backward pass.
void GradientBuckets::complete(size_t member) {
  if (!is_active_) return;
  if (std::exchange(members_[member].is_complete, true)) {
    if (status_.ok())
      status_ = Status(StatusCode::kInternal,
                       "distributed.reduction: allreduce does not support this model: it computes "
                       "the gradient of a parameter twice in one backward pass; use ordered");
    return;
  }
  --buckets_[members_[member].bucket].missing;
  while (completed_ < buckets_.size() && buckets_[completed_].missing == 0)
    on_complete_(completed_++);
}

void GradientBuckets::end() {
  is_active_ = false;
  while (completed_ < buckets_.size()) on_complete_(completed_++);
}

void GradientBuckets::start(size_t bucket) {
  if (!status_.ok()) return;
  assert(bucket == started_);
  ++started_;
  const Bucket& next = buckets_[bucket];
  status_ = next.ends.empty() ? group_.start_all_reduce(next.part)
                              : group_.start_reduce_scatter(next.part, next.ends);
}

Status GradientBuckets::finish(const std::stop_token& stop) {
  STOKER_RETURN_IF_ERROR(status_);
  assert(started_ == buckets_.size());
  started_ = 0;
  const ScopedActivity waiting(kWaitForGradients);
  return group_.finish_sums(stop);
}

}  // namespace stoker::train
