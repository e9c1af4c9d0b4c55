#include "daemon/app/run.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>

#include "daemon/app/dataset_refresher.h"
#include "daemon/app/group_start.h"
#include "daemon/app/run_segment.h"
#include "daemon/app/stream_data.h"
#include "daemon/group/socket_address.h"
#include "daemon/train/device.h"
#include "daemon/train/numerics.h"
#include "daemon/train/released_pause.h"
#include "daemon/train/training_error.h"
#include "shared/base/coordinator.h"
#include "shared/base/deadline.h"
#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/model/model_file.h"

namespace stoker::app {

Run::Run(const config::Config& config, const CommandLine& command, const run::RunLayout& layout,
         Clock& clock, const GroupLaunch* maybe_launch)
    : configured_(config),
      command_(command),
      layout_(layout),
      maybe_launch_(maybe_launch),
      own_layout_(layout_of_rank(layout, maybe_launch ? maybe_launch->environment.rank : 0)),
      clock_(clock),
      started_(clock.monotonic()),
      channels_(clock),
      evaluator_(layout, clock),
      maybe_recorder_(maybe_launch ? std::make_unique<group::FlightRecorder>(
                                         recorder_of(maybe_launch->environment, layout), clock)
                                   : nullptr),
      config_(config),
      device_(config.train.device),
      maybe_refresher_(feed::is_refreshable(config)
                           ? std::make_unique<DatasetRefresher>(config, layout)
                           : nullptr) {}

Run::~Run() = default;

Result<run::RunOutcome> Run::train(std::stop_token stop, const std::function<void()>& on_training) {
  // What LibTorch and the allocator throw outside of a step, for instance because the device has no
  // memory left for the EMA weights.
  const auto train = [&]() -> Result<run::RunOutcome> {
    try {
      if (maybe_launch_ != nullptr && maybe_launch_->maybe_cluster)
        return train_in_cluster(stop, on_training);
      if (maybe_launch_ != nullptr) return train_in_group(stop, on_training);
      return train_segments(stop, on_training);
    } catch (const std::exception& error) {
      const Status status = train::to_status(error);
      end_requests(status);
      if (group_) group_->report_failure(status);
      return status;
    }
  };
  Result<run::RunOutcome> outcome = train();
  end_requests(outcome.status());
  return outcome;
}

void Run::end_requests(const Status& failure) {
  const Status ended = train::training_ended(failure);
  for (const train::Done& done : std::exchange(channels_.release_requests, {}))
    train::answer(done, ended);
  channels_.mailbox.close(ended);
}

Result<run::RunOutcome> Run::train_in_group(std::stop_token stop,
                                            const std::function<void()>& on_training) {
  set_progress_line("waiting for the other ranks");
  auto opened = open_process_group(config_, maybe_launch_->environment, layout_, {},
                                   maybe_recorder_.get(), preparation_stop_.get_token());
  set_progress_line("");
  if (!opened.ok()) return preparation_outcome(opened.status());
  group_ = *std::move(opened);
  if (const Status same = compare_with_group(); !same.ok()) {
    end_requests(same);
    group_->report_failure(same);
    return preparation_outcome(same);
  }
  auto outcome = start_or_finish(stop, on_training);
  end_requests(outcome.status());
  if (!outcome.ok()) {
    group_->report_failure(outcome.status());
  } else if (*outcome != run::RunOutcome::kFinished) {
    if (!is_prepared())
      group_->report_failure(Status(StatusCode::kCancelled, "startup cancelled"));
    else
      end_together(stop);
  }
  if (outcome.ok()) (void)group_->end_devices(stop);
  return outcome;
}

Result<run::RunOutcome> Run::start_or_finish(const std::stop_token& stop,
                                             const std::function<void()>& on_training) {
  auto finished = group_->text_of_chief(maybe_launch_->finished_because, preparation_stop());
  if (!finished.ok()) return preparation_outcome(finished.status());
  finished_because_ = *std::move(finished);
  if (finished_because_.empty()) return train_segments(stop, on_training);
  // The chief can serve the store, which the others have read by then.
  (void)group_->gather("informed", {});
  return run::RunOutcome::kFinished;
}

// A launcher may end all when the first one exits.
void Run::end_together(const std::stop_token& stop) {
  maybe_recorder_->end_training();
  (void)group_->text_of_chief("saved", stop);
}

Status Run::compare_with_group() {
  const std::stop_token stop = preparation_stop_.get_token();
  STOKER_RETURN_IF_ERROR(group_->check_same(maybe_launch_->settings, stop));
  STOKER_RETURN_IF_ERROR(check_shared_directory(stop));
  STOKER_ASSIGN_OR_RETURN(num_threads_, choose_num_threads(config_.train, *group_, stop));
  train::prepare_environment(config_.run);
  STOKER_ASSIGN_OR_RETURN(device_,
                          choose_device(config_, maybe_launch_->environment, *group_, stop));
  return {};
}

// A rank with other files of the same name would train, and fail at the first checkpoint in parts or at the next start.
Status Run::check_shared_directory(const std::stop_token& stop) {
  // Network file systems cache what a directory has; and the reason must arrive before the others end.
  const auto patience = std::min<std::chrono::milliseconds>(
      std::chrono::seconds(60), milliseconds_of(config_.distributed.start_timeout_seconds) / 2);
  std::string written;
  if (group_->is_chief()) {
    written = temporary_path(join_path(layout_.root(), "group_start"));
    STOKER_RETURN_IF_ERROR(
        write_file_atomically(default_file_system(), written, group::host_name() + "\n"));
  }
  const std::string name = std::filesystem::path(written).filename().string();
  STOKER_ASSIGN_OR_RETURN(const std::string text,
                          group_->text_of_chief(name + ' ' + group::host_name(), stop));
  if (group_->is_chief()) {
    const Status read = group_->gather({}, stop).status();
    (void)default_file_system().remove_file(written);
    return read;
  }
  const size_t end = std::min(text.find(' '), text.size() - 1);
  const std::string path = join_path(layout_.root(), text.substr(0, end));
  const Deadline deadline = std::chrono::steady_clock::now() + patience;
  std::error_code error;
  while (!std::filesystem::exists(path, error)) {
    if (std::chrono::steady_clock::now() >= deadline)
      return Status(StatusCode::kMismatch,
                    path + ": is not on " + group::host_name() +
                        ", though rank 0 has written it on " + text.substr(end + 1) +
                        "; all ranks must see the same file system at the run directory");
    if (!sleep_until(stop, std::chrono::steady_clock::now() + std::chrono::milliseconds(100)))
      return Status(StatusCode::kCancelled, "startup cancelled");
  }
  return group_->gather({}, stop).status();
}

Result<run::RunOutcome> Run::train_segments(std::stop_token stop,
                                            const std::function<void()>& on_training) {
  // stoker-eval would fail hours later.
  const Status evaluable = model::check_eval_batch_size(config_.model, config_.eval);
  if (!evaluable.ok()) return preparation_outcome(evaluable);
  std::string resume = command_.resume;
  std::optional<data::Source> data;  // reused by all segments unless it is refreshed
  if (!maybe_refresher_) {
    auto opened = open_data(std::nullopt, is_chief());
    if (!opened.ok()) return preparation_outcome(opened.status());
    data = *std::move(opened);
  }
  for (bool first = true;; first = false) {
    auto prepared = prepare(std::move(data), resume);
    if (!prepared.ok()) return preparation_outcome(prepared.status());
    RunSegment& segment = *publish(*std::move(prepared));
    if (first) {
      channels_.board.set_step(segment.step());
      on_training();
    }
    const auto outcome = segment.train(channels_, stop);
    channels_.board.set_phase(control::TrainerPhase::kStart);
    live_settings_ = segment.live_settings();
    const Status shut_down = segment.shut_down();
    if (!outcome.ok()) return outcome.status();
    if (!shut_down.ok()) return shut_down;
    switch (*outcome) {
      case train::TrainerOutcome::kFinished:
        return run::RunOutcome::kFinished;
      case train::TrainerOutcome::kDataExhausted:
        if (segment.step() == 0)
          return Status(StatusCode::kCorrupt,
                        "data.train: the stream ended before the first step was complete");
        segment.end_stream();
        is_data_exhausted_ = true;
        return run::RunOutcome::kFinished;
      case train::TrainerOutcome::kStopped:
        return run::RunOutcome::kStopped;
      case train::TrainerOutcome::kPreempted:
        return run::RunOutcome::kPreempted;
      case train::TrainerOutcome::kRolledBack:
        STOKER_RETURN_IF_ERROR(segment.roll_back());
        break;
      case train::TrainerOutcome::kNewDatasetVersion:
        STOKER_RETURN_IF_ERROR(segment.apply_refresh());
        break;
      case train::TrainerOutcome::kNewSettings:
      case train::TrainerOutcome::kReleased:
        break;
    }
    resume.clear();  // checkpoints saved since then are newer
    const c10::Device device = segment.device();
    control::TrainerStatus last = *channels_.board.read();
    segment.add_live(last);
    if (!maybe_refresher_) data = segment.release_data();
    publish(nullptr);  // before the next one: two rings may not fit into memory
    if (*outcome != train::TrainerOutcome::kReleased) continue;
    release_device_memory(device, std::move(last));
    const bool is_resumed = train::wait_while_released(channels_, stop);
    is_released_ = false;
    if (!is_resumed) return is_preempted_ ? run::RunOutcome::kPreempted : run::RunOutcome::kStopped;
  }
}

void Run::release_device_memory(c10::Device device, control::TrainerStatus last) {
  is_released_ = true;
  train::publish_released(channels_, std::move(last),
                          train::release_device_memory(config_.train.device, device));
}

Result<run::RunOutcome> Run::preparation_outcome(const Status& error) const {
  // A task of a cluster waits in vain, because the run has ended.
  if (error.code() == StatusCode::kClosed && maybe_launch_ != nullptr &&
      maybe_launch_->maybe_cluster)
    return error;
  Status checked = require_stop(error, stop_requested_);
  if (checked.code() == StatusCode::kCancelled)
    return is_preempted_ ? run::RunOutcome::kPreempted : run::RunOutcome::kStopped;
  return checked;
}

RunSegment* Run::publish(std::unique_ptr<RunSegment> segment) {
  const std::lock_guard lock(mutex_);
  segment_.swap(segment);  // the caller destroys the old one, without the lock
  return segment_.get();
}

}  // namespace stoker::app
