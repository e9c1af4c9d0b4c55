// SmallSets: a small data set of every kind on disk, with its settings as a struct and as YAML.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "shared/config/dataset_config.h"
#include "tests/shared/dataset/example_writer.h"
#include "tests/shared/dataset/tar_writer.h"
#include "tests/shared/image/picture_files.h"
#include "tests/support/big_endian.h"
#include "tests/support/numpy_files.h"

namespace stoker::dataset::testing {

struct SmallSet {
  const char* name;  // for tests' names
  const char* kind;
  config::DatasetConfig (*write)(const std::string& folder);
  const char* yaml;  // of data.train, but for the kind; FOLDER stands for the folder

  std::string yaml_in(const std::string& folder) const {
    std::string text = "{kind: " + std::string(kind) + ", " + yaml + '}';
    for (size_t at = text.find("FOLDER"); at != std::string::npos; at = text.find("FOLDER"))
      text.replace(at, 6, folder);
    return text;
  }
};

inline void PrintTo(const SmallSet& set, std::ostream* out) { *out << set.name; }

namespace small {

using config::DatasetConfig;
using config::DatasetKind;
using test::big_endian;

inline void write(const std::string& path, const std::string& content) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

inline std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  std::mt19937 random(7);
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// The i-th of several pictures, in one of the three formats.
inline std::string picture(int i) {
  const auto pixels = image::testing::pattern(60, 80 + static_cast<uint32_t>(i));
  switch (i % 3) {
    case 0:
      return image::testing::jpeg_of(pixels, {.progressive = i % 2 == 0});
    case 1:
      return image::testing::png_of(pixels, {.interlaced = i % 2 == 0});
    default:
      return image::testing::webp_of(pixels);
  }
}

inline DatasetConfig text(const std::string& folder) {
  write(folder + "/a.txt", random_bytes(20'000));
  write(folder + "/b.txt", random_bytes(1'000));
  return {.kind = DatasetKind::kText, .path = folder, .glob = "*.txt", .context = 64};
}

inline DatasetConfig tokens(const std::string& folder) {
  write(folder + "/a.bin", random_bytes(40'000));
  return {.kind = DatasetKind::kTokens, .path = folder, .context = 64};
}

inline DatasetConfig images(const std::string& folder) {
  for (int i = 0; i < 48; ++i)
    write(folder + (i % 2 == 0 ? "/cat/" : "/dog/") + std::to_string(i), picture(i));
  return {.kind = DatasetKind::kImages, .path = folder, .glob = "**/*", .size = {32, 32}};
}

inline DatasetConfig packed(const std::string& folder) {
  DatasetConfig config = images(folder);
  config.cache = "packed";
  return config;
}

inline DatasetConfig decoded(const std::string& folder) {
  DatasetConfig config = images(folder);
  config.cache = "decoded";
  return config;
}

inline DatasetConfig list(const std::string& folder) {
  std::string rows = "path,label\n";
  for (int i = 0; i < 40; ++i) {
    const std::string name = "p/" + std::to_string(i);
    write(folder + "/" + name, picture(i));
    rows += name + (i % 3 == 0 ? ",cat\n" : ",dog\n");
  }
  write(folder + "/list.csv", rows);
  return {.kind = DatasetKind::kImages, .list = folder + "/list.csv", .size = {32, 32}};
}

inline DatasetConfig idx(const std::string& folder) {
  write(folder + "/data", big_endian(2051) + big_endian(50) + big_endian(28) + big_endian(28) +
                              random_bytes(50 * 28 * 28));
  write(folder + "/labels", big_endian(2049) + big_endian(50) + std::string(50, '\3'));
  return {.kind = DatasetKind::kIdx, .path = folder + "/data", .labels = folder + "/labels"};
}

inline DatasetConfig cifar(const std::string& folder) {
  std::string bytes = random_bytes(50 * 3073);
  for (size_t record = 0; record < 50; ++record)
    bytes[record * 3073] = static_cast<char>(record % 10);
  write(folder + "/data", bytes);
  return {.kind = DatasetKind::kCifar, .path = folder + "/data", .classes = 10};
}

inline DatasetConfig tfrecord(const std::string& folder) {
  for (int shard = 0; shard < 2; ++shard) {
    std::string file;
    for (int i = 0; i < 25; ++i)
      file += framed(example(
          {{"x", floats_feature({static_cast<float>(i), 0.5f})}, {"y", ints_feature({i % 4})}}));
    write(folder + "/" + std::to_string(shard) + ".tfrecord", file);
  }
  return {.kind = DatasetKind::kTfrecord,
          .path = folder,
          .glob = "*.tfrecord",
          .input = {"x"},
          .shape = {2},
          .label = "y"};
}

inline DatasetConfig tar(const std::string& folder) {
  for (int shard = 0; shard < 2; ++shard) {
    std::string file;
    for (int i = 0; i < 24; ++i) {
      const std::string key = std::to_string(100 * shard + i);
      file +=
          tar_member(key + ".cls", std::to_string(i % 5)) + tar_member(key + ".img", picture(i));
    }
    write(folder + "/" + std::to_string(shard) + ".tar", file + kTarEnd);
  }
  return {.kind = DatasetKind::kTar,
          .path = folder,
          .glob = "*.tar",
          .size = {32, 32},
          .input = {"img"},
          .label = "cls"};
}

inline DatasetConfig tar_text(const std::string& folder) {
  std::string file;
  for (int i = 0; i < 40; ++i)
    file += tar_member(std::to_string(i) + ".txt", random_bytes(50 + 7 * static_cast<size_t>(i)));
  write(folder + "/a.tar", file + kTarEnd);
  return {.kind = DatasetKind::kTar, .path = folder, .glob = "*.tar", .context = 64, .text = "txt"};
}

inline DatasetConfig csv(const std::string& folder) {
  std::string rows = "a,b,kind\n";
  for (int i = 0; i < 60; ++i)
    rows += std::to_string(i) + ',' + std::to_string(-i) + (i % 3 == 0 ? ",cat\n" : ",dog\n");
  write(folder + "/data", rows);
  return {.kind = DatasetKind::kCsv, .path = folder + "/data", .label = "kind"};
}

inline DatasetConfig jsonl(const std::string& folder) {
  std::string rows;
  for (int i = 0; i < 60; ++i)
    rows += "{\"x\": [" + std::to_string(i) + ", " + std::to_string(-i) +
            "], \"y\": " + std::to_string(i % 3) + "}\n";
  write(folder + "/data", rows);
  return {.kind = DatasetKind::kJsonl,
          .path = folder + "/data",
          .input = {"x"},
          .shape = {2},
          .label = "y"};
}

inline DatasetConfig npy(const std::string& folder) {
  write(folder + "/data.npy", test::npy("|u1", "(60, 12)", random_bytes(60 * 12)));
  write(folder + "/labels.npy", test::npy("|u1", "(60,)", std::string(60, '\3')));
  return {
      .kind = DatasetKind::kNpy, .path = folder + "/data.npy", .labels = folder + "/labels.npy"};
}

inline DatasetConfig jsonl_sequences(const std::string& folder) {
  std::string rows;
  for (int i = 0; i < 60; ++i) {
    std::string list;
    for (int place = 0; place <= i % 9; ++place)
      list += (place == 0 ? "" : ", ") + std::to_string(i + place);
    rows += "{\"ids\": [" + list + "], \"tags\": [" + list + "]}\n";
  }
  write(folder + "/data", rows);
  return {.kind = DatasetKind::kJsonl,
          .path = folder + "/data",
          .labels = "tags",
          .input = {"ids"},
          .longest = 12};
}

inline DatasetConfig npy_sequences(const std::string& folder) {
  std::string lengths, labels(60 * 12, '\3');
  for (int i = 0; i < 60; ++i) lengths += static_cast<char>(1 + i % 12);
  write(folder + "/data.npy", test::npy("|u1", "(60, 12, 2)", random_bytes(60 * 24)));
  write(folder + "/labels.npy", test::npy("|u1", "(60, 12)", labels));
  write(folder + "/lengths.npy", test::npy("|u1", "(60,)", lengths));
  return {.kind = DatasetKind::kNpy,
          .path = folder + "/data.npy",
          .labels = folder + "/labels.npy",
          .longest = 12,
          .lengths = folder + "/lengths.npy"};
}

inline DatasetConfig synthetic(const std::string&) {
  return {.kind = DatasetKind::kSynthetic, .classes = 4, .samples = 500, .features = {3, 10}};
}

}  // namespace small

inline std::vector<SmallSet> small_sets() {
  using namespace small;
  return {
      {"text", "text", text, "path: FOLDER, glob: \"*.txt\", context: 64"},
      {"tokens", "tokens", tokens, "path: FOLDER, context: 64"},
      {"images", "images", images, "path: FOLDER, glob: \"**/*\", size: [32, 32]"},
      {"packed", "images", packed, "path: FOLDER, glob: \"**/*\", size: [32, 32], cache: packed"},
      {"decoded", "images", decoded,
       "path: FOLDER, glob: \"**/*\", size: [32, 32], cache: decoded"},
      {"list", "images", list, "list: FOLDER/list.csv, size: [32, 32]"},
      {"idx", "idx", idx, "path: FOLDER/data, labels: FOLDER/labels"},
      {"cifar", "cifar", cifar, "path: FOLDER/data, classes: 10"},
      {"tfrecord", "tfrecord", tfrecord,
       "path: FOLDER, glob: \"*.tfrecord\", input: x, shape: [2], label: y"},
      {"tar", "tar", tar, "path: FOLDER, glob: \"*.tar\", input: img, size: [32, 32], label: cls"},
      {"tar_text", "tar", tar_text, "path: FOLDER, glob: \"*.tar\", text: txt, context: 64"},
      {"csv", "csv", csv, "path: FOLDER/data, label: kind"},
      {"jsonl", "jsonl", jsonl, "path: FOLDER/data, input: x, shape: [2], label: y"},
      {"npy", "npy", npy, "path: FOLDER/data.npy, labels: FOLDER/labels.npy"},
      {"jsonl_sequences", "jsonl", jsonl_sequences,
       "path: FOLDER/data, input: ids, labels: tags, longest: 12"},
      {"npy_sequences", "npy", npy_sequences,
       "path: FOLDER/data.npy, labels: FOLDER/labels.npy, lengths: FOLDER/lengths.npy, "
       "longest: 12"},
      {"synthetic", "synthetic", synthetic, "samples: 500, features: [3, 10], classes: 4"}};
}

}  // namespace stoker::dataset::testing
