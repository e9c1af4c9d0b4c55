#include "shared/config/length_checks.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "shared/config/training_sets.h"

namespace stoker::config {
namespace {

class LengthChecks {
 public:
  LengthChecks(const GivenKeys& given, Mistakes& mistakes) : given_(given), mistakes_(mistakes) {}

  void check_set(const std::string& name, const DatasetConfig& set) {
    section_ = "data." + name + '.';
    if (mistakes_.touches(section_ + "kind")) return;
    if (!set.is_padded()) return check_plain(set);
    if (set.has_fields()) check_fields(set);
  }

 private:
  void refuse(const std::string& field, const std::string& what) {
    const std::string key = section_ + field;
    if (!mistakes_.touches(key)) mistakes_.add(given_.place_of(key), key, what);
  }

  // What only sequences of various lengths have.
  void check_plain(const DatasetConfig& set) {
    const DatasetConfig defaults;
    const std::string needs = "is for sequences of various lengths; give " + section_ +
                              "longest, the length that they are padded to";
    if (set.longer != defaults.longer) refuse("longer", needs);
    if (!set.lengths.empty()) refuse("lengths", needs);
    if (!set.tokens.empty()) refuse("tokens", needs);
    if (set.has_fields() && !set.labels.empty()) refuse("labels", needs);
    if (set.most_labels != 0) refuse("most_labels", needs);
  }

  void check_fields(const DatasetConfig& set) {
    const int sources =
        (set.input.empty() ? 0 : 1) + (set.text.empty() ? 0 : 1) + (set.tokens.empty() ? 0 : 1);
    if (sources != 1)
      refuse("input",
             "of sequences must be one field: name it here, where it holds numbers, or in text, or "
             "in tokens");
    if (set.input.size() > 1) refuse("input", "must be one field where samples are sequences");
    const int answers =
        (set.label.empty() ? 0 : 1) + (set.labels.empty() ? 0 : 1) + (set.target.empty() ? 0 : 1);
    if (answers > 1) refuse("label", "goes without labels and target; leave one of them");
    if (answers == 0 && !set.input.empty())
      refuse("label", "is missing; name the field that is to be predicted, or labels, or target");
    if (!set.size.empty()) refuse("size", "is for pictures; samples that are sequences have none");
    if (!set.shape.empty() && set.input.empty())
      refuse("shape", "is of an input; tokens have none");
    if (set.most_labels != 0 && set.labels.empty())
      refuse("most_labels", "needs labels, the field that holds them");
    if (set.context != 0)
      refuse("context", "cuts texts that are one stream; with " + section_ +
                            "longest each is a sample. Leave one of them out");
  }

  const GivenKeys& given_;
  Mistakes& mistakes_;
  std::string section_;
};

// What the sets that are trained on have in common.
struct Trained {
  bool are_known = true;  // else they have a mistake of their own
  bool are_padded = true;
  bool come_once = true;  // each sample, in an epoch of data that stays the same
  int64_t longest = std::numeric_limits<int64_t>::max();
};

Trained trained_sets(const Config& config, const Mistakes& mistakes) {
  Trained all;
  const auto add = [&](const std::string& name) {
    const auto found = config.data.find(name);
    all.are_known =
        all.are_known && found != config.data.end() && !mistakes.touches("data." + name);
    if (!all.are_known) return;
    const DatasetConfig& set = found->second;
    const bool comes_once = set.repeat == 1 && set.weights_file.empty() && set.weights.empty();
    all.come_once = all.come_once && comes_once && !set.grows();
    if (set.kind == DatasetKind::kMixture) return;
    all.are_padded = all.are_padded && set.is_padded();
    all.longest = std::min(all.longest, set.longest);
  };
  for (const std::string& name : training_sets(config)) add(name);
  return all;
}

struct Refusal {
  bool applies;
  std::string why;
};

void check_buckets(const Config& config, const GivenKeys& given, Mistakes& mistakes) {
  const std::vector<int64_t>& buckets = config.feed.buckets;
  const std::string key = "feed.buckets";
  const Trained sets = trained_sets(config, mistakes);
  if (buckets.empty() || !sets.are_known) return;
  const Shuffle shuffle = config.feed.shuffle;
  const Refusal refusals[] = {
      {!sets.are_padded,
       "are for sequences of various lengths; give data.train the longest that it has"},
      {std::ranges::adjacent_find(buckets, std::greater_equal<>()) != buckets.end(),
       "must rise, such as [32, 64, 128]"},
      {buckets.back() > sets.longest, "end with " + std::to_string(buckets.back()) +
                                          ", above the longest of data.train (" +
                                          std::to_string(sets.longest) + ")"},
      {shuffle != Shuffle::kFull && shuffle != Shuffle::kOff,
       "go with feed.shuffle full or off: neighbours in the data are not neighbours in a bucket"},
      {!sets.come_once,
       "go without weights, weights_file, repeat and grow: a sample comes once in an epoch"},
      {config.feed.source != FeedSource::kReaders,
       "go with feed.source readers: other programs know batches of one shape"}};
  for (const Refusal& refusal : refusals)
    if (refusal.applies && !mistakes.touches(key))
      mistakes.add(given.place_of(key), key, refusal.why);
}

}  // namespace

void check_lengths(const Config& config, const GivenKeys& given, Mistakes& mistakes) {
  LengthChecks checks(given, mistakes);
  for (const auto& [name, set] : config.data) checks.check_set(name, set);
  check_buckets(config, given, mistakes);
}

}  // namespace stoker::config
