#include "shared/dataset/shard_files.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "shared/dataset/source.h"

namespace stoker::dataset {
namespace {

using namespace std::string_view_literals;

struct Packer {
  std::string_view magic;
  std::string_view name;
  std::string_view remedy;
};
constexpr auto kPackers = std::to_array<Packer>({{"\x1f\x8b"sv, "gzip"sv, "gunzip"sv},
                                                 {"\x28\xb5\x2f\xfd"sv, "zstd"sv, "unzstd"sv},
                                                 {"\xfd"
                                                  "7zXZ"sv,
                                                  "xz"sv, "unxz"sv},
                                                 {"BZh"sv, "bzip2"sv, "bunzip2"sv}});

}  // namespace

Result<FileTable> scan_shards(const DatasetRequest& request, const ScanProgress& progress) {
  STOKER_ASSIGN_OR_RETURN(FileTable files, scan_source(request, request.config.glob(), progress));
  if (files.root().empty()) return files;  // one file, of its own name
  const auto named = Glob::names_in_ranges(request.config.glob());
  if (!named) return named.status().with_context(request.key("glob"));
  std::vector<std::string_view> found(files.size());
  for (size_t file = 0; file < files.size(); ++file) found[file] = files.name(file);
  std::ranges::sort(found);
  size_t missing = 0;
  const std::string* first = nullptr;
  for (const std::string& name : *named) {
    if (std::ranges::binary_search(found, std::string_view(name))) continue;
    if (missing++ == 0) first = &name;
  }
  if (missing == 0) return files;
  return Status(StatusCode::kNotFound, request.key("glob") + ": " + request.config.path() +
                                           " has no '" + *first + "'; " + std::to_string(missing) +
                                           " of the " + std::to_string(named->size()) +
                                           " files that the range names are missing");
}

Status reject_packed(std::span<const std::byte> first_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(first_bytes.data()),
                              first_bytes.size());
  for (const Packer& packer : kPackers) {
    if (!text.starts_with(packer.magic)) continue;
    return Status(StatusCode::kCorrupt,
                  "packed by " + std::string(packer.name) +
                      ", so that no record can be read without those before it; "
                      "unpack it with " +
                      std::string(packer.remedy));
  }
  return {};
}

}  // namespace stoker::dataset
