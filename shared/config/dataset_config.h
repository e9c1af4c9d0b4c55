// DatasetConfig: the settings of one named data set, data.NAME.
//
// Threads: a value.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace stoker::config {

enum class DatasetKind {
  kText,
  kTokens,
  kImages,
  kIdx,
  kCifar,
  kNpy,
  kTfrecord,
  kTar,
  kCsv,
  kJsonl,
  kSynthetic,
  kMixture
};

// One named data set. Which fields a kind reads is said beside each; others are refused when set.
struct DatasetConfig {
  DatasetKind kind = DatasetKind::kText;
  std::string path;           // file or folder; of all kinds but synthetic
  std::string glob = "**/*";  // text images npy tfrecord tar csv jsonl, for a folder: which files
  // Part [from, to) of the source, by position: text of bytes, tokens of tokens, others of samples.
  // This and the next four: all kinds but mixture.
  std::vector<double> split = {0.0, 1.0};
  uint64_t skip = 0;         // samples of the part that are left out at its beginning
  uint64_t take = 0;         // samples after them that the set has; 0 = all
  uint64_t repeat = 1;       // training: how often each sample comes an epoch
  std::string weights_file;  // training: a number a sample by which it is drawn; empty = no draws
  int64_t context = 0;  // text tokens, and texts of records: tokens a sample; 0 = model.context
  std::string dtype = "uint16";  // tokens: uint16 | uint32
  std::string labels;            // idx npy: file of the labels; jsonl: a list of them (below)
  std::string list;              // images: a table of pictures and labels, instead of folders
  // images tfrecord tar: what is kept beside the index: none | packed (images): the files in one |
  // rewritten (images): the same, its JPEGs so that a part is decoded alone | decoded: the samples
  std::string cache = "none";
  std::string cache_dir;  // where that is kept, for runs that share it; empty: beside the index
  // text tokens images tfrecord tar csv jsonl, in training: whether files, shards and rows that come
  // later join: never | epoch (the next one) | at_once.
  std::string grow = "never";
  std::vector<int64_t> size;  // images tfrecord tar: [height, width] that pictures are resized to
  int64_t channels = 3;       // images tfrecord tar: 3 = RGB, 1 = grey
  // images tfrecord tar: which part of a picture is resized: stretch (all) | center_crop |
  // random_crop
  std::string fit = "stretch";
  double crop_part = 0.875;                         // center_crop: of the shorter side
  std::vector<double> crop_area = {0.08, 1.0};      // random_crop: of the picture's
  std::vector<double> crop_ratio = {0.75, 1.3333};  // random_crop: width / height
  // images idx cifar npy tfrecord tar: what is done to a picture at random, anew in each epoch
  int64_t pad = 0;    // black pixels around it, of which as many are cut off again
  double flip = 0.0;  // probability of left becoming right
  std::vector<double> jitter = {0.0, 0.0, 0.0, 0.0};  // brightness, contrast, saturation, hue
  int64_t classes =
      0;  // cifar: 10 | 100; npy, of records: 0 = as many as are found; synthetic: 0 = regression
  uint64_t samples = 0;           // synthetic: how many
  std::vector<int64_t> features;  // synthetic: shape of the input, e.g. [1024] or [3, 32, 32]
  int64_t targets = 1;            // of records; synthetic with classes = 0: width of the target
  double noise = 0.1;             // synthetic: standard deviation added
  std::vector<std::string> of;    // mixture: names of the sets
  std::vector<double> weights;    // mixture: share of each in training; empty = by their sizes
  // Of kinds whose records have named fields: tfrecord tar csv jsonl.
  std::vector<std::string> input;     // the input: a picture (size), or bytes or numbers (shape)
  std::vector<int64_t> shape;         // of an input that is no picture
  std::string label;                  // the class; numbers, or names
  std::vector<std::string> target;    // instead of a label: numbers, `targets` together
  std::string text;                   // instead of all these: bytes are tokens
  std::string incomplete = "refuse";  // refuse | skip: records that lack one of these

  // Sequences of various lengths, padded to one: jsonl npy.
  int64_t longest = 0;            // the length that they are padded to; 0 = no such sequences
  std::string longer = "refuse";  // refuse | truncate | skip: what is longer
  std::string lengths;            // npy: a file, or an array of the archive, of the rows' lengths
  std::string tokens;             // jsonl: instead of input or text, a list of tokens
  int64_t most_labels = 0;        // labels a sample, fewer are padded; 0 = one for each place of it

  std::vector<std::string> columns;  // csv without a header: names of the columns
  std::string delimiter = ",";       // csv: the character between two fields, or tab

  // Whether its samples are sequences of tokens, and whether these are bytes.
  bool is_sequence() const {
    return kind == DatasetKind::kText || kind == DatasetKind::kTokens || !text.empty() ||
           !tokens.empty();
  }
  // Whether they are of various lengths, and padded; else texts are one stream, cut by context.
  bool is_padded() const { return longest > 0; }
  bool is_of_bytes() const { return kind == DatasetKind::kText || !text.empty(); }
  // Whether its records have named fields, and whether these are only numbers and texts.
  bool has_fields() const {
    return kind == DatasetKind::kTfrecord || kind == DatasetKind::kTar || is_table();
  }
  bool is_table() const { return kind == DatasetKind::kCsv || kind == DatasetKind::kJsonl; }

  bool grows() const { return grow != "never"; }

  bool operator==(const DatasetConfig&) const = default;
};

using DatasetConfigs = std::map<std::string, DatasetConfig>;  // by name

}  // namespace stoker::config
