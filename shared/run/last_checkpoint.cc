#include "shared/run/last_checkpoint.h"

#include <boost/json.hpp>

#include "shared/base/json_parser.h"

namespace stoker::run {

Result<std::optional<LastCheckpoint>> read_last_checkpoint(const std::string& path) {
  constexpr uint64_t kMaxRecordBytes = 4096;
  const auto text = read_file(path, kMaxRecordBytes);
  if (text.status().code() == StatusCode::kNotFound) return std::optional<LastCheckpoint>();
  if (text.status().code() == StatusCode::kInvalidArgument)
    return Status(StatusCode::kCorrupt, text.status().message());
  if (!text.ok()) return text.status();
  STOKER_ASSIGN_OR_RETURN(
      auto last,
      parse_json_object<LastCheckpoint>(*text, path, [](const boost::json::object& root) {
        return LastCheckpoint{.step = root.at("step").to_number<uint64_t>(),
                              .manifest_sha256 = root.at("manifest_sha256").as_string().c_str()};
      }));
  return std::optional(std::move(last));
}

Status write_last_checkpoint(FileSystem& files, const std::string& path,
                             const LastCheckpoint& last) {
  const boost::json::object root{{"step", last.step}, {"manifest_sha256", last.manifest_sha256}};
  return write_file_atomically(files, path, boost::json::serialize(root) + "\n");
}

}  // namespace stoker::run
