#include "shared/run/evaluation_requests.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <string_view>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"
#include "shared/run/eval_result.h"

namespace stoker::run {
namespace {

constexpr uint64_t kMaxRequestBytes = 4096;
constexpr size_t kMaxRequestIdBytes = 256;

// Named as the result of the step.
std::string request_path(const RunLayout& layout, uint64_t step) {
  return eval_result_path(layout.evaluation_requests_dir(), step);
}

// Several requests can come from one process within a millisecond, and process IDs are not unique in
// containers.
std::string new_request_id(Clock& clock) {
  std::random_device random;
  char digits[20];
  std::snprintf(digits, sizeof digits, "%08x%08x", random(), random());
  return to_iso8601(clock.wall()) + "-" + digits;
}

// Exactly as request_path() names them, because the evaluator removes files of these names.
bool is_request_name(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return false;
  uint64_t step = 0;
  const char* const begin = name.data() + kPrefix.size();
  const auto parsed = std::from_chars(begin, name.data() + name.size(), step);
  return parsed.ec == std::errc() && eval_result_path("", step) == name;
}

std::filesystem::file_type type_of(const std::string& path) {
  std::error_code error;
  return std::filesystem::symlink_status(path, error).type();
}

Result<EvaluationRequest> read_request(const std::string& path) {
  using enum std::filesystem::file_type;
  if (const auto type = type_of(path); type != regular && type != not_found)
    return Status(StatusCode::kInvalidArgument, path + ": not a regular file");
  STOKER_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxRequestBytes));
  return parse_json_object<EvaluationRequest>(text, path, [&](const boost::json::object& root) {
    EvaluationRequest request{.step = root.at("step").to_number<uint64_t>(),
                              .id = root.at("id").as_string().c_str(),
                              .path = path};
    if (request.id.empty() || request.id.size() > kMaxRequestIdBytes)
      throw std::invalid_argument("the id is empty or too long");
    return request;
  });
}

}  // namespace

Result<EvaluationRequest> request_evaluation(FileSystem& files, const RunLayout& layout,
                                             uint64_t step, Clock& clock) {
  const std::string path = request_path(layout, step);
  if (auto pending = read_request(path); pending.ok() && pending->step == step) return pending;
  STOKER_RETURN_IF_ERROR(make_directories(files, layout.evaluation_requests_dir()));
  EvaluationRequest request{.step = step, .id = new_request_id(clock), .path = path};
  const boost::json::object root{{"step", step}, {"id", request.id}};
  STOKER_RETURN_IF_ERROR(write_file_atomically(files, path, boost::json::serialize(root) + "\n"));
  return request;
}

Result<EvaluationRequests> read_evaluation_requests(const RunLayout& layout) {
  EvaluationRequests requests;
  // The evaluator removes files from it.
  if (type_of(layout.evaluation_requests_dir()) == std::filesystem::file_type::symlink)
    return Status(StatusCode::kPermission,
                  layout.evaluation_requests_dir() + ": must be a directory, not a symlink");
  const auto names = list_directory(layout.evaluation_requests_dir());
  if (names.status().code() == StatusCode::kNotFound) return requests;
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (!is_request_name(name)) continue;  // being written, or of another program
    const std::string path = join_path(layout.evaluation_requests_dir(), name);
    auto request = read_request(path);
    if (request.ok())
      requests.pending.push_back(*std::move(request));
    else if (request.status().code() != StatusCode::kNotFound)
      requests.invalid.push_back({path, request.status().message()});
  }
  std::ranges::stable_sort(requests.pending, {}, &EvaluationRequest::step);
  return requests;
}

}  // namespace stoker::run
