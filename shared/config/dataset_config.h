// DatasetConfig: the settings of one named data set, data.NAME.
//
// Threads: a value.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace stoker::config {

enum class DatasetKind { kText, kTokens, kImages, kIdx, kCifar, kSynthetic, kMixture };

// One named data set. Which fields a kind reads is said beside each; others are refused when set.
struct DatasetConfig {
  DatasetKind kind = DatasetKind::kText;
  std::string path;           // text tokens images idx cifar: file or folder
  std::string glob = "**/*";  // text images, for a folder: which files
  // Part [from, to) of the source, by position: text of bytes, tokens of tokens, others of samples.
  // This and the next four: all kinds but mixture.
  std::vector<double> split = {0.0, 1.0};
  uint64_t skip = 0;         // samples of the part that are left out at its beginning
  uint64_t take = 0;         // samples after them that the set has; 0 = all
  uint64_t repeat = 1;       // training: how often each sample comes an epoch
  std::string weights_file;  // training: a number a sample by which it is drawn; empty = no draws
  int64_t context = 0;       // text tokens: tokens a sample; 0 = model.context
  std::string dtype = "uint16";  // tokens: uint16 | uint32
  std::string labels;            // idx: file of the labels
  std::vector<int64_t> size;     // images: [height, width] that pictures are resized to
  int64_t channels = 3;          // images: 3 = RGB, 1 = grey
  // images: which part of a picture is resized: stretch (all) | center_crop | random_crop
  std::string fit = "stretch";
  double crop_part = 0.875;                         // center_crop: of the shorter side
  std::vector<double> crop_area = {0.08, 1.0};      // random_crop: of the picture's
  std::vector<double> crop_ratio = {0.75, 1.3333};  // random_crop: width / height
  // images idx cifar: what is done to the input at random, anew in each epoch
  int64_t pad = 0;    // black pixels around it, of which as many are cut off again
  double flip = 0.0;  // probability of left becoming right
  std::vector<double> jitter = {0.0, 0.0, 0.0, 0.0};  // brightness, contrast, saturation, hue
  int64_t classes = 0;            // cifar: 10 | 100; synthetic: number of classes, 0 = regression
  uint64_t samples = 0;           // synthetic: how many
  std::vector<int64_t> features;  // synthetic: shape of the input, e.g. [1024] or [3, 32, 32]
  int64_t targets = 1;            // synthetic with classes = 0: width of the target
  double noise = 0.1;             // synthetic: standard deviation added
  std::vector<std::string> of;    // mixture: names of the sets
  std::vector<double> weights;    // mixture: share of each in training; empty = by their sizes

  bool operator==(const DatasetConfig&) const = default;
};

using DatasetConfigs = std::map<std::string, DatasetConfig>;  // by name

}  // namespace stoker::config
