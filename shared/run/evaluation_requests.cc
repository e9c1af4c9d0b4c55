#include "shared/run/evaluation_requests.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"

namespace stoker::run {
namespace {

constexpr uint64_t kMaxRequestBytes = 4096;
constexpr size_t kMaxRequestIdBytes = 256;

std::string request_path(const RunLayout& layout, uint64_t step) {
  char name[40];
  std::snprintf(name, sizeof name, "step-%09llu.json", static_cast<unsigned long long>(step));
  return join_path(layout.evaluation_requests_dir(), name);
}

Result<EvaluationRequest> read_request(const std::string& path) {
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
  EvaluationRequest request{.step = step,
                            .id = to_iso8601(clock.wall()) + "-" + std::to_string(::getpid()),
                            .path = path};
  const boost::json::object root{{"step", step}, {"id", request.id}};
  STOKER_RETURN_IF_ERROR(write_file_atomically(files, path, boost::json::serialize(root) + "\n"));
  return request;
}

Result<EvaluationRequests> read_evaluation_requests(const RunLayout& layout) {
  EvaluationRequests requests;
  const auto names = list_directory(layout.evaluation_requests_dir());
  if (names.status().code() == StatusCode::kNotFound) return requests;
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (name.starts_with('.')) continue;  // being written
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
