#include "daemon/app/dataset_refresher.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/base/thread_registry.h"
#include "shared/data/files/scan.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/feed/worker_sandbox.h"

namespace stoker::app {
namespace {

feed::DatasetVersions saved_history(const checkpoint::Manifest& saved) {
  feed::DatasetVersions history;
  for (const checkpoint::DatasetVersion& state : saved.dataset_versions)
    history.push_back({.start = {.ticket = state.start_ticket, .epoch = state.epoch},
                       .samples = state.samples,
                       .fingerprint = state.fingerprint});
  return history;
}

bool begins_with(const feed::DatasetVersions& whole, const feed::DatasetVersions& part) {
  return whole.size() >= part.size() && std::equal(part.begin(), part.end(), whole.begin());
}

}  // namespace

std::string DatasetRefresher::next_dir() const { return join_path(layout_.index_dir(), "next"); }

Result<std::unique_ptr<data::Dataset>> DatasetRefresher::open(
    uint64_t ticket, const checkpoint::Manifest* maybe_saved,
    const data::files::ScanProgress& progress) {
  STOKER_ASSIGN_OR_RETURN(history_, feed::read_dataset_versions(layout_.dataset_versions_file()));
  if (maybe_saved != nullptr) {
    feed::DatasetVersions saved = saved_history(*maybe_saved);
    if (!begins_with(history_, saved)) history_ = std::move(saved);
    // There was no refresh yet, so there is only the version of the index.
    if (history_.empty())
      history_ = {{.start = {}, .samples = 0, .fingerprint = maybe_saved->data_digest}};
  }
  if (!history_.empty()) {
    now_ = feed::version_at(history_, ticket);
    auto data = open_state(progress);
    if (data.ok() && (*data)->fingerprint() == now_.fingerprint) {
      if (history_.size() == 1) history_.front().samples = now_.samples = (*data)->size();
      return data;
    }
    if (data.status().code() == StatusCode::kCancelled) return data;
    log_warn("dataset changed", {{"start_ticket", now_.start.ticket},
                                 {"reason", data.ok() ? "files or modification times differ"
                                                      : data.status().message()}});
  }
  STOKER_ASSIGN_OR_RETURN(auto data, scan(layout_.index_dir(), progress));
  now_ = {.start = {}, .samples = data->size(), .fingerprint = data->fingerprint()};
  history_ = {now_};
  return data;
}

// "TICKET\n", the start of the version, and the history.
std::string DatasetRefresher::version_text() const {
  return std::to_string(now_.start.ticket) + '\n' + feed::to_text(history_);
}

Result<std::unique_ptr<data::Dataset>> DatasetRefresher::open_version(const std::string& text) {
  const std::string from = "dataset versions of rank 0";
  uint64_t ticket = 0;
  const char* const end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, ticket);
  if (error != std::errc() || next == end || *next != '\n')
    return Status(StatusCode::kCorrupt, from + ": do not start with a ticket");
  STOKER_ASSIGN_OR_RETURN(history_,
                          feed::parse_dataset_versions(std::string_view(next + 1, end), from));
  if (history_.empty()) return Status(StatusCode::kCorrupt, from + ": there are none");
  now_ = feed::version_at(history_, ticket);
  auto data = data::pipeline::open_indexed("train", config_.data, index_dir(), now_.fingerprint,
                                           cache_bytes());
  if (!data.ok()) return data.status().with_context("the version that rank 0 has opened");
  return data;
}

// Opened through its index, so that newer files are ignored; scanned again if the index is missing.
Result<std::unique_ptr<data::Dataset>> DatasetRefresher::open_state(
    const data::files::ScanProgress& progress) {
  auto indexed = data::pipeline::open_indexed("train", config_.data, index_dir(), now_.fingerprint,
                                              cache_bytes());
  if (indexed.ok()) return indexed;
  return scan(index_dir(), progress);
}

Result<std::unique_ptr<data::Dataset>> DatasetRefresher::scan(
    const std::string& index_dir, const data::files::ScanProgress& progress) const {
  const auto sandbox = feed::make_sandbox(config_);
  return data::pipeline::open_dataset("train", config_.data, index_dir, progress, cache_bytes(),
                                      sandbox.get());
}

Status DatasetRefresher::save() const {
  const auto stored = feed::read_dataset_versions(layout_.dataset_versions_file());
  if (stored.ok() && *stored == history_) return {};
  return feed::write_dataset_versions(layout_.dataset_versions_file(), history_);
}

std::string DatasetRefresher::fingerprint_before(uint64_t ticket) const {
  return feed::version_at(history_, ticket == 0 ? 0 : ticket - 1).fingerprint;
}

std::vector<checkpoint::DatasetVersion> DatasetRefresher::history() const {
  std::vector<checkpoint::DatasetVersion> states;
  for (const feed::DatasetVersion& state : history_)
    if (state.start.ticket <= now_.start.ticket)
      states.push_back({.start_ticket = state.start.ticket,
                        .epoch = state.start.epoch,
                        .samples = state.samples,
                        .fingerprint = state.fingerprint});
  return states;
}

const feed::DatasetVersion* DatasetRefresher::find_next() const {
  const auto next = std::ranges::upper_bound(
      history_, now_.start.ticket, {},
      [](const feed::DatasetVersion& state) { return state.start.ticket; });
  return next == history_.end() ? nullptr : &*next;
}

void DatasetRefresher::watch(const data::Dataset& data, Coordinator& coordinator) {
  monitor_.reset();
  if (find_next() != nullptr) return;  // the next version is already recorded
  monitor_ = std::make_unique<DatasetMonitor>(config_, data, index_dir(), next_dir());
  coordinator.start(
      std::make_unique<ThreadRecord>("data-monitor", "scan dataset"),
      [monitor = monitor_.get()](std::stop_token stop) { return monitor->run(stop); });
}

bool DatasetRefresher::has_new_version_at(uint64_t ticket,
                                          const data::order::SamplePlan& plan) const {
  if (ticket <= now_.start.ticket) return false;
  if (const feed::DatasetVersion* const next = find_next()) return ticket >= next->start.ticket;
  if (!monitor_ || !monitor_->found()) return false;
  if (feed::refreshes_immediately(config_)) return true;
  const uint64_t step = static_cast<uint64_t>(config_.train.gradient_accumulation_steps);
  const uint64_t before = ticket - std::min(step, ticket - now_.start.ticket);
  return plan.epoch_of(ticket) > plan.epoch_of(before);
}

Status DatasetRefresher::apply_refresh(uint64_t ticket, const data::order::SamplePlan& plan) {
  if (find_next() != nullptr) return {};
  const feed::DatasetVersion next{
      .start = {.ticket = ticket, .epoch = plan.epoch_of(ticket - 1) + 1},
      .samples = monitor_->samples(),
      .fingerprint = monitor_->fingerprint()};
  const std::string folder = feed::index_dir_for(layout_.index_dir(), next);
  STOKER_RETURN_IF_ERROR(default_file_system().remove_tree(folder));
  STOKER_RETURN_IF_ERROR(default_file_system().rename_noreplace(next_dir(), folder));
  STOKER_RETURN_IF_ERROR(default_file_system().sync_directory(layout_.index_dir()));
  history_.push_back(next);
  STOKER_RETURN_IF_ERROR(feed::write_dataset_versions(layout_.dataset_versions_file(), history_));
  log_info("dataset refreshed", {{"start_ticket", ticket},
                                 {"epoch", next.start.epoch},
                                 {"samples", next.samples},
                                 {"previous", now_.samples},
                                 {"fingerprint", next.fingerprint.substr(0, 12)}});
  return {};
}

}  // namespace stoker::app
