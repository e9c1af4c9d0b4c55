#include <array>
#include <string_view>

#include "shared/config/schema.h"

namespace stoker::config {
namespace {

using namespace std::string_view_literals;

constexpr auto kDatasetKinds =
    std::to_array({"text"sv, "tokens"sv, "images"sv, "idx"sv, "cifar"sv, "npy"sv, "tfrecord"sv,
                   "tar"sv, "csv"sv, "jsonl"sv, "synthetic"sv});

// Large enough for every use, small enough that no product of two overflows.
constexpr double kMostSamples = 1e15;

}  // namespace

Section dataset_section(const std::string& name, DatasetConfig& set) {
  const bool trains = name == "train";
  const std::string_view sequences = "text tokens tfrecord tar jsonl";
  const std::string_view pictures = "images tfrecord tar";
  const std::string_view records = "tfrecord tar csv jsonl";
  const std::string_view named = "tfrecord tar csv jsonl npy images";
  const std::string_view synthetic = "synthetic";
  return {"data." + name,
          {{.name = "kind", .target = choice(set.kind, kDatasetKinds), .decides = trains},
           {.name = "path",
            .target = &set.path,
            .kinds = "text tokens images idx cifar npy tfrecord tar csv jsonl"},
           {.name = "glob",
            .target = &set.glob,
            .kinds = "text images npy tfrecord tar csv jsonl",
            .decides = trains},
           {.name = "split", .target = &set.split, .min = 0, .max = 1, .decides = trains},
           {.name = "context",
            .target = &set.context,
            .min = 0,
            .max = 1e6,
            .kinds = sequences,
            .decides = trains},
           {.name = "dtype",
            .target = &set.dtype,
            .kinds = "tokens",
            .words = "uint16 uint32",
            .decides = trains},
           {.name = "list", .target = &set.list, .kinds = "images"},
           {.name = "labels", .target = &set.labels, .kinds = "idx npy"},
           {.name = "size",
            .target = &set.size,
            .min = 1,
            .max = 16384,
            .kinds = pictures,
            .decides = trains},
           {.name = "channels",
            .target = &set.channels,
            .min = 1,
            .max = 3,
            .kinds = pictures,
            .decides = trains},
           {.name = "classes",
            .target = &set.classes,
            .min = 0,
            .max = 1e6,
            .kinds = "cifar npy images tfrecord tar csv jsonl synthetic",
            .decides = trains},
           {.name = "samples",
            .target = &set.samples,
            .min = 0,
            .max = kMostSamples,
            .kinds = synthetic,
            .decides = trains},
           {.name = "features",
            .target = &set.features,
            .min = 1,
            .max = 1e9,
            .kinds = synthetic,
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
            .kinds = synthetic,
            .decides = trains},
           {.name = "input",
            .target = &set.input,
            .kinds = named,
            .may_stand_alone = true,
            .decides = trains},
           {.name = "shape",
            .target = &set.shape,
            .min = 1,
            .max = 1e9,
            .kinds = records,
            .decides = trains},
           {.name = "label", .target = &set.label, .kinds = named, .decides = trains},
           {.name = "target",
            .target = &set.target,
            .kinds = "tfrecord tar csv jsonl npy",
            .may_stand_alone = true,
            .decides = trains},
           {.name = "text", .target = &set.text, .kinds = "tfrecord tar jsonl", .decides = trains},
           {.name = "incomplete",
            .target = &set.incomplete,
            .kinds = records,
            .words = "refuse skip",
            .decides = trains},
           {.name = "columns", .target = &set.columns, .kinds = "csv", .decides = trains},
           {.name = "delimiter", .target = &set.delimiter, .kinds = "csv", .decides = trains}}};
}

}  // namespace stoker::config
