#include "daemon/app/stream_history_file.h"

#include <span>
#include <utility>

#include <boost/json.hpp>

#include "shared/base/hash.h"
#include "shared/base/json_parser.h"
#include "shared/base/log.h"

namespace stoker::app {
namespace {

namespace json = boost::json;

constexpr uint64_t kMaxBytes = (uint64_t{1} << 32) + 4096;  // as save_elements_mib, and the line

}  // namespace

Status write_stream_history(FileSystem& files, const std::string& path, const std::string& start,
                            const feed::StreamHistory& history) {
  const std::string_view bytes(reinterpret_cast<const char*>(history.bytes.data()),
                               history.bytes.size());
  const json::object head{{"start", start},
                          {"begin", history.begin},
                          {"complete", history.complete},
                          {"is_last", history.is_last},
                          {"sha256", sha256_hex(bytes)}};
  std::string content = json::serialize(head) + "\n";
  content += bytes;
  return write_file_atomically(files, path, content);
}

Result<std::optional<feed::StreamHistory>> read_stream_history(const std::string& path,
                                                               const std::string& start) {
  const auto content = read_file(path, kMaxBytes);
  if (content.status().code() == StatusCode::kNotFound) return std::optional<feed::StreamHistory>();
  if (!content.ok()) return content.status();
  const size_t line = std::min(content->find('\n'), content->size());
  const std::string_view bytes =
      std::string_view(*content).substr(std::min(line + 1, content->size()));
  bool follows_start = false;
  std::string sha256;
  STOKER_ASSIGN_OR_RETURN(
      auto history,
      parse_json_object<feed::StreamHistory>(
          std::string_view(*content).substr(0, line), path, [&](const json::object& head) {
            follows_start = head.at("start").as_string() == start;
            sha256 = head.at("sha256").as_string().c_str();
            return feed::StreamHistory{.begin = head.at("begin").to_number<uint64_t>(),
                                       .complete = head.at("complete").to_number<uint64_t>(),
                                       .is_last = head.at("is_last").as_bool()};
          }));
  if (!follows_start) return std::optional<feed::StreamHistory>();
  if (sha256 != sha256_hex(bytes) || !feed::is_valid_range(history, bytes.size()))
    return Status(StatusCode::kCorrupt, path + ": is corrupt");
  const auto shared = std::as_bytes(std::span(bytes));
  history.bytes.assign(shared.begin(), shared.end());
  return std::optional(std::move(history));
}

Result<std::optional<feed::StreamHistory>> take_stream_history(FileSystem& files,
                                                               const std::string& path,
                                                               const std::string& start) {
  auto history = read_stream_history(path, start);
  if (!history.ok()) {
    log_warn("stream history rejected", {{"path", path}, {"error", history.status().to_string()}});
    return std::optional<feed::StreamHistory>();
  }
  if (!*history || !(*history)->is_last) return history;
  feed::StreamHistory read_before = **history;
  read_before.is_last = false;
  STOKER_RETURN_IF_ERROR(write_stream_history(files, path, start, read_before));
  return history;
}

}  // namespace stoker::app
