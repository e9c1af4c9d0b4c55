#include "shared/data/stream/stream_source.h"

#include <sys/stat.h>

#include <cassert>
#include <cerrno>
#include <string_view>
#include <utility>

#include "shared/base/glob.h"
#include "shared/base/hash.h"
#include "shared/data/dataset_files.h"
#include "shared/data/files/scan.h"

namespace stoker::data::stream {
namespace {

constexpr std::string_view kWildcards = "*?[{";

// The folder up to the first wildcard, and the pattern below it.
Result<std::vector<std::string>> list_shards(const std::string& pattern) {
  const size_t slash = pattern.rfind('/', pattern.find_first_of(kWildcards));
  const bool has_folder = slash != std::string::npos;
  const std::string root = has_folder ? pattern.substr(0, slash + 1) : ".";
  const std::string below = has_folder ? pattern.substr(slash + 1) : pattern;
  const auto glob = PathGlob::parse(below);
  if (!glob) return glob.status().with_context(pattern);
  STOKER_ASSIGN_OR_RETURN(const files::FolderScan found, files::scan_folder(root, *glob, {}));
  if (found.files.size() == 0) return Status(StatusCode::kNotFound, pattern + ": no file matches");
  STOKER_RETURN_IF_ERROR(check_ranges(found.files, below));
  std::vector<std::string> paths;
  for (size_t file = 0; file < found.files.size(); ++file) paths.push_back(found.files.path(file));
  return paths;
}

bool is_regular_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool is_directory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Result<StreamSource::Kind> kind_of_path(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    const int error = errno;
    // Of a pattern also ENAMETOOLONG: alternatives in braces can be longer than a name.
    if (error != EACCES && path.find_first_of(kWildcards) != std::string::npos)
      return StreamSource::Kind::kShards;
    return Status::from_errno(error, path);
  }
  if (S_ISFIFO(info.st_mode)) return StreamSource::Kind::kFifo;
  if (S_ISREG(info.st_mode)) return StreamSource::Kind::kShards;
  if (S_ISSOCK(info.st_mode))
    return Status(StatusCode::kInvalidArgument,
                  path + ": is a socket; use source: external, to which programs connect");
  if (S_ISDIR(info.st_mode))
    return Status(
        StatusCode::kInvalidArgument,
        path + ": is a folder; use source: spool with this path, or a pattern of its files");
  return Status(StatusCode::kInvalidArgument,
                path + ": is a device; redirect it to standard input");
}

}  // namespace

Result<StreamSource> StreamSource::of(const std::string& source, const std::string& folder) {
  if (source.empty()) return Status(StatusCode::kInvalidArgument, "must name a source");
  if (source == "stdin") return StreamSource(Kind::kStdin, {"stdin"});
  if (source == "external") return StreamSource(Kind::kExternal, {});
  if (source == "spool") {
    if (is_directory(folder)) return StreamSource(Kind::kSpool, {});
    return Status(StatusCode::kInvalidArgument, folder.empty()
                                                    ? "spool requires the path of a folder"
                                                    : folder + ": is no folder");
  }
  STOKER_ASSIGN_OR_RETURN(const Kind kind, kind_of_path(source));
  if (kind != Kind::kShards || is_regular_file(source)) return StreamSource(kind, {source});
  STOKER_ASSIGN_OR_RETURN(std::vector<std::string> shards, list_shards(source));
  return StreamSource(kind, std::move(shards));
}

Result<StreamSource> StreamSource::of(const DatasetRequest& request) {
  auto source = of(request.config.stream->source, request.config.path());
  if (!source) return source.status().with_context(request.key("stream.source"));
  return source;
}

std::string StreamSource::fingerprint(const config::StreamConfig& stream) const {
  std::string text = "stream " + std::to_string(static_cast<int>(kind_)) + ' ' +
                     std::to_string(static_cast<int>(stream.queue)) + ' ' +
                     std::to_string(stream.capacity);
  for (const std::string& name : names_) text += '\n' + name;
  return sha256_hex(text);
}

bool StreamSource::has_descriptor() const {
  switch (kind_) {
    case Kind::kStdin:
    case Kind::kFifo:
      return true;
    case Kind::kShards:
    case Kind::kSpool:
    case Kind::kExternal:
      return false;
  }
  return false;
}

Result<InputDescriptor> StreamSource::open_descriptor() const {
  assert(has_descriptor() && names_.size() == 1);
  return kind_ == Kind::kStdin ? open_stdin() : open_fifo(names_[0]);
}

Result<std::unique_ptr<ByteInput>> StreamSource::open(const std::string& name) const {
  assert(!has_descriptor() && kind_ != Kind::kExternal);
  return open_shard(name);
}

}  // namespace stoker::data::stream
