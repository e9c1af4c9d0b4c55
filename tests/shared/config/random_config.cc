#include "tests/shared/config/random_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>

#include "shared/config/schema.h"

namespace stoker::config::test {
namespace {

// What YAML readers like to take for something else.
constexpr std::array kTexts{
    "a",  "runs/x", "a b",   "~",  "null", "true", "off",   "No",      "1",    "1e5",
    "0x", "-",      "- a",   "[a", "{a}",  "#a",   "a #b",  "a:",      "a: b", "&a",
    "*a", "!a",     "|",     ">",  "'",    "''",   "\"",    "a\\",     "\\x",  "%a",
    "@a", "`a",     "?",     ", ", " a ",  "Ü",    "日本",  "😀",       "---",  "...",
    "=",  "<<",     "x\"y'", "*",  ".5",   "+1",   "NULL ", "\u0085b", "_",    "2020-01-01"};

constexpr TaskKind kLastTask = TaskKind::kCtc;

class Filler {
 public:
  explicit Filler(std::mt19937_64& random) : random_(random) {}

  // Every field that the section's kind reads, but not the kind.
  void fill(const Section& section) {
    for (const Field& field : section.fields) {
      if (field.name == "kind" || !section.reads(field)) continue;
      std::visit([&](const auto& target) { fill(field, target); }, field.target);
    }
  }

  uint64_t below(uint64_t end) { return random_() % end; }
  double part() { return std::uniform_real_distribution<double>(1e-9, 1.0)(random_); }

 private:
  double number(const Field& field) {
    const double room = std::min(field.max - field.min, 1e6);
    const bool is_small = below(3) == 0;
    const double value = field.min + part() * (is_small ? std::min(room, 1e-6) : room);
    const double whole = std::ceil(value);
    return below(3) == 0 && whole <= field.max ? whole : value;
  }
  template <typename Whole>
  void fill_whole(const Field& field, Whole& target) {
    target = static_cast<Whole>(std::floor(number(field)));
  }

  void fill(const Field& field, double* target) { *target = number(field); }
  void fill(const Field& field, std::optional<double>* target) {
    if (below(2) == 0) *target = part() - (field.min < 0 ? 0.5 : 0);
  }
  void fill(const Field& field, std::optional<int>* target) {
    target->reset();
    if (below(4) != 0) fill_whole(field, target->emplace());
  }
  void fill(const Field& field, int* target) { fill_whole(field, *target); }
  void fill(const Field& field, int64_t* target) { fill_whole(field, *target); }
  void fill(const Field& field, uint64_t* target) { fill_whole(field, *target); }
  void fill(const Field&, bool* target) { *target = below(2) == 0; }
  void fill(const Field&, const Choice& target) {
    target.set(target.target, static_cast<int>(below(target.words.size())));
  }
  void fill(const Field& field, std::string* target) {
    std::string words(field.words);
    if (words.empty()) words = kTexts[below(kTexts.size())];
    if (!field.words.empty()) {
      const auto spaces = static_cast<uint64_t>(std::ranges::count(words, ' '));
      for (uint64_t skip = below(spaces + 1); skip > 0; --skip) words.erase(0, words.find(' ') + 1);
      words = words.substr(0, words.find(' '));
    }
    *target = words;
  }
  void fill(const Field& field, const NumbersOrWord& target) { fill(field, target.numbers); }
  // Of texts only: what else there is has tests of its own.
  void fill(const Field&, const FreeMap& target) {
    std::string text = kTexts[below(kTexts.size())];
    for (size_t at = 0; (at = text.find_first_of("\"\\", at)) != std::string::npos; at += 2)
      text.insert(at, 1, '\\');
    *target.json = R"({"key": ")" + text + R"("})";
  }
  void fill(const Field&, const Rows& target) {
    if (depth_ == 3) return;  // rows may hold rows
    ++depth_;
    target.resize(target.target, below(4));
    for (size_t row = 0; row < target.size(target.target); ++row)
      fill_row({.key = "row", .fields = target.fields(target.target, row)});
    --depth_;
  }
  // The kind first: it decides which of the others there are.
  void fill_row(const Section& row) {
    for (const bool of_kind : {true, false}) {
      for (const Field& each : row.fields) {
        if ((each.name == row.kind_field) != of_kind || !row.reads(each)) continue;
        std::visit([&](const auto& inner) { fill(each, inner); }, each.target);
        const auto* const text = std::get_if<std::string*>(&each.target);
        if (text != nullptr && each.words.empty()) **text += "x.*";
      }
    }
  }
  template <typename T>
  void fill(const Field& field, std::vector<T>* target) {
    std::vector<T> list(below(4));
    for (T& item : list) fill(field, &item);
    *target = std::move(list);
  }

  std::mt19937_64& random_;
  int depth_ = 0;
};

template <typename Enum>
Enum any(Filler& filler, int first, int last) {
  return static_cast<Enum>(first +
                           static_cast<int>(filler.below(static_cast<uint64_t>(last - first + 1))));
}

void fill_transforms(DatasetConfig& set, Filler& filler) {
  constexpr std::array kOfPictures{DatasetKind::kImages,   DatasetKind::kIdx,
                                   DatasetKind::kCifar,    DatasetKind::kNpy,
                                   DatasetKind::kTfrecord, DatasetKind::kTar};
  const bool has_pictures = std::ranges::find(kOfPictures, set.kind) != kOfPictures.end();
  const DatasetConfig defaults;
  const double from = filler.part() / 2;
  if (set.fit != "center_crop") set.crop_part = defaults.crop_part;
  set.crop_area = defaults.crop_area;
  set.crop_ratio = defaults.crop_ratio;
  if (set.fit == "random_crop") {
    set.crop_area = {from, from + filler.part() / 2};
    set.crop_ratio = {from, from + filler.part()};
  }
  if (has_pictures) set.jitter = {filler.part(), filler.part(), 0, filler.part() / 2};
}

// Records that are sequences of numbers.
DatasetConfig padded_set(DatasetConfig set, Filler& filler) {
  ++set.longest;
  set.input = {"x"};
  set.text.clear();
  set.tokens.clear();
  set.context = 0;
  set.label.clear();
  set.target.clear();
  set.labels += 'y';
  set.size.clear();
  set.fit = DatasetConfig().fit;
  fill_transforms(set, filler);
  if (set.channels == 2) set.channels = 3;
  if (filler.below(2) == 0) set.most_labels = 0;
  if (!set.weights_file.empty()) set.repeat = 1;
  set.grow = DatasetConfig().grow;
  return set;
}

DatasetConfig random_set(const std::string& name, const Config& config, Filler& filler) {
  const bool is_sequence = config.model.reads_tokens();
  DatasetConfig set;
  set.kind = is_sequence ? any<DatasetKind>(filler, 0, 1)
                         : any<DatasetKind>(filler, 2, static_cast<int>(DatasetKind::kSynthetic));
  filler.fill(dataset_section(name, set, false));
  const double from = filler.part() / 2;
  set.split = {from, from + filler.part() / 2};
  if (set.kind == DatasetKind::kNpy) {
    set.input.resize(std::min<size_t>(set.input.size(), 1));
    set.target.clear();
  }
  if (set.has_fields() && set.kind != DatasetKind::kCsv && filler.below(2) == 0)
    return padded_set(std::move(set), filler);
  if (set.kind != DatasetKind::kNpy || set.longest == 0) set.longest = 0, set.lengths.clear();
  set.longer = DatasetConfig().longer;
  set.tokens.clear();
  set.most_labels = 0;
  if (set.has_fields()) {
    set.labels.clear();
    set.input.push_back("x");
    set.size = {8, 9};
    if (set.is_table()) set.size.clear();
    set.delimiter = set.kind == DatasetKind::kCsv ? "tab" : DatasetConfig().delimiter;
    set.shape.clear();
    set.label += 'y';
    set.target.clear();
    set.text.clear();
  }
  if (is_sequence)
    set.context =
        1 + static_cast<int64_t>(filler.below(static_cast<uint64_t>(config.model.context)));
  if (set.kind == DatasetKind::kImages) {
    set.size = {8, 9};
    set.list = "a.csv";
    set.glob = DatasetConfig().glob;
    set.input.resize(std::min<size_t>(set.input.size(), 1));
  }
  if (set.channels == 2) set.channels = 3;
  fill_transforms(set, filler);
  if (set.kind == DatasetKind::kCifar) set.classes = 100;
  if (set.kind == DatasetKind::kSynthetic) {
    set.samples += 1;
    set.features.push_back(7);
  }
  if (!set.weights_file.empty()) set.repeat = 1;
  set.grow = DatasetConfig().grow;
  return set;
}

// data.train becomes a mixture of the others.
void mix(Config& config, Filler& filler) {
  DatasetConfig mixture;
  mixture.kind = DatasetKind::kMixture;
  for (auto& [name, set] : config.data) {
    if (name == "train") continue;
    mixture.of.push_back(name);
    if (filler.below(2) == 0) mixture.weights.push_back(filler.part());
  }
  const bool weighted = mixture.weights.size() == mixture.of.size();
  if (!weighted) mixture.weights.clear();
  for (const std::string& name : mixture.of) {
    if (weighted) config.data[name].repeat = 1;
    if (!weighted) config.data[name].weights_file.clear();
  }
  config.data["train"] = mixture;
}

// One that the model can do.
void fill_task(Config& config, Filler& filler) {
  ModelConfig& model = config.model;
  if (model.reads_tokens()) return;  // the default
  const bool says_steps = model.kind == ModelKind::kBlstm;
  const TaskKind last = says_steps ? kLastTask : TaskKind::kMultiLabel;
  config.task.kind = any<TaskKind>(filler, 1, static_cast<int>(last));
  if (!says_steps) return;
  const bool each = config.task.labels_steps();
  if (each != (model.states == "each")) model.states = each ? "each" : "mean";
}

void fill_model(Config& config, Filler& filler) {
  config.model.kind = any<ModelKind>(filler, 0, static_cast<int>(ModelKind::kTorchscript));
  for (const Section& section : sections_of(config))
    if (section.key == "model") filler.fill(section);
  if (config.model.kind == ModelKind::kGpt || config.model.kind == ModelKind::kVit) {
    config.model.heads = 1 + static_cast<int64_t>(filler.below(16));
    config.model.width = config.model.heads * (1 + static_cast<int64_t>(filler.below(100)));
  }
  if (config.model.kind == ModelKind::kLayers)
    config.model.stack.insert(config.model.stack.begin(), LayerConfig{.kind = "flatten"});
  fill_task(config, filler);
  if (config.model.reads_tokens()) config.model.vocab += 256;
  if (config.model.kind == ModelKind::kResnet) config.model.layers = 20;
  if (config.model.kind == ModelKind::kVgg) config.model.layers = 13;
  if (!config.model.init_map.empty() || !config.model.init_ignore.empty())
    config.model.init_from = "weights.pt";
  for (NameRule& rule : config.model.init_map) rule.from += std::string(8, '*');
}

}  // namespace

Config random_config(std::mt19937_64& random) {
  Filler filler(random);
  Config config;
  config.optimizer.kind = any<OptimizerKind>(filler, 0, static_cast<int>(OptimizerKind::kMuon));
  config.schedule.kind = any<ScheduleKind>(filler, 0, 3);
  for (const Section& section : sections_of(config))
    if (section.key != "model") filler.fill(section);
  fill_model(config, filler);
  for (const char* const name : {"train", "valid", "test-2"})
    if (name == std::string_view("train") || filler.below(2) == 0)
      config.data[name] = random_set(name, config, filler);
  if (config.data.size() > 1 && filler.below(3) == 0) mix(config, filler);
  // What several settings together demand.
  const DatasetConfig& train = config.data["train"];
  if (!train.weights.empty() || !train.weights_file.empty())
    config.feed.last_batch = LastBatch::kSpan;
  const bool fits_buckets =
      train.is_padded() && train.repeat == 1 && train.weights_file.empty() &&
      (config.feed.shuffle == Shuffle::kFull || config.feed.shuffle == Shuffle::kOff);
  config.feed.buckets.clear();
  if (fits_buckets && filler.below(2) == 0) {
    config.feed.buckets = {train.longest + 1};
    config.data["train"].longest += 1;
    config.feed.source = FeedSource::kReaders;
  }
  const bool has_betas = config.optimizer.kind == OptimizerKind::kAdam ||
                         config.optimizer.kind == OptimizerKind::kAdamW ||
                         config.optimizer.kind == OptimizerKind::kLion ||
                         config.optimizer.kind == OptimizerKind::kMuon;
  if (has_betas) config.optimizer.betas = {filler.part() * 0.9, 0.999};
  config.optimizer.nesterov = config.optimizer.nesterov && config.optimizer.momentum > 0;
  if (config.task.kind != TaskKind::kLanguageModel && !config.task.labels_steps()) {
    config.task.mean = std::vector<double>(3, filler.part() - 0.5);
    config.task.std = std::vector<double>(3, filler.part());
  }
  if (config.task.kind == TaskKind::kClassification || config.task.kind == TaskKind::kTagging)
    config.task.class_weights = {filler.part(), 0, filler.part()};
  if (config.task.kind == TaskKind::kClassification && config.feed.source == FeedSource::kReaders &&
      filler.below(2) == 0) {
    config.task.class_weights.clear();
    config.task.balanced_weights = true;
  }
  config.feed.processes =
      std::min(config.feed.processes, config.feed.readers.value_or(config.feed.processes));
  config.train.device = filler.below(2) == 0 ? "cuda:3" : "cpu";
  config.control.http = "";
  if (config.train.ema == 0) config.eval.weights = "raw";
  config.eval.metric = filler.below(2) == 0 ? "" : "accuracy";
  for (std::string& metric : config.checkpoint.keep_best_by) metric = "accuracy";
  if (!config.eval.on_best.empty() && config.eval.on_best.front().empty())
    config.eval.on_best.front() = "program";
  config.eval.sets.clear();
  for (const auto& [name, set] : config.data)
    if (filler.below(2) == 0) config.eval.sets.push_back(name);
  return config;
}

}  // namespace stoker::config::test
