// View: something of a checkpoint for people to look at: a text that its model wrote, a picture of
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

enum class ViewKind { kSampleText, kMistakeTable, kMistakePicture, kConfusionPicture };

struct View {
  std::string set;
  ViewKind kind = ViewKind::kSampleText;
  std::string bytes;  // of a picture, a PNG file

  bool is_picture() const {
    return kind == ViewKind::kMistakePicture || kind == ViewKind::kConfusionPicture;
  }
  std::string tag()
      const;  // in TensorBoard: "generated_text", "misclassified", "misclassified_image", …
};

// RUN/eval/artifacts/step-000001200.valid.misclassified.png
std::string view_path(const run::RunLayout& layout, uint64_t step, const std::string& set,
                      ViewKind kind);

// Makes the views of `step` and `set` those in `views`: what an earlier checkpoint of the same step
// left is removed.
Status write_views(FileSystem& files, const run::RunLayout& layout, uint64_t step,
                   const std::string& set, const std::vector<View>& views);
std::vector<View> read_views(const run::RunLayout& layout, uint64_t step, const std::string& set);

}  // namespace stoker::evaluator
