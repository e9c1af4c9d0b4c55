// Artifact: something of a checkpoint for people to look at: a text that its model wrote, a picture of
// its mistakes. Kept in run/eval/artifacts/ and shown in TensorBoard; nothing depends on it.
//
// Threads: values; the functions from one thread.
// Errors:  those of the disk; a view that is not there is nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/file.h"
#include "shared/run/run_layout.h"

namespace stoker::evaluator {

enum class ArtifactKind {
  kGeneratedText,
  kMisclassifiedTable,
  kMisclassifiedImage,
  kConfusionMatrixImage
};

struct Artifact {
  std::string dataset;
  ArtifactKind kind = ArtifactKind::kGeneratedText;
  std::string bytes;  // of a picture, a PNG file

  bool is_image() const {
    return kind == ArtifactKind::kMisclassifiedImage || kind == ArtifactKind::kConfusionMatrixImage;
  }
  std::string tag()
      const;  // in TensorBoard: "generated_text", "misclassified", "misclassified_image", …
};

// RUN/eval/artifacts/step-000001200.valid.misclassified.png
std::string artifact_path(const run::RunLayout& layout, uint64_t step, const std::string& dataset,
                          ArtifactKind kind);

// Makes the views of `step` and `dataset` those in `artifacts`: what an earlier checkpoint of the same step
// left is removed.
Status write_artifacts(FileSystem& files, const run::RunLayout& layout, uint64_t step,
                       const std::string& dataset, const std::vector<Artifact>& artifacts);
std::vector<Artifact> read_artifacts(const run::RunLayout& layout, uint64_t step,
                                     const std::string& dataset);

}  // namespace stoker::evaluator
