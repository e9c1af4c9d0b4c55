// LayerConfig: one layer of a model that is declared layer by layer: an entry of model.stack.
//
// Threads: values.
//
// A comment that begins with kinds names those that read the field; it is refused for the others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stoker::config {

struct LayerConfig {
  std::string kind;      // conv linear embedding lstm batch_norm layer_norm relu …
  int64_t channels = 0;  // conv: channels out
  int64_t kernel = 0;    // conv max_pool avg_pool: pixels, the side of the window
  int64_t stride = 0;    // conv max_pool avg_pool: pixels; 0 = 1 of a conv, the kernel of a pool
  int64_t padding = 0;   // conv max_pool avg_pool: pixels on each side
  int64_t groups = 1;    // conv: that its channels are cut into
  bool bias = true;      // conv linear
  int64_t outputs = 0;   // linear: numbers out; 0 = as many as the data asks for
  int64_t vocab = 0;     // embedding: how many tokens there are
  int64_t width = 0;     // embedding lstm: numbers of each token
  int64_t size = 1;      // adaptive_avg_pool: pixels, the side of what comes out
  double part = 0.5;     // dropout: of the numbers
  std::vector<LayerConfig> body;      // residual: what is added to the shortcut
  std::vector<LayerConfig> shortcut;  // residual: empty: the input itself

  bool operator==(const LayerConfig&) const = default;
};

}  // namespace stoker::config
