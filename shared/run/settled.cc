#include "shared/run/settled.h"

#include <algorithm>
#include <array>

#include "shared/base/file.h"
#include "shared/run/json_object.h"

namespace stoker::run {
namespace {

constexpr uint64_t kMaxBytes = 256ull << 20;
constexpr std::array<std::string_view, 4> kFinal{"evaluated", "corrupt", "superseded", "failed"};

struct Line {
  uint64_t step = 0;
  std::string manifest_sha256;
  std::string outcome;
};

}  // namespace

void Settled::add_line(std::string_view text) {
  const auto line = parse_object<Line>(text, "ledger", [](const boost::json::object& root) -> Line {
    return {.step = root.at("step").to_number<uint64_t>(),
            .manifest_sha256 = root.at("manifest_sha256").as_string().c_str(),
            .outcome = root.at("outcome").as_string().c_str()};
  });
  if (!line.ok() || std::ranges::count(kFinal, line->outcome) == 0) return;
  is_corrupt_[{line->step, line->manifest_sha256}] = line->outcome == "corrupt";
}

bool Settled::is_settled(uint64_t step, const std::string& manifest_sha256) const {
  return is_corrupt_.contains({step, manifest_sha256});
}

bool Settled::is_corrupt(uint64_t step, const std::string& manifest_sha256) const {
  const auto found = is_corrupt_.find({step, manifest_sha256});
  return found != is_corrupt_.end() && found->second;
}

Result<Settled> read_settled(const std::string& path) {
  const auto text = read_file(path, kMaxBytes);
  if (text.status().code() == Code::kNotFound) return Settled();
  if (!text.ok()) return text.status();
  Settled settled;
  std::string_view rest = *text;
  for (size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    settled.add_line(rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
  return settled;
}

}  // namespace stoker::run
