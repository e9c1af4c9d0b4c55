#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/config/schema.h"

namespace stoker::config {
namespace {

using namespace std::string_view_literals;

constexpr auto kDatasetKinds =
    std::to_array({"text"sv, "tokens"sv, "images"sv, "idx"sv, "cifar"sv, "npy"sv, "tfrecord"sv,
                   "tar"sv, "csv"sv, "jsonl"sv, "synthetic"sv, "mixture"sv});

// Large enough for every use, small enough that no product of two overflows.
constexpr double kMostSamples = 1e15;

// Kinds that read the same settings.
constexpr std::string_view kSequences = "text tokens tfrecord tar jsonl";
constexpr std::string_view kEncodedPictures = "images tfrecord tar";  // through PictureInput
// Those whose input may be U8 [channels, height, width].
constexpr std::string_view kPictures = "images idx cifar npy tfrecord tar";
constexpr std::string_view kRecords = "tfrecord tar csv jsonl";
constexpr std::string_view kNamed = "tfrecord tar csv jsonl npy images";
constexpr std::string_view kSynthetic = "synthetic";
constexpr std::string_view kMixture = "mixture";

using Fields = std::vector<Field>;

// Where the samples come from, and how many of them and how often.
Fields source_fields(DatasetConfig& set, bool trains) {
  return {{.name = "kind", .target = choice(set.kind, kDatasetKinds), .decides = trains},
          {.name = "path",
           .target = &set.path,
           .kinds = "text tokens images idx cifar npy tfrecord tar csv jsonl"},
          {.name = "glob",
           .target = &set.glob,
           .kinds = "text images npy tfrecord tar csv jsonl",
           .decides = trains},
          {.name = "split",
           .target = &set.split,
           .min = 0,
           .max = 1,
           .not_kinds = kMixture,
           .decides = trains},
          {.name = "skip",
           .target = &set.skip,
           .min = 0,
           .max = kMostSamples,
           .not_kinds = kMixture,
           .decides = trains},
          {.name = "take",
           .target = &set.take,
           .min = 0,
           .max = kMostSamples,
           .not_kinds = kMixture,
           .decides = trains},
          {.name = "repeat",
           .target = &set.repeat,
           .min = 1,
           .max = 1000,
           .not_kinds = kMixture,
           .decides = trains},
          {.name = "weights_file",
           .target = &set.weights_file,
           .not_kinds = kMixture,
           .decides = trains}};
}

// How the files are read.
Fields format_fields(DatasetConfig& set, bool trains) {
  return {{.name = "context",
           .target = &set.context,
           .min = 0,
           .max = 1e6,
           .kinds = kSequences,
           .decides = trains},
          {.name = "dtype",
           .target = &set.dtype,
           .kinds = "tokens",
           .words = "uint16 uint32",
           .decides = trains},
          {.name = "list", .target = &set.list, .kinds = "images"},
          {.name = "cache",
           .target = &set.cache,
           .kinds = kEncodedPictures,
           .words = "none packed rewritten decoded"},
          {.name = "cache_dir", .target = &set.cache_dir, .kinds = kEncodedPictures},
          {.name = "grow",
           .target = &set.grow,
           .kinds = "text tokens images tfrecord tar csv jsonl",
           .words = "never epoch at_once"},
          {.name = "labels", .target = &set.labels, .kinds = "idx npy jsonl tfrecord tar"}};
}

// Sequences of various lengths.
Fields length_fields(DatasetConfig& set, bool trains) {
  return {
      {.name = "longest",
       .target = &set.longest,
       .min = 0,
       .max = 1e6,
       .kinds = "jsonl npy tfrecord tar",
       .decides = trains},
      {.name = "longer",
       .target = &set.longer,
       .kinds = "jsonl tfrecord tar",
       .words = "refuse truncate skip",
       .decides = trains},
      {.name = "lengths", .target = &set.lengths, .kinds = "npy"},
      {.name = "tokens", .target = &set.tokens, .kinds = "jsonl tfrecord tar", .decides = trains},
      {.name = "most_labels",
       .target = &set.most_labels,
       .min = 0,
       .max = 1e6,
       .kinds = "jsonl tfrecord tar",
       .decides = trains}};
}

// What pictures are made into, and what is done to them at random.
Fields picture_fields(DatasetConfig& set, bool trains) {
  return {{.name = "size",
           .target = &set.size,
           .min = 1,
           .max = 16384,
           .kinds = kEncodedPictures,
           .decides = trains},
          {.name = "channels",
           .target = &set.channels,
           .min = 1,
           .max = 3,
           .kinds = kEncodedPictures,
           .decides = trains},
          {.name = "fit",
           .target = &set.fit,
           .kinds = kEncodedPictures,
           .words = "stretch center_crop random_crop",
           .decides = trains},
          {.name = "crop_part",
           .target = &set.crop_part,
           .min = 0,
           .max = 1,
           .above_min = true,
           .kinds = kEncodedPictures,
           .decides = trains},
          {.name = "crop_area",
           .target = &set.crop_area,
           .min = 0,
           .max = 1,
           .above_min = true,
           .kinds = kEncodedPictures,
           .decides = trains},
          {.name = "crop_ratio",
           .target = &set.crop_ratio,
           .min = 0,
           .max = 1000,
           .above_min = true,
           .kinds = kEncodedPictures,
           .decides = trains},
          {.name = "pad",
           .target = &set.pad,
           .min = 0,
           .max = 16383,
           .kinds = kPictures,
           .decides = trains},
          {.name = "flip",
           .target = &set.flip,
           .min = 0,
           .max = 1,
           .kinds = kPictures,
           .decides = trains},
          {.name = "jitter",
           .target = &set.jitter,
           .min = 0,
           .max = 100,
           .kinds = kPictures,
           .decides = trains}};
}

// How many classes there are, and what is computed.
Fields made_fields(DatasetConfig& set, bool trains) {
  return {{.name = "classes",
           .target = &set.classes,
           .min = 0,
           .max = 1e6,
           .kinds = "cifar npy images tfrecord tar csv jsonl synthetic",
           .decides = trains},
          {.name = "samples",
           .target = &set.samples,
           .min = 0,
           .max = kMostSamples,
           .kinds = kSynthetic,
           .decides = trains},
          {.name = "features",
           .target = &set.features,
           .min = 1,
           .max = 1e9,
           .kinds = kSynthetic,
           .decides = trains},
          {.name = "targets",
           .target = &set.targets,
           .min = 1,
           .max = 1e6,
           .kinds = "tfrecord tar jsonl synthetic",
           .decides = trains},
          {.name = "noise",
           .target = &set.noise,
           .min = 0,
           .max = 1e6,
           .kinds = kSynthetic,
           .decides = trains}};
}

// Which named values of a record make a sample.
Fields record_fields(DatasetConfig& set, bool trains) {
  return {{.name = "input",
           .target = &set.input,
           .kinds = kNamed,
           .may_stand_alone = true,
           .decides = trains},
          {.name = "shape",
           .target = &set.shape,
           .min = 1,
           .max = 1e9,
           .kinds = kRecords,
           .decides = trains},
          {.name = "label", .target = &set.label, .kinds = kNamed, .decides = trains},
          {.name = "target",
           .target = &set.target,
           .kinds = "tfrecord tar csv jsonl npy",
           .may_stand_alone = true,
           .decides = trains},
          {.name = "text", .target = &set.text, .kinds = "tfrecord tar jsonl", .decides = trains},
          {.name = "incomplete",
           .target = &set.incomplete,
           .kinds = kRecords,
           .words = "refuse skip",
           .decides = trains},
          {.name = "columns", .target = &set.columns, .kinds = "csv", .decides = trains},
          {.name = "delimiter", .target = &set.delimiter, .kinds = "csv", .decides = trains}};
}

// Which sets, and how much of each.
Fields mixture_fields(DatasetConfig& set, bool trains) {
  return {{.name = "of", .target = &set.of, .kinds = kMixture, .decides = trains},
          {.name = "weights",
           .target = &set.weights,
           .min = 0,
           .max = 1e9,
           .above_min = true,
           .kinds = kMixture,
           .decides = trains}};
}

}  // namespace

Section dataset_section(const std::string& name, DatasetConfig& set, bool trains) {
  Section section{"data." + name, {}};
  for (const auto& fields : {source_fields, format_fields, picture_fields, made_fields,
                             record_fields, length_fields, mixture_fields})
    for (Field& field : fields(set, trains)) section.fields.push_back(std::move(field));
  return section;
}

}  // namespace stoker::config
