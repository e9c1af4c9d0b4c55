// GroupCoordination: the ranks of a group that share the steps of a run. See Coordination.
//
// Each step ends with an exchange of the ranks: with the sums of gradients, loss and metrics, each sends a ControlRecord and a
// RankReport. Commands of the chief, stops and saves of any rank, new dataset versions and CUDA graphs are decided there.
//
// Ownership: what the constructor takes by reference must outlive this object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "daemon/group/control_record.h"
#include "daemon/group/process_group.h"
#include "daemon/train/coordination.h"
#include "daemon/train/gradient_buckets.h"
#include "daemon/train/group_step.h"
#include "daemon/train/trainer_channels.h"
#include "daemon/train/training_state.h"
#include "shared/config/config.h"

namespace stoker::train {

class GroupCoordination final : public Coordination {
 public:
  GroupCoordination(group::ProcessGroup& group, const config::Config& config, TrainingState& state,
                    BatchSource& source, TrainerChannels& channels);

  bool shares_steps() const override { return true; }
  void start(StepEngine& engine, std::stop_token stop) override;

  const ring::TicketShare& share() const override { return group_step_.share(); }
  bool is_chief() const override { return group_step_.is_chief(); }
  Status check(const control::Command& command) const override;
  bool defer(const Request& request) override;
  Result<std::vector<Request>> agree() override;
  Result<std::vector<Request>> agree_while_paused() override;
  std::vector<Request> take_deferred() override;
  void begin_step(uint64_t step) override { group().begin_step(step); }
  std::vector<StepEngine::Exchange> exchanges(TrainStep& step, Updates updates) override;
  StepEngine::Sums sums() override;
  void begin_sums(std::function<void(size_t)> on_complete) override;
  void end_sums() override;
  Status exchange_status() const override { return exchange_status_; }
  Result<std::string> first_nonfinite(std::string own) override;
  bool is_save_agreed() const override { return is_save_agreed_; }
  bool starts_dataset_version(uint64_t) const override { return is_refresh_agreed_; }
  Status wait_for_devices() override { return group().wait_for_devices({}); }
  Status check_lost() override { return group().check_lost(); }
  void add_quarantined(std::vector<uint64_t>& samples) const override;
  uint64_t sample_errors_of_others() const override { return sample_errors_of_others_; }
  void report(metrics::TrainMetrics& metrics, double stall_ms,
              control::TrainerStatus::Group& status) override;

 private:
  group::ProcessGroup& group() const { return group_step_.group(); }
  group::ControlRecord own_record(uint64_t step_to_save);
  void complete(group::RankReport& own);
  Status publish_quarantine();
  Status receive_quarantine();
  Status sum(TrainStep& step, group::RankReport report);
  Status gather_parameters();
  void apply_capture_votes(const group::ControlRecord& agreed);
  Result<Request> agreed_setting(Request request);

  const config::Config& config_;
  TrainingState& state_;
  BatchSource& source_;
  TrainerChannels& channels_;
  GroupStep group_step_;
  std::unique_ptr<GradientBuckets> maybe_buckets_;  // distributed.reduction: allreduce
  const bool is_sharded_;                           // the optimizer
  StepEngine* engine_ = nullptr;
  std::stop_token stop_;
  std::function<bool(uint64_t step)> announces_save_;  // on the chief, with a sharded optimizer
  Status exchange_status_;

  group::ControlRecord agreed_;           // of the last exchange; agree() applies it
  bool is_save_agreed_ = false;           // with a sharded optimizer, of the current step
  bool is_refresh_agreed_ = false;        // a dataset version starts after the current step
  std::deque<Request> shared_requests_;   // one takes effect per step; only on the chief
  std::vector<Done> stop_requests_;       // that wait for the end of a step
  bool asks_for_save_ = false;            // a rank other than the chief was requested to save
  bool was_preempted_ = false;            // this rank
  uint64_t sample_errors_of_others_ = 0;  // since this start
  bool has_compared_ = false;             // the parameters of the ranks, since this start
  uint64_t optimizer_bytes_ = 0;          // of its state on this rank
  size_t num_quarantined_sent_;
  // On the chief, of each other rank:
  std::vector<std::vector<uint64_t>> quarantined_of_others_;
  std::vector<uint64_t> num_quarantined_;
  std::vector<group::RankReport> rank_totals_;  // since the last report; of `rank_steps_` steps
  uint64_t rank_steps_ = 0;
};

}  // namespace stoker::train
