#include "shared/run/settled.h"

#include "shared/base/file.h"
#include "shared/run/ledger_entry.h"

namespace stoker::run {
namespace {

constexpr uint64_t kMaxBytes = 256ull << 20;

}  // namespace

void Settled::add_line(std::string_view text) {
  const auto entry = maybe_outcome(text);
  if (entry)
    is_corrupt_[{entry->step, entry->manifest_sha256}] = entry->outcome == Outcome::kCorrupt;
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
