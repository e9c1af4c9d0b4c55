#include "shared/run/ledger_entry.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "shared/run/json_object.h"

namespace stoker::run {
namespace {

namespace json = boost::json;
constexpr std::array<std::string_view, 4> kOutcomes{"evaluated", "corrupt", "superseded", "failed"};

Outcome outcome_of(std::string_view word) {
  const auto found = std::ranges::find(kOutcomes, word);
  if (found == kOutcomes.end()) throw std::invalid_argument("no outcome");
  return static_cast<Outcome>(found - kOutcomes.begin());
}

}  // namespace

std::string to_json_line(const LedgerEntry& entry, std::string_view wall_time) {
  return json::serialize(json::object{{"step", entry.step},
                                      {"manifest_sha256", entry.manifest_sha256},
                                      {"outcome", kOutcomes[static_cast<size_t>(entry.outcome)]},
                                      {"tries", entry.tries},
                                      {"reason", entry.reason},
                                      {"wall", wall_time}}) +
         "\n";
}

std::optional<LedgerEntry> maybe_ledger_entry(std::string_view line) {
  auto entry = parse_object<LedgerEntry>(line, "ledger", [](const json::object& root) {
    return LedgerEntry{.step = root.at("step").to_number<uint64_t>(),
                       .manifest_sha256 = root.at("manifest_sha256").as_string().c_str(),
                       .outcome = outcome_of(root.at("outcome").as_string()),
                       .tries = root.at("tries").to_number<int>(),
                       .reason = root.at("reason").as_string().c_str()};
  });
  if (!entry.ok()) return std::nullopt;
  return *std::move(entry);
}

}  // namespace stoker::run
