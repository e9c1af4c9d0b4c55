// small_datasets: a small dataset of every format on disk, with its settings as a struct and as
// YAML.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "shared/config/dataset_config.h"
#include "tests/shared/data/config_parts.h"
#include "tests/shared/data/example_writer.h"
#include "tests/shared/data/tar_writer.h"
#include "tests/shared/image/image_files.h"
#include "tests/support/numpy_files.h"
#include "tests/support/packed_bytes.h"

namespace stoker::data::testing {

struct SmallDataset {
  const char* name;  // for test names
  const char* format;
  config::DatasetConfig (*write)(const std::string& folder);
  const char* yaml;  // of data.train, without the format; FOLDER is replaced by the folder

  std::string yaml_in(const std::string& folder) const {
    std::string text = "{format: " + std::string(format) + ", " + yaml + '}';
    for (size_t at = text.find("FOLDER"); at != std::string::npos; at = text.find("FOLDER"))
      text.replace(at, 6, folder);
    return text;
  }
};

inline void PrintTo(const SmallDataset& set, std::ostream* out) { *out << set.name; }

namespace small {

using config::DatasetConfig;
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

// The i-th of several images; the three formats alternate.
inline std::string encoded_image(int i) {
  const auto pixels = image::testing::pattern(60, 80 + static_cast<uint32_t>(i));
  switch (i % 3) {
    case 0:
      return image::testing::encode_jpeg(pixels, {.progressive = i % 2 == 0});
    case 1:
      return image::testing::encode_png_file(pixels, {.interlaced = i % 2 == 0});
    default:
      return image::testing::encode_webp(pixels);
  }
}

// Random letters: files with NUL bytes are no text.
inline std::string random_text(size_t count) {
  std::string text = random_bytes(count);
  for (char& byte : text) byte = static_cast<char>('a' + static_cast<unsigned char>(byte) % 26);
  return text;
}

inline DatasetConfig text(const std::string& folder) {
  write(folder + "/a.txt", random_text(20'000));
  write(folder + "/b.txt", random_text(1'000));
  return {.source =
              config::TextDataset{.path = folder, .glob = "*.txt", .sequence = {.block_size = 64}}};
}

inline DatasetConfig tokens(const std::string& folder) {
  write(folder + "/a.bin", random_bytes(40'000));
  return {.source = config::TokensDataset{.path = folder, .sequence = {.block_size = 64}}};
}

inline DatasetConfig images(const std::string& folder) {
  for (int i = 0; i < 48; ++i)
    write(folder + (i % 2 == 0 ? "/cat/" : "/dog/") + std::to_string(i), encoded_image(i));
  return {
      .source = config::ImageFolderDataset{
          .path = folder, .glob = "**/*", .transforms = {config::Resize{{32, 32}}}, .cache = {}}};
}

inline DatasetConfig packed(const std::string& folder) {
  DatasetConfig config = images(folder);
  cache_in(config) = config::CacheConfig{};
  return config;
}

inline DatasetConfig decoded(const std::string& folder) {
  DatasetConfig config = images(folder);
  cache_in(config) = config::CacheConfig{.type = config::CacheType::kDecoded, .dir = {}};
  return config;
}

inline DatasetConfig list(const std::string& folder) {
  std::string rows = "path,label\n";
  for (int i = 0; i < 40; ++i) {
    const std::string name = "p/" + std::to_string(i);
    write(folder + "/" + name, encoded_image(i));
    rows += name + (i % 3 == 0 ? ",cat\n" : ",dog\n");
  }
  write(folder + "/list.csv", rows);
  return {.source = config::ImageListDataset{.path = folder + "/list.csv",
                                             .num_classes = {},
                                             .transforms = {config::Resize{{32, 32}}},
                                             .cache = {}}};
}

inline DatasetConfig idx(const std::string& folder) {
  write(folder + "/data", big_endian(2051) + big_endian(50) + big_endian(28) + big_endian(28) +
                              random_bytes(50 * 28 * 28));
  write(folder + "/labels", big_endian(2049) + big_endian(50) + std::string(50, '\3'));
  return {.source = config::IdxDataset{
              .path = folder + "/data", .labels_path = folder + "/labels", .transforms = {}}};
}

inline DatasetConfig cifar(const std::string& folder) {
  std::string bytes = random_bytes(50 * 3073);
  for (size_t record = 0; record < 50; ++record)
    bytes[record * 3073] = static_cast<char>(record % 10);
  write(folder + "/data", bytes);
  return {.source = config::CifarDataset{.path = folder + "/data", .transforms = {}}};
}

inline DatasetConfig tfrecord(const std::string& folder) {
  for (int shard = 0; shard < 2; ++shard) {
    std::string file;
    for (int i = 0; i < 25; ++i)
      file += framed(example(
          {{"x", floats_feature({static_cast<float>(i), 0.5f})}, {"y", ints_feature({i % 4})}}));
    write(folder + "/" + std::to_string(shard) + ".tfrecord", file);
  }
  config::TfrecordDataset tfrecord;
  tfrecord.path = folder;
  tfrecord.glob = "*.tfrecord";
  tfrecord.record.fields.input = {"x"};
  tfrecord.record.fields.label = "y";
  tfrecord.record.input_shape = {2};
  return {.source = tfrecord};
}

inline DatasetConfig tar(const std::string& folder) {
  for (int shard = 0; shard < 2; ++shard) {
    std::string file;
    for (int i = 0; i < 24; ++i) {
      const std::string key = std::to_string(100 * shard + i);
      file += tar_member(key + ".cls", std::to_string(i % 5)) +
              tar_member(key + ".img", encoded_image(i));
    }
    write(folder + "/" + std::to_string(shard) + ".tar", file + kTarEnd);
  }
  config::WebdatasetDataset webdataset;
  webdataset.path = folder;
  webdataset.glob = "*.tar";
  webdataset.record.fields.image = "img";
  webdataset.record.fields.label = "cls";
  webdataset.transforms = {config::Resize{{32, 32}}};
  return {.source = webdataset};
}

inline DatasetConfig tar_text(const std::string& folder) {
  std::string file;
  for (int i = 0; i < 40; ++i)
    file += tar_member(std::to_string(i) + ".txt", random_bytes(50 + 7 * static_cast<size_t>(i)));
  write(folder + "/a.tar", file + kTarEnd);
  config::WebdatasetDataset webdataset;
  webdataset.path = folder;
  webdataset.glob = "*.tar";
  webdataset.record.fields.text = "txt";
  webdataset.record.sequence.block_size = 64;
  return {.source = webdataset};
}

inline DatasetConfig csv(const std::string& folder) {
  std::string rows = "a,b,kind\n";
  for (int i = 0; i < 60; ++i)
    rows += std::to_string(i) + ',' + std::to_string(-i) + (i % 3 == 0 ? ",cat\n" : ",dog\n");
  write(folder + "/data", rows);
  config::CsvDataset csv;
  csv.path = folder + "/data";
  csv.record.fields.label = "kind";
  return {.source = csv};
}

inline DatasetConfig jsonl(const std::string& folder) {
  std::string rows;
  for (int i = 0; i < 60; ++i)
    rows += "{\"x\": [" + std::to_string(i) + ", " + std::to_string(-i) +
            "], \"y\": " + std::to_string(i % 3) + "}\n";
  write(folder + "/data", rows);
  config::JsonlDataset jsonl;
  jsonl.path = folder + "/data";
  jsonl.record.fields.input = {"x"};
  jsonl.record.fields.label = "y";
  jsonl.record.input_shape = {2};
  return {.source = jsonl};
}

inline DatasetConfig npy(const std::string& folder) {
  write(folder + "/data.npy", test::npy("|u1", "(60, 12)", random_bytes(60 * 12)));
  write(folder + "/labels.npy", test::npy("|u1", "(60,)", std::string(60, '\3')));
  config::NumpyDataset numpy;
  numpy.path = folder + "/data.npy";
  numpy.labels_path = folder + "/labels.npy";
  return {.source = numpy};
}

inline DatasetConfig jsonl_sequences(const std::string& folder) {
  std::string rows;
  for (int i = 0; i < 60; ++i) {
    std::string list;
    for (int position = 0; position <= i % 9; ++position)
      list += (position == 0 ? "" : ", ") + std::to_string(i + position);
    rows += "{\"ids\": [" + list + "], \"tags\": [" + list + "]}\n";
  }
  write(folder + "/data", rows);
  config::JsonlDataset jsonl;
  jsonl.path = folder + "/data";
  jsonl.record.fields.input = {"ids"};
  jsonl.record.fields.labels = "tags";
  jsonl.record.sequence.max_length = 12;
  return {.source = jsonl};
}

inline DatasetConfig npy_sequences(const std::string& folder) {
  std::string lengths, labels(60 * 12, '\3');
  for (int i = 0; i < 60; ++i) lengths += static_cast<char>(1 + i % 12);
  write(folder + "/data.npy", test::npy("|u1", "(60, 12, 2)", random_bytes(60 * 24)));
  write(folder + "/labels.npy", test::npy("|u1", "(60, 12)", labels));
  write(folder + "/lengths.npy", test::npy("|u1", "(60,)", lengths));
  config::NumpyDataset numpy;
  numpy.path = folder + "/data.npy";
  numpy.labels_path = folder + "/labels.npy";
  numpy.lengths_path = folder + "/lengths.npy";
  numpy.sequence.max_length = 12;
  return {.source = numpy};
}

inline DatasetConfig synthetic(const std::string&) {
  return {.source = config::SyntheticDataset{
              .num_samples = 500, .input_shape = {3, 10}, .num_classes = 4}};
}

}  // namespace small

inline std::vector<SmallDataset> small_datasets() {
  using namespace small;
  return {
      {"text", "text", text, "path: FOLDER, glob: \"*.txt\", sequence: {block_size: 64}"},
      {"tokens", "tokens", tokens, "path: FOLDER, sequence: {block_size: 64}"},
      {"images", "image_folder", images,
       "path: FOLDER, glob: \"**/*\", transforms: [resize: {size: [32, 32]}]"},
      {"packed", "image_folder", packed,
       "path: FOLDER, glob: \"**/*\", transforms: [resize: {size: [32, 32]}], cache: {type: "
       "packed}"},
      {"decoded", "image_folder", decoded,
       "path: FOLDER, glob: \"**/*\", transforms: [resize: {size: [32, 32]}], "
       "cache: {type: decoded}"},
      {"list", "image_list", list, "path: FOLDER/list.csv, transforms: [resize: {size: [32, 32]}]"},
      {"idx", "idx", idx, "path: FOLDER/data, labels_path: FOLDER/labels"},
      {"cifar", "cifar10", cifar, "path: FOLDER/data"},
      {"tfrecord", "tfrecord", tfrecord,
       "path: FOLDER, glob: \"*.tfrecord\", fields: {input: x, label: y}, input_shape: [2]"},
      {"tar", "webdataset", tar,
       "path: FOLDER, glob: \"*.tar\", fields: {image: img, label: cls}, "
       "transforms: [resize: {size: [32, 32]}]"},
      {"tar_text", "webdataset", tar_text,
       "path: FOLDER, glob: \"*.tar\", fields: {text: txt}, sequence: {block_size: 64}"},
      {"csv", "csv", csv, "path: FOLDER/data, fields: {label: kind}"},
      {"jsonl", "jsonl", jsonl,
       "path: FOLDER/data, fields: {input: x, label: y}, input_shape: [2]"},
      {"npy", "numpy", npy, "path: FOLDER/data.npy, labels_path: FOLDER/labels.npy"},
      {"jsonl_sequences", "jsonl", jsonl_sequences,
       "path: FOLDER/data, fields: {input: ids, labels: tags}, sequence: {max_length: 12}"},
      {"npy_sequences", "numpy", npy_sequences,
       "path: FOLDER/data.npy, labels_path: FOLDER/labels.npy, lengths_path: FOLDER/lengths.npy, "
       "sequence: {max_length: 12}"},
      {"synthetic", "synthetic", synthetic,
       "num_samples: 500, input_shape: [3, 10], num_classes: 4"}};
}

}  // namespace stoker::data::testing
