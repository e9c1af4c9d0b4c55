#include "daemon/feeder/restart_budget.h"

namespace stoker::feeder {
namespace {

Status give_up(const std::string& how_often, const std::string& cause) {
  return Status(
      Code::kInternal,
      "reader processes keep dying (" + how_often + "; the last by " + cause +
          "): their lines in the log say why, and feed.num_processes: 0 helps to find it");
}

}  // namespace

Status RestartBudget::note_death(const Death& death) {
  ++deaths_;
  last_minute_.push_back(death.now);
  while (death.now - last_minute_.front() > std::chrono::minutes(1)) last_minute_.pop_front();
  if (death.gets_further || death.published != published_) in_vain_ = failures_in_vain_ = 0;
  published_ = death.published;
  ++in_vain_;
  if (death.by_itself) ++failures_in_vain_;
  if (in_vain_ >= kDeathsInVain || failures_in_vain_ >= kFailuresInVain)
    return give_up(std::to_string(in_vain_) + " without one new batch", death.cause);
  if (last_minute_.size() > deaths_per_minute_)
    return give_up(std::to_string(last_minute_.size()) +
                       " within a minute, more than feed.max_restarts_per_minute = " +
                       std::to_string(deaths_per_minute_),
                   death.cause);
  return {};
}

}  // namespace stoker::feeder
