#include "shared/data/sample_split.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "shared/data/counter_rng.h"
#include "shared/data/sample_range.h"

namespace stoker::data {
namespace {

constexpr uint64_t kLabelsAtOnce = 1 << 16;  // labels per read

double place_of(uint64_t hash) { return static_cast<double>(hash >> 11) * 0x1p-53; }

uint64_t seeded(uint64_t hash, const config::DatasetConfig& config) {
  return mix64(hash + (config.split_seed + 1) * kGolden64);
}

// Names of files below data.NAME.path, so that a dataset can be moved.
class RelativeNames {
 public:
  RelativeNames(const DatasetRequest& request, const files::Index& index)
      : root_(index.files.root().empty() ? request.config.path() : index.files.root()),
        made_(index.metadata.made) {}

  std::string operator()(const std::string& file) const {
    if (file.starts_with(root_)) {
      std::string_view name = std::string_view(file).substr(root_.size());
      while (name.starts_with('/')) name.remove_prefix(1);
      return std::string(name);  // "more/a.csv"; empty: a single file
    }
    // A decompressed file or a token cache has the name of the dataset. Its number is the same in all.
    for (size_t i = 0; i < made_.size(); ++i)
      if (made_.path(i) == file) return std::to_string(i);
    return file;
  }

 private:
  const std::string root_;
  const files::FileTable& made_;
};

Result<std::vector<int64_t>> labels_of(const DatasetRequest& request, const Dataset& whole) {
  std::vector<int64_t> labels(whole.size());
  for (uint64_t first = 0; first < labels.size(); first += kLabelsAtOnce) {
    const auto part =
        std::span(labels).subspan(first, std::min(labels.size() - first, kLabelsAtOnce));
    const Status read = whole.read_labels(first, part);
    if (read.code() == StatusCode::kNotFound)
      return request.config_error(
          "split_by",
          "stratified requires one class per sample, which the index knows; "
          "set random");
    if (!read.ok()) return read.with_context(request.key("split_by"));
  }
  return labels;
}

// The range of each class in the order of the hashes. A class that cannot be divided exactly is rounded
// up or down by its hash, so that many small classes together have the fraction, too.
std::vector<uint64_t> choose_stratified(const DatasetRequest& request, const SplitFraction& split,
                                        const std::vector<int64_t>& labels,
                                        const std::vector<uint64_t>& hashes) {
  std::map<int64_t, std::vector<uint64_t>> samples_of_class;
  for (uint64_t sample = 0; sample < labels.size(); ++sample)
    samples_of_class[labels[sample]].push_back(sample);
  std::vector<uint64_t> chosen;
  for (auto& [label, samples] : samples_of_class) {
    std::ranges::sort(samples, {},
                      [&](uint64_t sample) { return std::pair(hashes[sample], sample); });
    const uint64_t class_hash = mix64((static_cast<uint64_t>(label) + 1) * kGolden64);
    const SampleRange range =
        split.of_count(samples.size(), place_of(seeded(class_hash, request.config)));
    chosen.insert(chosen.end(), samples.begin() + static_cast<std::ptrdiff_t>(range.begin),
                  samples.begin() + static_cast<std::ptrdiff_t>(range.end));
  }
  std::ranges::sort(chosen);
  return chosen;
}

Result<SplitFraction> fraction_of(const DatasetRequest& request) {
  const std::vector<double>& split = request.config.split;
  if (split.size() != 2 || !(split[0] >= 0 && split[0] < split[1] && split[1] <= 1))
    return request.config_error("split", "must be two numbers [from, to] with 0 <= from < to <= 1");
  return SplitFraction{.from = split[0], .to = split[1]};
}

bool contains(const SplitFraction& split, uint64_t hash) {
  const double place = place_of(hash);
  return split.from <= place && place < split.to;
}

Status none_of(const DatasetRequest& request, uint64_t count, const std::string& what) {
  return request.config_error("split", "takes none of the " + std::to_string(count) + ' ' + what +
                                           "; set another split_seed, or a larger part");
}

}  // namespace

uint64_t name_hash(std::string_view name) {
  constexpr uint64_t kOffsetBasis = 0xcbf29ce484222325ull, kPrime = 0x100000001b3ull;
  uint64_t hash = kOffsetBasis;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
  return mix64(hash);
}

uint64_t SourceHash::operator()(const SampleSource& source) {
  if (source.file != file_) {
    file_ = source.file;
    file_hash_ = name_hash(name_of_(file_));
  }
  return mix64(file_hash_ + (source.offset + 1) * kGolden64);
}

bool is_cut_into_blocks(const config::DatasetConfig& config) {
  return config.record() != nullptr && config.has_text() && !config.has_variable_length();
}

std::string split_text(const DatasetRequest& request) {
  const config::DatasetConfig& config = request.config;
  if (!config.splits_samples() && !config.splits_files()) return {};
  std::string text = " split_by=" + std::string(config::to_string(config.split_by)) + ':' +
                     SplitFraction{.from = config.split[0], .to = config.split[1]}.to_text() +
                     " split_seed=" + std::to_string(config.split_seed);
  const config::FieldNames* const fields = config.fields();
  if (config.split_by == config::SplitBy::kGroup && fields != nullptr)
    text += " group=" + std::to_string(fields->group.size()) + ':' + fields->group;
  return text;
}

Result<std::vector<uint64_t>> choose_samples(const DatasetRequest& request,
                                             const files::Index& index, const Dataset& whole) {
  STOKER_ASSIGN_OR_RETURN(const SplitFraction split, fraction_of(request));
  std::vector<uint64_t> hashes = index.metadata.groups;
  if (request.config.split_by != config::SplitBy::kGroup) {
    SourceHash hash_of(RelativeNames(request, index));
    hashes.resize(whole.size());
    for (uint64_t sample = 0; sample < hashes.size(); ++sample)
      hashes[sample] = hash_of(whole.source(sample));
  } else if (is_cut_into_blocks(request.config) || hashes.size() != whole.size()) {
    return request.config_error("split_by",
                                "group requires samples that are records: set sequence.max_length");
  }
  for (uint64_t& hash : hashes) hash = seeded(hash, request.config);
  std::vector<uint64_t> chosen;
  if (request.config.split_by == config::SplitBy::kStratified) {
    STOKER_ASSIGN_OR_RETURN(const auto labels, labels_of(request, whole));
    chosen = choose_stratified(request, split, labels, hashes);
  } else {
    for (uint64_t sample = 0; sample < hashes.size(); ++sample)
      if (contains(split, hashes[sample])) chosen.push_back(sample);
  }
  if (chosen.empty()) return none_of(request, whole.size(), "samples");
  return chosen;
}

Result<files::FileTable> choose_files(const DatasetRequest& request,
                                      const files::FileTable& files) {
  STOKER_ASSIGN_OR_RETURN(const SplitFraction split, fraction_of(request));
  files::FileTable chosen(files.root());
  for (size_t file = 0; file < files.size(); ++file)
    if (contains(split, seeded(name_hash(files.name(file)), request.config)))
      chosen.add(files.name(file), files.stamp(file));
  if (chosen.size() == 0) return none_of(request, files.size(), "files");
  return chosen;
}

}  // namespace stoker::data
