#include "shared/checkpoint/checksums.h"

#include <algorithm>

namespace stoker::checkpoint {
namespace {

constexpr size_t kHexDigits = 64;
constexpr size_t kMaxName = 255;

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

}  // namespace

bool is_sha256(std::string_view text) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.size() == kHexDigits && std::ranges::all_of(text, is_digit);
}

bool is_file_name(std::string_view name) {
  const auto fits = [](char c) { return is_alphanumeric(c) || c == '.' || c == '_' || c == '-'; };
  return !name.empty() && name.size() <= kMaxName && name[0] != '.' &&
         std::ranges::all_of(name, fits);
}

std::string format_checksums(const std::vector<Checksum>& sums) {
  std::string text;
  for (const Checksum& sum : sums) text += sum.sha256 + "  " + sum.name + '\n';
  return text;
}

Result<std::vector<Checksum>> parse_checksums(std::string_view text,
                                              const std::string& path_in_messages) {
  std::vector<Checksum> sums;
  const auto corrupt = [&](const char* what) {
    return Status(StatusCode::kCorrupt,
                  path_in_messages + ":" + std::to_string(sums.size() + 1) + ": " + what);
  };
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return corrupt("the line does not end");
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line.size() < kHexDigits + 2 || !is_sha256(line.substr(0, kHexDigits)) ||
        line.substr(kHexDigits, 2) != "  " || !is_file_name(line.substr(kHexDigits + 2)))
      return corrupt("not a SHA-256, two spaces and a file name");
    Checksum sum{std::string(line.substr(0, kHexDigits)), std::string(line.substr(kHexDigits + 2))};
    if (std::ranges::find(sums, sum.name, &Checksum::name) != sums.end())
      return corrupt("names a file a second time");
    sums.push_back(std::move(sum));
  }
  if (sums.empty()) return corrupt("the file is empty");
  return sums;
}

}  // namespace stoker::checkpoint
