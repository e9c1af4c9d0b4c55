// WorkerConnection: the connections of one start of a worker to all parameter servers.
//
// Threads:   one.
// Blocking:  each call until the servers have answered, at most for Meeting::timeout; a stop wakes it.
//            claim() returns kWait after a short time.
// Ownership: shares the tensors of the parameters.
// Errors:    kPeerLost: a server exited, hangs or cannot be reached. kCancelled.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "daemon/group/pair_connection.h"
#include "daemon/parameter_server/cluster_spec.h"
#include "daemon/parameter_server/meeting.h"
#include "daemon/parameter_server/messages.h"
#include "daemon/parameter_server/server_connection.h"
#include "daemon/parameter_server/setting_history.h"
#include "daemon/parameter_server/update_schedule.h"
#include "shared/base/status.h"
#include "shared/control/trainer_status.h"
#include "shared/run/run_state.h"

namespace stoker::parameter_server {

class WorkerConnection final : public ServerConnection {
 public:
  // The parts by server. `sums_norms`: the servers of a sync run need the norm of all gradients.
  static Result<std::unique_ptr<WorkerConnection>> open(const ClusterTask& task,
                                                        const Meeting& meeting,
                                                        std::vector<ServerPart> parts,
                                                        const std::stop_token& stop,
                                                        bool sums_norms = false);

  Result<Claimed> claim(const std::stop_token& stop) override;
  Result<Claimed> claim_gap(const std::stop_token& stop) override;
  Status pull(uint64_t step, const std::stop_token& stop) override;
  Result<PushResult> push(uint64_t ticket, uint64_t step, const Sums& sums,
                          const std::vector<at::Tensor>& gradients,
                          const train::Optimizer::Reached& reached,
                          const std::stop_token& stop) override;
  Status keep_alive(const std::stop_token& stop) override;
  std::vector<SettingsVersion> take_settings() override { return std::exchange(settings_, {}); }
  Status change_settings(const SettingsVersion& settings, const std::stop_token& stop) override;
  Status initialize(uint64_t step, const Sums& sums, const std::stop_token& stop) override;
  Result<std::optional<std::pair<uint64_t, Sums>>> begin_save(const std::stop_token& stop) override;
  Status read_state(uint64_t step, const std::stop_token& stop) override;
  Status end_save(const std::stop_token& stop) override;
  Result<std::optional<Record>> take_record(uint64_t step, uint64_t saved_step,
                                            const std::stop_token& stop) override;
  Result<control::TrainerStatus::Cluster> read_status(const std::stop_token& stop) override;
  Status end_run(run::RunOutcome outcome, const std::stop_token& stop) override;
  size_t num_servers() const override { return servers_.size(); }

 private:
  struct Server {
    std::unique_ptr<group::TcpStore> store;
    std::unique_ptr<group::PairConnection> connection;
    ServerPart part;
    at::Tensor push_bytes;  // of pack_gradients(), which begins with parameter_bytes
    at::Tensor parameter_bytes, state_bytes;
  };

  Server& first() { return servers_.front(); }
  static Result<Header> ask(Server& server, const Header& request, const std::stop_token& stop);
  // Server 0, whose reply has the version of the settings.
  Result<Header> ask_first(const Header& request, const std::stop_token& stop);
  Status learn_settings(uint64_t version, const std::stop_token& stop);
  Status read_untrained(const std::stop_token& stop);
  Result<double> norm_of_step(uint64_t step, const std::stop_token& stop);
  int64_t num_variables() const;

  ClusterTask task_;
  bool sums_norms_ = false;
  std::chrono::milliseconds keep_alive_interval_{0};
  std::chrono::steady_clock::time_point kept_alive_at_ = std::chrono::steady_clock::now();
  std::vector<Server> servers_;
  uint64_t version_ = 0;  // of the settings, which all servers have
  std::vector<SettingsVersion> settings_;
  bool has_untrained_ = false;  // read
  uint64_t updated_step_ = 0;   // sync: that all servers have done
};

}  // namespace stoker::parameter_server
