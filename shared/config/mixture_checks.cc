#include "shared/config/mixture_checks.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "shared/config/nearest_word.h"

namespace stoker::config {
namespace {

class MixtureChecks {
 public:
  MixtureChecks(const Config& config, const GivenKeys& given, Mistakes& mistakes)
      : config_(config), given_(given), mistakes_(mistakes) {}

  void run() {
    for (const auto& [name, set] : config_.data) {
      const std::string key = "data." + name;
      if (set.kind != DatasetKind::kMixture || mistakes_.touches(key + ".kind")) continue;
      check_sets(name, set);
      check_weights(key, set);
    }
    check_last_batch();
  }

 private:
  void refuse(const std::string& key, const std::string& what) {
    if (!mistakes_.touches(key)) mistakes_.add(given_.place_of(key), key, what);
  }

  void check_sets(const std::string& mixture, const DatasetConfig& set) {
    const std::string key = "data." + mixture + ".of";
    if (set.of.empty()) refuse(key, "is missing; name the sets of the mixture, such as [a, b]");
    std::set<std::string> seen;
    std::vector<std::string> others;
    for (const auto& [name, other] : config_.data)
      if (other.kind != DatasetKind::kMixture) others.push_back(name);
    for (const std::string& name : set.of) {
      if (!seen.insert(name).second) refuse(key, "names " + quoted(name) + " twice");
      const auto found = config_.data.find(name);
      if (found == config_.data.end()) {
        const std::string near = nearest_word(name, others);
        refuse(key, "names " + quoted(name) + ", but there is no data." + one_line(name, 60) +
                        (near.empty() ? "" : "; did you mean " + quoted(near) + "?"));
      } else if (found->second.kind == DatasetKind::kMixture) {
        refuse(key, "names " + quoted(name) + ", which is a mixture itself; name its sets");
      }
    }
  }

  void check_weights(const std::string& key, const DatasetConfig& set) {
    const bool weighted = !set.weights.empty();
    if (weighted && set.weights.size() != set.of.size() && !mistakes_.touches(key + ".of"))
      refuse(key + ".weights", "has " + std::to_string(set.weights.size()) + " numbers for the " +
                                   std::to_string(set.of.size()) + " sets of " + key + ".of");
    for (const std::string& name : set.of) {
      const auto found = config_.data.find(name);
      if (found == config_.data.end()) continue;
      if (weighted && found->second.repeat != 1)
        refuse("data." + name + ".repeat",
               "means nothing where " + key + ".weights says how often a set is used; remove it");
      if (!weighted && !found->second.weights_file.empty())
        refuse("data." + name + ".weights_file",
               "needs " + key + ".weights: without it every sample of the mixture comes once");
    }
  }

  // Only what ends after each sample came has a last batch.
  void check_last_batch() {
    const auto train = config_.data.find("train");
    if (train == config_.data.end() || config_.feed.last_batch == LastBatch::kSpan) return;
    const bool is_mixture = train->second.kind == DatasetKind::kMixture;
    if (is_mixture && !train->second.weights.empty())
      refuse("feed.last_batch",
             "must be span: with data.train.weights each set has its own epochs");
    if (!is_mixture && !train->second.weights_file.empty())
      refuse("feed.last_batch",
             "must be span: samples drawn by data.train.weights_file have no last batch");
  }

  const Config& config_;
  const GivenKeys& given_;
  Mistakes& mistakes_;
};

}  // namespace

void check_mixtures(const Config& config, const GivenKeys& given, Mistakes& mistakes) {
  MixtureChecks(config, given, mistakes).run();
}

}  // namespace stoker::config
