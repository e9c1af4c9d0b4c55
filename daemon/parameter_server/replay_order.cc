#include "daemon/parameter_server/replay_order.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <utility>

namespace stoker::parameter_server {
namespace {

std::string name_of(size_t server) { return "update log of ps " + std::to_string(server); }

Status check_same_run(const std::vector<ReadUpdateLog>& logs) {
  UpdateLogIdentity expected = logs.front().identity;
  if (logs.size() != expected.num_servers)
    return Status(StatusCode::kMismatch, "there are " + std::to_string(logs.size()) +
                                             " update logs of " +
                                             std::to_string(expected.num_servers) + " servers");
  for (size_t i = 0; i < logs.size(); ++i) {
    expected.server = static_cast<uint32_t>(i);
    if (logs[i].identity != expected)
      return Status(StatusCode::kMismatch,
                    name_of(i) + ": is of another run, or of another server, than that of ps 0");
  }
  return {};
}

// The lowest step by which all of the gradient's ticket and variables can be complete.
uint64_t earliest_complete_step(const LoggedUpdate& update) {
  return std::max(update.ticket + 1, *std::ranges::max_element(update.read_steps));
}

// Of the updates before `step`. Each ticket is applied once, so the highest one says whether these are all.
Status check_start(size_t server, const ReadUpdateLog& log, uint64_t step) {
  const uint64_t end = log.first_step + log.updates.size();
  if (step < log.first_step)
    return Status(StatusCode::kMismatch, name_of(server) + ": begins at step " +
                                             std::to_string(log.first_step) +
                                             ", and the state is of step " + std::to_string(step) +
                                             "; use --resume with a checkpoint of step " +
                                             std::to_string(log.first_step) + " or later");
  if (step > end)
    return Status(StatusCode::kMismatch, name_of(server) + ": ends at step " + std::to_string(end) +
                                             ", and the state is of step " + std::to_string(step));
  const auto count = static_cast<std::ptrdiff_t>(step - log.first_step);
  const bool is_complete = std::all_of(
      log.updates.begin(), log.updates.begin() + count,
      [step](const LoggedUpdate& update) { return earliest_complete_step(update) <= step; });
  if (is_complete) return {};
  return Status(
      StatusCode::kMismatch,
      name_of(server) + ": the run has no complete state at step " + std::to_string(step));
}

// Whether updates after `step` are of gradients that were computed from variables before, which are in the logs.
bool reads_before(const std::vector<ReadUpdateLog>& logs, uint64_t step) {
  uint64_t first = 0, read = step;
  for (const ReadUpdateLog& log : logs) {
    first = std::max(first, log.first_step);
    for (size_t i = step - log.first_step; i < log.updates.size(); ++i)
      read = std::min(read, std::ranges::min(log.updates[i].read_steps));
  }
  return read < step && read >= first;
}

}  // namespace

Result<ReplayOrder> ReplayOrder::create(const std::vector<ReadUpdateLog>& logs, uint64_t step) {
  assert(!logs.empty());
  STOKER_RETURN_IF_ERROR(check_same_run(logs));
  for (size_t i = 0; i < logs.size(); ++i) STOKER_RETURN_IF_ERROR(check_start(i, logs[i], step));
  ReplayOrder order;
  order.servers_.resize(logs.size());
  order.find_complete_steps(logs, step);
  if (reads_before(logs, step)) {
    if (order.last_complete_step() != step)
      return Status(StatusCode::kMismatch,
                    "later gradients of the run were computed from the parameters before step " +
                        std::to_string(step) +
                        "; use --resume with a checkpoint of the run, or --fresh");
    for (Server& server : order.servers_) server.start = server.step = step;
    return order;
  }
  for (size_t i = 0; i < logs.size(); ++i) STOKER_RETURN_IF_ERROR(order.add(i, logs[i], step));
  order.of_ticket_.clear();
  for (const Gradient& gradient : order.gradients_)
    for (size_t i = 0; i < logs.size(); ++i)
      ++order.servers_[i].readers[gradient.logged.read_steps[i]];
  return order;
}

Status ReplayOrder::add(size_t server, const ReadUpdateLog& log, uint64_t step) {
  Server& added = servers_[server];
  added.start = added.step = step;
  std::set<uint64_t> tickets;
  for (size_t i = step - log.first_step; i < log.updates.size(); ++i) {
    const LoggedUpdate& update = log.updates[i];
    const uint64_t before = log.first_step + i;
    const bool is_valid = update.ticket >= step && tickets.insert(update.ticket).second &&
                          update.read_steps[server] <= before &&
                          std::ranges::min(update.read_steps) >= step;
    if (!is_valid)
      return Status(StatusCode::kCorrupt, name_of(server) + ": the record of step " +
                                              std::to_string(before + 1) +
                                              " contradicts those before");
    std::vector<size_t>& known = of_ticket_[update.ticket];
    auto found = std::ranges::find_if(
        known, [&](size_t index) { return gradients_[index].logged == update; });
    if (found == known.end()) {
      gradients_.push_back({.logged = update});
      gradients_.back().appliers.resize(servers_.size());
      found = known.insert(known.end(), gradients_.size() - 1);
    }
    gradients_[*found].appliers[server] = true;
    added.gradients.push_back(*found);
  }
  return {};
}

void ReplayOrder::find_complete_steps(const std::vector<ReadUpdateLog>& logs, uint64_t step) {
  const auto update_to = [&](const ReadUpdateLog& log, uint64_t updated) -> const LoggedUpdate& {
    return log.updates[updated - log.first_step - 1];
  };
  uint64_t end = std::numeric_limits<uint64_t>::max(), longest = step;
  for (const ReadUpdateLog& log : logs) {
    end = std::min(end, log.first_step + log.updates.size());
    longest = std::max(longest, log.first_step + log.updates.size());
  }
  complete_steps_.push_back(step);
  uint64_t earliest = step;
  for (uint64_t updated = step + 1; updated <= end; ++updated) {
    for (const ReadUpdateLog& log : logs)
      earliest = std::max(earliest, earliest_complete_step(update_to(log, updated)));
    if (earliest == updated) complete_steps_.push_back(updated);
  }
  // From the end: the earliest variables that later gradients were computed from.
  uint64_t read = std::numeric_limits<uint64_t>::max(), after = longest;
  for (auto complete = complete_steps_.rbegin(); complete != complete_steps_.rend(); ++complete) {
    for (; after > *complete; --after)
      for (const ReadUpdateLog& log : logs)
        if (after <= log.first_step + log.updates.size())
          read = std::min(read, std::ranges::min(update_to(log, after).read_steps));
    if (read >= *complete) beginnings_.push_back(*complete);
  }
  std::ranges::reverse(beginnings_);
}

bool ReplayOrder::is_complete() const {
  const uint64_t first = servers_.front().step;
  return std::ranges::all_of(servers_, [&](const Server& each) { return each.step == first; }) &&
         std::ranges::binary_search(complete_steps_, first);
}

bool ReplayOrder::can_begin() const {
  return is_complete() && std::ranges::binary_search(beginnings_, servers_.front().step);
}

// Not beyond a complete step that another server has not reached.
bool ReplayOrder::may_pass(size_t server) const {
  const uint64_t step = servers_[server].step;
  return !std::ranges::binary_search(complete_steps_, step) ||
         std::ranges::all_of(servers_, [&](const Server& each) { return each.step >= step; });
}

std::optional<size_t> ReplayOrder::next_server() const {
  for (size_t i = 0; i < servers_.size(); ++i)
    if (servers_[i].has_next() && may_pass(i) && gradients_[servers_[i].next()].is_computed)
      return i;
  return std::nullopt;
}

size_t ReplayOrder::next_gradient_of(size_t server) const {
  assert(servers_[server].has_next());
  return servers_[server].next();
}

void ReplayOrder::apply_next(size_t server) {
  assert(gradients_[next_gradient_of(server)].is_computed);
  ++servers_[server].step;
}

bool ReplayOrder::is_ready(const Gradient& gradient) const {
  for (size_t i = 0; i < servers_.size(); ++i)
    if (servers_[i].step < gradient.logged.read_steps[i]) return false;
  return true;
}

// That of the server that is behind, so that few variables are kept.
std::optional<size_t> ReplayOrder::next_gradient() const {
  std::optional<size_t> best;
  for (size_t i = 0; i < servers_.size(); ++i) {
    const Server& server = servers_[i];
    if (!server.has_next() || !may_pass(i) || !is_ready(gradients_[server.next()])) continue;
    if (!best || server.step < servers_[*best].step) best = i;
  }
  if (!best) return std::nullopt;
  return servers_[*best].next();
}

bool ReplayOrder::is_applied_by(size_t index, size_t server) const {
  return gradients_[index].appliers[server];
}

void ReplayOrder::finish(size_t index) {
  Gradient& gradient = gradients_[index];
  assert(!gradient.is_computed);
  gradient.is_computed = true;
  for (size_t i = 0; i < servers_.size(); ++i) {
    const auto readers = servers_[i].readers.find(gradient.logged.read_steps[i]);
    if (--readers->second == 0) servers_[i].readers.erase(readers);
  }
}

bool ReplayOrder::is_read(size_t server, uint64_t step) const {
  return servers_[server].readers.contains(step);
}

}  // namespace stoker::parameter_server
