#include "shared/config/growth_checks.h"

#include <algorithm>

#include "shared/config/training_sets.h"

namespace stoker::config {
namespace {

struct Refusal {
  bool applies;
  std::string_view field;
  std::string_view why;
};

void check_set(const std::string& name, const DatasetConfig& set, bool trains,
               const GivenKeys& given, Mistakes& mistakes) {
  const DatasetConfig defaults;
  const std::string section = "data." + name + '.';
  const Refusal refusals[] = {
      {!trains, "grow", "is for sets that are trained on; what is evaluated stays the same"},
      {set.split != defaults.split || set.skip != 0 || set.take != 0, "grow",
       "goes without split, skip and take, which would be other samples of a larger set; give the "
       "set files of its own"},
      {!set.list.empty(), "grow", "goes without a list; name a folder by path"},
      {set.cache != defaults.cache, "grow", "goes without a cache"}};
  for (const Refusal& refusal : refusals) {
    const std::string key = section + std::string(refusal.field);
    if (refusal.applies && !mistakes.touches(key))
      mistakes.add(given.place_of(key), key, std::string(refusal.why));
  }
}

}  // namespace

void check_growth(const Config& config, const GivenKeys& given, Mistakes& mistakes) {
  const std::vector<std::string> trained = training_sets(config);
  const auto trains = [&](const std::string& name) {
    return std::ranges::count(trained, name) > 0;
  };
  bool any = false, draws = false;
  for (const auto& [name, set] : config.data) {
    if (set.grows()) check_set(name, set, trains(name), given, mistakes);
    any = any || set.grows();
    draws = draws || (trains(name) && !set.weights_file.empty());
  }
  if (!any || !draws) return;
  for (const auto& [name, set] : config.data) {
    const std::string key = "data." + name + ".grow";
    if (set.grows() && !mistakes.touches(key))
      mistakes.add(given.place_of(key), key,
                   "goes without weights_file, which has a number for each sample");
  }
}

}  // namespace stoker::config
