// Images of samples for artifacts.
//
// Threads: pure functions.
// Errors:  read_planes(): those of reading the sample; encode_image(): those of the PNG encoder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evaluator/canvas.h"
#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/data/dataset.h"

namespace stoker::evaluator {

// The tensor with the image of a sample; null if there is none. Part of data.spec().
const TensorSpec* find_image(const data::Dataset& data);

// Reads the sample and returns its image, uint8 [channels, height, width].
Result<std::vector<uint8_t>> read_planes(const data::Dataset& data, uint64_t sample,
                                         const TensorSpec& image);

// Draws an image of shape [channels, height, width] (1 or 3 channels) with nearest-neighbor
// interpolation, scaled to fit a square of `side` pixels.
void draw_planes(Canvas& canvas, int left, int top, int side, const std::vector<uint8_t>& planes,
                 const std::vector<int64_t>& shape);

Result<std::string> encode_image(const Canvas& canvas);

// Replaces characters that are special in Markdown tables; < and & by their HTML entities.
std::string escape_markdown(const std::string& text);

}  // namespace stoker::evaluator
