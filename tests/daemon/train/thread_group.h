// ThreadGroup: a process group whose ranks are threads of one process.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include "daemon/group/process_group.h"

namespace stoker::train {

class ThreadGroup {
 public:
  explicit ThreadGroup(int world_size)
      : started_sizes_(static_cast<size_t>(world_size)),
        scattered_sizes_(static_cast<size_t>(world_size)),
        contributions_(static_cast<size_t>(world_size)) {
    for (int rank = 0; rank < world_size; ++rank)
      ranks_.push_back(std::make_unique<Rank>(*this, rank));
  }
  group::ProcessGroup& rank(int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  // All ranks lose their peers in this collective, counted from 1.
  void lose_at(uint64_t collective) { lost_at_ = collective; }
  // check_lost() reports it from now on.
  void lose_devices() { has_lost_devices_ = true; }
  // check_rank() reports it.
  void exit(int rank) {
    const std::lock_guard lock(mutex_);
    exited_ = rank;
    checks_ = 0;
  }
  uint64_t checks() const { return checks_; }  // of the ranks since then
  uint64_t collectives() const { return collectives_; }
  // Ranks that wait in a collective for the others.
  size_t waiting() {
    const std::lock_guard lock(mutex_);
    return arrived_;
  }
  // Elements of the sums that a rank has started, in order: all-reduces and reduce-scatters.
  const std::vector<int64_t>& started_sizes(int rank) const {
    return started_sizes_[static_cast<size_t>(rank)];
  }
  const std::vector<int64_t>& scattered_sizes(int rank) const {
    return scattered_sizes_[static_cast<size_t>(rank)];
  }

 private:
  using Tensors = std::vector<at::Tensor>;

  class Rank final : public group::ProcessGroup {
   public:
    Rank(ThreadGroup& all, int rank) : all_(all), rank_(rank) {}
    int rank() const override { return rank_; }
    int world_size() const override { return static_cast<int>(all_.ranks_.size()); }
    Status broadcast(const at::Tensor&, int, const std::stop_token&) override { return {}; }
    Status all_reduce_ordered(const Tensors& tensors, const std::stop_token&) override {
      return all_.sum(static_cast<size_t>(rank_), tensors);
    }
    Status all_gather(const at::Tensor& flat, const std::vector<int64_t>& ends,
                      const std::stop_token&) override {
      return all_.meet(static_cast<size_t>(rank_), {flat},
                       [&ends](const Tensors& flats) { return concatenate(flats, ends); });
    }
    // Sums what the tensor is at the start, and overwrites it when it is finished.
    Status start_all_reduce(const at::Tensor& tensor) override {
      started_.push_back({.own = tensor, .sum = tensor.clone()});
      all_.started_sizes_[static_cast<size_t>(rank_)].push_back(tensor.numel());
      return {};
    }
    Status start_reduce_scatter(const at::Tensor& flat, const std::vector<int64_t>& ends) override {
      const size_t own = static_cast<size_t>(rank_);
      const int64_t begin = own == 0 ? 0 : ends[own - 1];
      started_.push_back(
          {.own = flat.narrow(0, begin, ends[own] - begin), .sum = flat.clone(), .begin = begin});
      all_.scattered_sizes_[own].push_back(flat.numel());
      return {};
    }
    Status finish_sums(const std::stop_token&) override {
      Tensors sums;
      for (const Started& each : started_) sums.push_back(each.sum);
      STOKER_RETURN_IF_ERROR(all_.sum(static_cast<size_t>(rank_), sums));
      for (const Started& each : std::exchange(started_, {}))
        each.own.copy_(each.sum.narrow(0, each.begin, each.own.numel()));
      return {};
    }
    Status check_same(const group::SharedSettings&, const std::stop_token&) override { return {}; }
    Result<std::string> text_of_chief(const std::string& text, const std::stop_token&) override {
      const std::pair<std::string, int> meeting{"meeting " + std::to_string(++meetings_), 0};
      std::unique_lock lock(all_.mutex_);
      if (is_chief()) all_.texts_[meeting] = text;
      all_.changed_.notify_all();
      all_.changed_.wait(lock, [&] { return all_.texts_.contains(meeting); });
      return all_.texts_[meeting];
    }
    Result<std::vector<std::string>> gather(const std::string& text,
                                            const std::stop_token&) override {
      return std::vector<std::string>(all_.ranks_.size(), text);
    }
    Status send_text(const std::string& name, const std::string& text) override {
      const std::lock_guard lock(all_.mutex_);
      all_.texts_[{name, rank_}] = text;
      return {};
    }
    Result<std::string> receive_text(const std::string& name, int of_rank) override {
      const std::lock_guard lock(all_.mutex_);
      return all_.texts_[{name, of_rank}];
    }
    Status check_rank(int rank) override {
      const std::lock_guard lock(all_.mutex_);
      ++all_.checks_;
      if (all_.exited_ != rank) return {};
      return Status(StatusCode::kPeerLost, name_of(rank) + " exited");
    }
    Status check_newest() override { return {}; }
    Status check_lost() override {
      return all_.has_lost_devices_ ? Status(StatusCode::kPeerLost, "rank 1 exited") : Status();
    }
    std::string name_of(int rank) override { return "rank " + std::to_string(rank); }
    void report_failure(const Status& reason) override {
      const std::lock_guard lock(all_.mutex_);
      all_.failure_ = name_of(rank_) + " failed: " + reason.to_string();
      all_.changed_.notify_all();
    }

   private:
    ThreadGroup& all_;
    const int rank_;
    struct Started {
      at::Tensor own;     // that the rank gets
      at::Tensor sum;     // of all; before it is finished the tensor of this rank
      int64_t begin = 0;  // of `own` in it
    };
    std::vector<Started> started_;
    uint64_t meetings_ = 0;
  };

  // The first half of the ranks plus the second half.
  static at::Tensor tree(const std::vector<at::Tensor>& parts, size_t begin, size_t end) {
    if (end - begin == 1) return parts[begin];
    const size_t middle = begin + (end - begin) / 2;
    return tree(parts, begin, middle) + tree(parts, middle, end);
  }

  Status sum(size_t rank, const Tensors& tensors) {
    return meet(rank, tensors, [](const Tensors& parts) { return tree(parts, 0, parts.size()); });
  }
  // Replaces each tensor by what `combine` returns for those of all ranks.
  Status meet(size_t rank, const Tensors& tensors,
              const std::function<at::Tensor(const Tensors&)>& combine) {
    std::unique_lock lock(mutex_);
    Tensors& own = contributions_[rank];
    own.clear();
    for (const at::Tensor& tensor : tensors) own.push_back(tensor.clone());
    const uint64_t collective = collectives_ + 1;
    if (++arrived_ == contributions_.size()) {
      arrived_ = 0;
      for (size_t k = 0; k < tensors.size(); ++k) {
        std::vector<at::Tensor> parts;
        for (const Tensors& each : contributions_) parts.push_back(each.at(k));
        if (k == 0) sums_.clear();
        sums_.push_back(combine(parts));
      }
      collectives_ = collective;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [&] { return collectives_ >= collective || !failure_.empty(); });
      if (collectives_ < collective) return Status(StatusCode::kPeerLost, failure_);
    }
    if (collective == lost_at_) return Status(StatusCode::kPeerLost, "rank 1 exited");
    for (size_t k = 0; k < tensors.size(); ++k) tensors[k].copy_(sums_[k]);
    return {};
  }

  // The part of each rank.
  static at::Tensor concatenate(const std::vector<at::Tensor>& flats,
                                const std::vector<int64_t>& ends) {
    std::vector<at::Tensor> parts;
    int64_t begin = 0;
    for (size_t rank = 0; rank < flats.size(); ++rank) {
      parts.push_back(flats[rank].narrow(0, begin, ends[rank] - begin));
      begin = ends[rank];
    }
    return at::cat(parts);
  }

  std::atomic<bool> has_lost_devices_ = false;
  // Each of the thread of its rank.
  std::vector<std::vector<int64_t>> started_sizes_, scattered_sizes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::vector<Tensors> contributions_;
  Tensors sums_;
  std::map<std::pair<std::string, int>, std::string> texts_;
  std::string failure_;  // of a rank
  int exited_ = -1;      // rank
  std::atomic<uint64_t> checks_ = 0;
  size_t arrived_ = 0;
  uint64_t collectives_ = 0;
  uint64_t lost_at_ = 0;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace stoker::train
