// What a classification's figures look like: the matrix of confusions, the worst mistakes.
//
// Threads: functions of their arguments.
// Errors:  those of encoding a picture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/score/report.h"

namespace stoker::evaluator {

// A row for each label, a column for each prediction; the darker, the larger the part of the row.
Result<std::string> confusion_picture(const score::Confusion& confusion,
                                      const std::vector<score::ClassFigures>& classes);

struct ShownMistake {
  score::Mistake mistake;
  std::string label;  // as people call it
  std::string prediction;
  std::string origin;           // file, or nothing
  std::vector<uint8_t> planes;  // of a picture: plane after plane; empty: it is none
};

// Markdown: a line each.
std::string mistake_table(const std::vector<ShownMistake>& mistakes);
// A grid of pictures of `channels` (1 or 3) planes of `height` rows of `width`, each with its
// label, prediction and confidence.
Result<std::string> mistake_picture(const std::vector<ShownMistake>& mistakes, int channels,
                                    int height, int width);

}  // namespace stoker::evaluator
