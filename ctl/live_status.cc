#include "ctl/live_status.h"

#include "shared/control/trainer_status.h"

namespace stoker::ctl {

std::optional<std::string> LiveStatus::read() {
  if (maybe_failed_at_ && clock_.monotonic() - *maybe_failed_at_ < kPause) return std::nullopt;
  const bool is_known = maybe_client_.has_value();
  auto reply = request();
  // An idle connection is closed by stokerd.
  if (!reply.ok() && is_known) reply = request();
  const auto status = reply.ok() ? control::parse_trainer_status(*reply)
                                 : Result<control::TrainerStatus>(reply.status());
  if (!status.ok()) {
    maybe_client_.reset();
    maybe_failed_at_ = clock_.monotonic();
    return std::nullopt;
  }
  maybe_failed_at_.reset();
  return control::to_json(*status);  // nothing that the page does not know
}

Result<std::string> LiveStatus::request() {
  if (!maybe_client_) {
    STOKER_ASSIGN_OR_RETURN(DaemonClient client, DaemonClient::open(layout_, kTimeout));
    maybe_client_.emplace(std::move(client));
  }
  auto reply = maybe_client_->request(control::GetStatus{}, kTimeout);
  if (!reply.ok()) maybe_client_.reset();
  return reply;
}

}  // namespace stoker::ctl
