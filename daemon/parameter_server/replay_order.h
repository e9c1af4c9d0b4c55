// ReplayOrder: how one process repeats the updates of an asynchronous run from the logs of its servers:
// which gradient it computes next, from which variables, and which server applies it when.
//
// Each server applies its gradients in the order of its log. A gradient is computed once the variables that
// it was computed from are there; those of servers that are ahead must be kept until then.
//
// A step is complete if all servers have applied the gradients of the same tickets, the lowest ones, by then
// and no gradient before it was computed from later variables. No server passes one before all have reached
// it. A replay can begin at a complete step if no later gradient was computed from earlier variables; each
// state that the run has saved is such a one.
//
// Threads: none; the owner serializes the calls.
// Errors:  kMismatch: the logs are not of the same run, or the state at the start is not one of them.
//          kCorrupt: they contradict each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "daemon/parameter_server/update_log.h"
#include "shared/base/status.h"

namespace stoker::parameter_server {

class ReplayOrder {
 public:
  // By server: all logs of a run. Replays what follows the state after `step` steps; nothing, if that is the
  // last complete one at which a replay cannot begin.
  static Result<ReplayOrder> create(const std::vector<ReadUpdateLog>& logs, uint64_t step);

  size_t num_servers() const { return servers_.size(); }
  uint64_t step(size_t server) const { return servers_[server].step; }
  // Whether all servers are at the same complete step.
  bool is_complete() const;
  // Whether a replay of these logs can begin at this state: that of a complete step.
  bool can_begin() const;
  uint64_t last_complete_step() const { return last_complete_step_; }

  // The server that can apply its next gradient, which is computed; nullopt: none.
  std::optional<size_t> next_server() const;
  size_t next_gradient_of(size_t server) const;  // an index
  void apply_next(size_t server);

  // The index of the gradient to compute next, when no server can apply one; nullopt: the end. Behind the
  // last complete step, a gradient whose variables are not in the logs is the end, too.
  std::optional<size_t> next_gradient() const;
  uint64_t ticket(size_t index) const { return gradients_.ticket(index); }
  // By server: the steps of the variables that it is computed from.
  std::span<const uint64_t> read_steps(size_t index) const { return gradients_.read_steps(index); }
  // Of the servers that apply it.
  bool is_applied_by(size_t index, size_t server) const;
  void finish(size_t index);  // it is computed

  // Whether a gradient that is not computed yet reads the variables of the server at `step`.
  bool is_read(size_t server, uint64_t step) const;

 private:
  struct Server {
    uint64_t start = 0, step = 0;
    std::vector<size_t> gradients;       // of the updates after `start`
    std::vector<uint32_t> readers = {};  // by step after `start`: gradients that are not computed

    bool has_next() const { return step - start < gradients.size(); }
    size_t next() const { return gradients[step - start]; }
  };
  using IndexesOfTickets = std::unordered_multimap<uint64_t, size_t>;

  ReplayOrder() = default;
  void find_complete_steps(const std::vector<ReadUpdateLog>& logs, uint64_t step);
  void reserve(size_t num_gradients);
  Status add(size_t server, const ReadUpdateLog& log, uint64_t step, IndexesOfTickets& known);
  void add_readers();
  void shrink_to_fit();
  bool is_same(size_t index, const LoggedUpdates& updates, size_t update) const;
  bool is_complete_step(uint64_t step) const;
  bool may_pass(size_t server) const;
  bool is_ready(size_t index) const;

  // By index.
  LoggedUpdates gradients_;
  std::vector<bool> is_applied_by_;  // num_servers() of each
  std::vector<bool> is_computed_;
  std::vector<Server> servers_;
  // By step after the start: whether it is complete, and whether a replay can begin there.
  uint64_t start_ = 0;
  std::vector<bool> is_complete_step_, is_beginning_;
  uint64_t last_complete_step_ = 0;
};

}  // namespace stoker::parameter_server
