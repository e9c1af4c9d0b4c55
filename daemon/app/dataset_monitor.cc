#include "daemon/app/dataset_monitor.h"

#include <chrono>
#include <utility>

#include "shared/base/deadline.h"
#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/base/thread_registry.h"
#include "shared/config/config.h"
#include "shared/data/files/index.h"
#include "shared/data/files/scan.h"
#include "shared/data/pipeline/dataset_refresh.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/feed/worker_sandbox.h"

namespace stoker::app {
namespace {

constexpr ThreadActivity kScan{.operation = "scan datasets"};
constexpr ThreadActivity kWaitForScan{.operation = "wait for next scan", .is_waiting = true};

void wait(const std::stop_token& stop, double seconds) {
  const ScopedActivity waiting(kWaitForScan);
  const auto duration = std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(seconds));
  sleep_until(stop, std::chrono::steady_clock::now() + duration);
}

}  // namespace

DatasetMonitor::DatasetMonitor(const config::Config& config, const data::Dataset& data,
                               std::string index_dir, std::string next_dir)
    : config_(config),
      data_(data),
      index_dir_(std::move(index_dir)),
      next_dir_(std::move(next_dir)) {}

Status DatasetMonitor::run(std::stop_token stop) {
  while (!stop.stop_requested() && !found()) {
    const ScopedActivity scanning(kScan);
    const Status scanned = scan(stop);
    if (stop.stop_requested()) break;
    if (!scanned.ok() && scanned.message() != last_error_)
      log_warn("dataset refresh rejected", {{"error", scanned.message()}});
    last_error_ = scanned.ok() ? "" : scanned.message();
    if (!found()) wait(stop, config_.feed.refresh_interval_seconds);
  }
  return {};
}

// Starts from a copy of the current index, so that a scan of unchanged data opens no file.
Status DatasetMonitor::prepare_next_index() const {
  STOKER_RETURN_IF_ERROR(make_directories(default_file_system(), next_dir_));
  for (const std::string& name : config::sampled_datasets(config_)) {
    STOKER_ASSIGN_OR_RETURN(const auto index,
                            data::files::load_index(data::pipeline::index_file(name, index_dir_)));
    STOKER_RETURN_IF_ERROR(
        data::files::save_index(index, data::pipeline::index_file(name, next_dir_)));
  }
  return {};
}

Status DatasetMonitor::scan(const std::stop_token& stop) {
  if (!seeded_) STOKER_RETURN_IF_ERROR(prepare_next_index());
  seeded_ = true;
  const auto listener = [&stop](uint64_t, std::string_view) {
    if (stop.stop_requested()) throw data::files::ScanStopped();
  };
  const auto sandbox = feed::make_sandbox(config_);
  STOKER_ASSIGN_OR_RETURN(
      const auto next,
      data::pipeline::open_dataset("train", config_.data, next_dir_, listener, 0, sandbox.get()));
  if (next->fingerprint() == data_.fingerprint()) return {};
  STOKER_RETURN_IF_ERROR(data::pipeline::validate_refresh(
      config_.data, config::sampled_datasets(config_), index_dir_, next_dir_));
  STOKER_RETURN_IF_ERROR(data::pipeline::validate_same_schema(data_, *next));
  log_info("new data found", {{"samples", next->size()},
                              {"previous", data_.size()},
                              {"fingerprint", next->fingerprint().substr(0, 12)}});
  samples_ = next->size();
  fingerprint_ = next->fingerprint();
  found_.store(true, std::memory_order_release);
  return {};
}

}  // namespace stoker::app
