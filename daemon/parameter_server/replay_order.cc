#include "daemon/parameter_server/replay_order.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <optional>
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
uint64_t earliest_complete_step(const LoggedUpdates& updates, size_t index) {
  return std::max(updates.ticket(index) + 1, std::ranges::max(updates.read_steps(index)));
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
  for (size_t i = 0; i < step - log.first_step; ++i)
    if (earliest_complete_step(log.updates, i) > step)
      return Status(
          StatusCode::kMismatch,
          name_of(server) + ": the run has no complete state at step " + std::to_string(step));
  return {};
}

// Whether updates after `step` are of gradients that were computed from variables before, which are in the logs.
bool reads_before(const std::vector<ReadUpdateLog>& logs, uint64_t step) {
  uint64_t first = 0, read = step;
  for (const ReadUpdateLog& log : logs) {
    first = std::max(first, log.first_step);
    for (size_t i = step - log.first_step; i < log.updates.size(); ++i)
      read = std::min(read, std::ranges::min(log.updates.read_steps(i)));
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
  for (Server& server : order.servers_) server.start = server.step = step;
  if (reads_before(logs, step)) {
    if (order.last_complete_step() != step)
      return Status(StatusCode::kMismatch,
                    "later gradients of the run were computed from the parameters before step " +
                        std::to_string(step) +
                        "; use --resume with a checkpoint of the run, or --fresh");
    return order;
  }
  size_t longest = 0;
  for (const ReadUpdateLog& log : logs) longest = std::max(longest, log.updates.size());
  order.reserve(longest);
  IndexesOfTickets known(longest);
  for (size_t i = 0; i < logs.size(); ++i)
    STOKER_RETURN_IF_ERROR(order.add(i, logs[i], step, known));
  order.add_readers();
  order.shrink_to_fit();
  return order;
}

void ReplayOrder::reserve(size_t num_gradients) {
  gradients_.reserve(num_gradients, num_servers());
  is_applied_by_.reserve(num_gradients * num_servers());
}

void ReplayOrder::shrink_to_fit() {
  gradients_.shrink_to_fit();
  is_applied_by_.shrink_to_fit();
}

Status ReplayOrder::add(size_t server, const ReadUpdateLog& log, uint64_t step,
                        IndexesOfTickets& known) {
  std::vector<size_t>& added = servers_[server].gradients;
  added.reserve(log.updates.size() - (step - log.first_step));
  for (size_t i = step - log.first_step; i < log.updates.size(); ++i) {
    const uint64_t ticket = log.updates.ticket(i);
    const auto read = log.updates.read_steps(i);
    const uint64_t before = log.first_step + i;
    bool is_valid = ticket >= step && read[server] <= before && std::ranges::min(read) >= step;
    std::optional<size_t> found;
    const auto [first, last] = known.equal_range(ticket);
    for (auto each = first; each != last; ++each) {
      is_valid = is_valid && !is_applied_by(each->second, server);
      if (is_same(each->second, log.updates, i)) found = each->second;
    }
    if (!is_valid)
      return Status(StatusCode::kCorrupt, name_of(server) + ": the record of step " +
                                              std::to_string(before + 1) +
                                              " contradicts those before");
    if (!found) {
      found = gradients_.size();
      gradients_.push_back(ticket, log.updates.worker(i), read);
      is_applied_by_.resize(is_applied_by_.size() + num_servers());
      known.emplace(ticket, *found);
    }
    is_applied_by_[*found * num_servers() + server] = true;
    added.push_back(*found);
  }
  return {};
}

// Of variables behind the end of a log there are none: the gradients that read them are not computed.
void ReplayOrder::add_readers() {
  is_computed_.resize(gradients_.size());
  for (Server& server : servers_) server.readers.resize(server.gradients.size() + 1);
  for (size_t index = 0; index < gradients_.size(); ++index)
    for (size_t i = 0; i < servers_.size(); ++i)
      if (const uint64_t after = read_steps(index)[i] - start_; after < servers_[i].readers.size())
        ++servers_[i].readers[after];
}

bool ReplayOrder::is_same(size_t index, const LoggedUpdates& updates, size_t update) const {
  return gradients_.ticket(index) == updates.ticket(update) &&
         gradients_.worker(index) == updates.worker(update) &&
         std::ranges::equal(read_steps(index), updates.read_steps(update));
}

void ReplayOrder::find_complete_steps(const std::vector<ReadUpdateLog>& logs, uint64_t step) {
  const auto update_to = [](const ReadUpdateLog& log, uint64_t updated) -> size_t {
    return updated - log.first_step - 1;
  };
  uint64_t end = std::numeric_limits<uint64_t>::max(), longest = step;
  for (const ReadUpdateLog& log : logs) {
    end = std::min(end, log.first_step + log.updates.size());
    longest = std::max(longest, log.first_step + log.updates.size());
  }
  start_ = last_complete_step_ = step;
  is_complete_step_.resize(end - step + 1);
  is_beginning_.resize(end - step + 1);
  is_complete_step_[0] = true;
  uint64_t earliest = step;
  for (uint64_t updated = step + 1; updated <= end; ++updated) {
    for (const ReadUpdateLog& log : logs)
      earliest = std::max(earliest, earliest_complete_step(log.updates, update_to(log, updated)));
    if (earliest != updated) continue;
    is_complete_step_[updated - step] = true;
    last_complete_step_ = updated;
  }
  // From the end: the earliest variables that later gradients were computed from.
  uint64_t read = std::numeric_limits<uint64_t>::max(), after = longest;
  for (uint64_t complete = end + 1; complete-- > step;) {
    for (; after > complete; --after)
      for (const ReadUpdateLog& log : logs)
        if (after <= log.first_step + log.updates.size())
          read = std::min(read, std::ranges::min(log.updates.read_steps(update_to(log, after))));
    is_beginning_[complete - step] = is_complete_step(complete) && read >= complete;
  }
}

bool ReplayOrder::is_complete_step(uint64_t step) const {
  return step - start_ < is_complete_step_.size() && is_complete_step_[step - start_];
}

bool ReplayOrder::is_complete() const {
  const uint64_t first = servers_.front().step;
  return std::ranges::all_of(servers_, [&](const Server& each) { return each.step == first; }) &&
         is_complete_step(first);
}

bool ReplayOrder::can_begin() const {
  return is_complete() && is_beginning_[servers_.front().step - start_];
}

// Not beyond a complete step that another server has not reached.
bool ReplayOrder::may_pass(size_t server) const {
  const uint64_t step = servers_[server].step;
  return !is_complete_step(step) ||
         std::ranges::all_of(servers_, [&](const Server& each) { return each.step >= step; });
}

std::optional<size_t> ReplayOrder::next_server() const {
  for (size_t i = 0; i < servers_.size(); ++i)
    if (servers_[i].has_next() && may_pass(i) && is_computed_[servers_[i].next()]) return i;
  return std::nullopt;
}

size_t ReplayOrder::next_gradient_of(size_t server) const {
  assert(servers_[server].has_next());
  return servers_[server].next();
}

void ReplayOrder::apply_next(size_t server) {
  assert(is_computed_[next_gradient_of(server)]);
  ++servers_[server].step;
}

bool ReplayOrder::is_ready(size_t index) const {
  for (size_t i = 0; i < servers_.size(); ++i)
    if (servers_[i].step < read_steps(index)[i]) return false;
  return true;
}

// That of the server that is behind, so that few variables are kept.
std::optional<size_t> ReplayOrder::next_gradient() const {
  std::optional<size_t> best;
  for (size_t i = 0; i < servers_.size(); ++i) {
    const Server& server = servers_[i];
    if (!server.has_next() || !may_pass(i) || !is_ready(server.next())) continue;
    if (!best || server.step < servers_[*best].step) best = i;
  }
  if (!best) return std::nullopt;
  return servers_[*best].next();
}

bool ReplayOrder::is_applied_by(size_t index, size_t server) const {
  return is_applied_by_[index * num_servers() + server];
}

void ReplayOrder::finish(size_t index) {
  assert(!is_computed_[index]);
  is_computed_[index] = true;
  for (size_t i = 0; i < servers_.size(); ++i) --servers_[i].readers[read_steps(index)[i] - start_];
}

bool ReplayOrder::is_read(size_t server, uint64_t step) const {
  return servers_[server].readers[step - start_] > 0;
}

}  // namespace stoker::parameter_server
