// Artifacts of one evaluated captioning dataset: images with the captions that were generated, and
// their references.
//
// Threads: pure functions.
// Errors:  those of reading samples again and of the PNG encoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "evaluator/artifact.h"
#include "shared/base/status.h"
#include "shared/data/dataset.h"
#include "shared/eval_metrics/eval_metrics.h"

namespace stoker::evaluator {

// Incompressible, that many images stay below metrics::kMaxImageBytes.
inline constexpr size_t kShownCaptions = 12;

// `captions`: at most kShownCaptions, with the index of their samples in `data`. Empty without
// captions.
Result<std::vector<Artifact>> caption_artifacts(
    const data::Dataset& data, const std::string& dataset, uint64_t step,
    const std::vector<eval_metrics::CaptionedSample>& captions);

}  // namespace stoker::evaluator
