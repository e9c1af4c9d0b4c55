#include "daemon/app/early_stop.h"

#include <utility>

#include "shared/base/log.h"
#include "shared/run/early_stopping.h"

namespace stoker::app {

std::optional<run::EarlyStopRequest> find_early_stop_request(const config::EvalConfig& config,
                                                             const run::RunLayout& layout) {
  const run::EarlyStopping rule = run::make_early_stopping(config);
  if (!rule.is_on()) return std::nullopt;
  auto request = run::read_early_stop_request(layout.early_stop_file());
  if (!request.ok()) {
    if (request.status().code() != StatusCode::kNotFound)
      log_warn("early stop request invalid",
               {{"path", layout.early_stop_file()}, {"error", request.status().message()}});
    return std::nullopt;
  }
  if (request->rule != rule.to_text()) return std::nullopt;
  return *std::move(request);
}

}  // namespace stoker::app
