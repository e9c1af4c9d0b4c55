#include "shared/run/early_stop_request.h"

#include <boost/json.hpp>

#include "shared/run/json_object.h"

namespace stoker::run {

namespace json = boost::json;

std::string to_json(const EarlyStopRequest& request) {
  return json::serialize(json::object{
             {"step", request.step}, {"rule", request.rule}, {"reason", request.reason}}) +
         "\n";
}

Result<EarlyStopRequest> parse_early_stop_request(std::string_view text, const std::string& path) {
  return parse_object<EarlyStopRequest>(text, path, [](const json::object& root) {
    return EarlyStopRequest{.step = root.at("step").to_number<uint64_t>(),
                            .rule = root.at("rule").as_string().c_str(),
                            .reason = root.at("reason").as_string().c_str()};
  });
}

Result<EarlyStopRequest> read_early_stop_request(const std::string& path) {
  constexpr uint64_t kMaxBytes = 1 << 20;
  STOKER_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxBytes));
  return parse_early_stop_request(text, path);
}

}  // namespace stoker::run
