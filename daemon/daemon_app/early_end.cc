#include "daemon/daemon_app/early_end.h"

#include <utility>

#include "shared/base/log.h"
#include "shared/run/early_stop.h"

namespace stoker::daemon_app {

std::optional<run::StopRequest> maybe_early_end(const config::EvalConfig& config,
                                                const run::RunLayout& layout) {
  const run::EarlyStopRule rule = run::early_stop_rule(config);
  if (!rule.is_on()) return std::nullopt;
  auto request = run::read_stop_request(layout.stop_file());
  if (!request.ok()) {
    if (request.status().code() != Code::kNotFound)
      log_warn("early stop request invalid",
               {{"path", layout.stop_file()}, {"error", request.status().message()}});
    return std::nullopt;
  }
  if (request->rule != rule.to_text()) return std::nullopt;
  return *std::move(request);
}

}  // namespace stoker::daemon_app
