// Artifact: human-readable output of an evaluation, such as generated text or an image of
// misclassified samples.
//
// Artifacts are stored in RUN/eval/artifacts/ and shown in TensorBoard. Nothing depends on them.
//
// Threads: values; call the functions from one thread.
// Errors:  those of the file system; read_artifacts() ignores missing files.
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
  kConfusionMatrixImage,
  kCaptionsTable,
  kCaptionsImage
};

struct Artifact {
  std::string dataset;
  ArtifactKind kind = ArtifactKind::kGeneratedText;
  std::string bytes;  // a PNG file if is_image()

  bool is_image() const {
    return kind == ArtifactKind::kMisclassifiedImage ||
           kind == ArtifactKind::kConfusionMatrixImage || kind == ArtifactKind::kCaptionsImage;
  }
  // The TensorBoard tag: "generated_text", "misclassified", "misclassified_image", …
  std::string tag() const;
};

// Example: step-000001200.val.misclassified.png
std::string artifact_name(uint64_t step, const std::string& dataset, ArtifactKind kind);
// RUN/eval/artifacts/ and the name.
std::string artifact_path(const run::RunLayout& layout, uint64_t step, const std::string& dataset,
                          ArtifactKind kind);

// Writes the artifacts of `dataset` and removes those that an earlier checkpoint of the same step
// left.
Status write_artifacts(FileSystem& files, const run::RunLayout& layout, uint64_t step,
                       const std::string& dataset, const std::vector<Artifact>& artifacts);
std::vector<Artifact> read_artifacts(const run::RunLayout& layout, uint64_t step,
                                     const std::string& dataset);

}  // namespace stoker::evaluator
