#include "daemon/daemon_app/growing_data.h"

#include <algorithm>
#include <utility>

#include "shared/base/file.h"
#include "shared/base/log.h"

namespace stoker::daemon_app {
namespace {

feed::GrowthHistory saved_history(const checkpoint::Manifest& saved) {
  feed::GrowthHistory history;
  for (const checkpoint::DataState& state : saved.data_history)
    history.push_back({.began = {.ticket = state.ticket, .epoch = state.epoch},
                       .samples = state.samples,
                       .fingerprint = state.fingerprint});
  return history;
}

bool begins_with(const feed::GrowthHistory& whole, const feed::GrowthHistory& part) {
  return whole.size() >= part.size() && std::equal(part.begin(), part.end(), whole.begin());
}

}  // namespace

std::string GrowingData::next_dir() const { return join_path(layout_.index(), "next"); }

Result<std::unique_ptr<dataset::Dataset>> GrowingData::open(uint64_t ticket,
                                                            const checkpoint::Manifest* maybe_saved,
                                                            const dataset::ScanProgress& progress) {
  STOKER_ASSIGN_OR_RETURN(history_, feed::read_growth(layout_.growth_file()));
  if (maybe_saved != nullptr) {
    feed::GrowthHistory saved = saved_history(*maybe_saved);
    if (!begins_with(history_, saved)) history_ = std::move(saved);
    // It did not grow so far: what it was trained on is what its index says.
    if (history_.empty())
      history_ = {{.began = {}, .samples = 0, .fingerprint = maybe_saved->data_digest}};
  }
  if (!history_.empty()) {
    now_ = feed::state_at(history_, ticket);
    auto data = open_state(progress);
    if (data.ok() && (*data)->fingerprint() == now_.fingerprint) {
      if (history_.size() == 1) history_.front().samples = now_.samples = (*data)->size();
      return data;
    }
    log_warn("dataset changed",
             {{"start_ticket", now_.began.ticket},
              {"reason", data.ok() ? "other files, or other times" : data.status().message()}});
  }
  STOKER_ASSIGN_OR_RETURN(auto data,
                          dataset::open_dataset("train", config_.data, layout_.index(), progress));
  now_ = {.began = {}, .samples = data->size(), .fingerprint = data->fingerprint()};
  history_ = {now_};
  return data;
}

// Through its index, whatever came to the folder since; where that is gone, by another look.
Result<std::unique_ptr<dataset::Dataset>> GrowingData::open_state(
    const dataset::ScanProgress& progress) {
  auto indexed = dataset::open_indexed("train", config_.data, index_dir(), now_.fingerprint);
  if (indexed.ok()) return indexed;
  return dataset::open_dataset("train", config_.data, index_dir(), progress);
}

Status GrowingData::keep() const {
  const auto kept = feed::read_growth(layout_.growth_file());
  if (kept.ok() && *kept == history_) return {};
  return feed::write_growth(layout_.growth_file(), history_);
}

std::string GrowingData::digest_before(uint64_t ticket) const {
  return feed::state_at(history_, ticket == 0 ? 0 : ticket - 1).fingerprint;
}

std::vector<checkpoint::DataState> GrowingData::history() const {
  std::vector<checkpoint::DataState> states;
  for (const feed::DataState& state : history_)
    if (state.began.ticket <= now_.began.ticket)
      states.push_back({.ticket = state.began.ticket,
                        .epoch = state.began.epoch,
                        .samples = state.samples,
                        .fingerprint = state.fingerprint});
  return states;
}

const feed::DataState* GrowingData::maybe_next() const {
  const auto next =
      std::ranges::upper_bound(history_, now_.began.ticket, {},
                               [](const feed::DataState& state) { return state.began.ticket; });
  return next == history_.end() ? nullptr : &*next;
}

void GrowingData::watch(const dataset::Dataset& data, Coordinator& coordinator) {
  watch_.reset();
  if (maybe_next() != nullptr) return;  // it is known what comes
  watch_ = std::make_unique<GrowthWatch>(config_, data, index_dir(), next_dir());
  coordinator.start("growth",
                    [watch = watch_.get()](std::stop_token stop) { return watch->run(stop); });
}

bool GrowingData::is_new_at(uint64_t ticket, const dataset::SamplePlan& plan) const {
  if (ticket <= now_.began.ticket) return false;
  if (const feed::DataState* const next = maybe_next()) return ticket >= next->began.ticket;
  if (!watch_ || !watch_->found()) return false;
  if (feed::grows_at_once(config_)) return true;
  const uint64_t step = static_cast<uint64_t>(config_.train.gradient_accumulation_steps);
  const uint64_t before = ticket - std::min(step, ticket - now_.began.ticket);
  return plan.epoch_of(ticket) > plan.epoch_of(before);
}

Status GrowingData::take_in(uint64_t ticket, const dataset::SamplePlan& plan) {
  if (maybe_next() != nullptr) return {};
  const feed::DataState next{.began = {.ticket = ticket, .epoch = plan.epoch_of(ticket - 1) + 1},
                             .samples = watch_->samples(),
                             .fingerprint = watch_->fingerprint()};
  const std::string folder = feed::index_dir_of(layout_.index(), next);
  STOKER_RETURN_IF_ERROR(real_files().remove_tree(folder));
  STOKER_RETURN_IF_ERROR(real_files().rename_noreplace(next_dir(), folder));
  STOKER_RETURN_IF_ERROR(real_files().sync_directory(layout_.index()));
  history_.push_back(next);
  STOKER_RETURN_IF_ERROR(feed::write_growth(layout_.growth_file(), history_));
  log_info("dataset refreshed", {{"start_ticket", ticket},
                                 {"epoch", next.began.epoch},
                                 {"samples", next.samples},
                                 {"previous", now_.samples},
                                 {"fingerprint", next.fingerprint.substr(0, 12)}});
  return {};
}

}  // namespace stoker::daemon_app
