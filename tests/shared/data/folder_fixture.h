// FolderFixture: a new temporary folder for datasets, and helpers that open and read them.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/data/dataset.h"
#include "shared/data/pipeline/open_dataset.h"
#include "tests/shared/data/config_parts.h"
#include "tests/support/temporary_directory.h"

namespace stoker::data::testing {

struct Sample {
  Status status;
  std::vector<std::vector<std::byte>> tensors;

  std::string text(size_t tensor = 0) const {
    return {reinterpret_cast<const char*>(tensors[tensor].data()), tensors[tensor].size()};
  }
  template <typename T>
  std::vector<T> values(size_t tensor) const {
    std::vector<T> values(tensors[tensor].size() / sizeof(T));
    std::memcpy(values.data(), tensors[tensor].data(), tensors[tensor].size());
    return values;
  }
  int64_t label() const { return values<int64_t>(1)[0]; }
};

inline Sample read_sample(const Dataset& dataset, uint64_t sample,
                          const RandomKey& random_key = {}) {
  Sample read;
  std::vector<std::span<std::byte>> outputs;
  for (const TensorSpec& spec : dataset.spec())
    read.tensors.emplace_back(spec.bytes(), std::byte{0xee});
  for (auto& tensor : read.tensors) outputs.emplace_back(tensor);
  read.status = dataset.read(sample, random_key, outputs);
  return read;
}

class FolderFixture : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root_)) {
      // A folder that a test made unreadable.
      if (entry.symlink_status().type() == std::filesystem::file_type::directory)
        std::filesystem::permissions(entry, std::filesystem::perms::owner_all);
    }
  }

  std::string path(const std::string& name) const { return (root_ / name).string(); }
  std::string index_dir() const { return path(".index"); }
  // But for the lock that protects it.
  bool has_no_index_files() const {
    for (const auto& entry : std::filesystem::directory_iterator(index_dir()))
      if (entry.path().filename() != "LOCK") return false;
    return true;
  }

  void write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name, std::ios::binary) << content;
  }
  std::string content_of(const std::string& name) const {
    auto content = read_file(path(name), 1 << 30);
    EXPECT_TRUE(content.ok()) << content.status().to_string();
    return content ? *content : "";
  }
  // Changes the file time by whole seconds, so that a coarse file system clock shows it.
  void age(const std::string& name, int seconds) const {
    const auto time = std::filesystem::last_write_time(root_ / name);
    std::filesystem::last_write_time(root_ / name, time + std::chrono::seconds(seconds));
  }

  Result<std::unique_ptr<Dataset>> open(const config::DatasetConfig& config,
                                        const std::string& name = "train",
                                        uint64_t cache_bytes = 0) const {
    return pipeline::open_dataset(name, config, index_dir(), {}, cache_bytes);
  }
  std::unique_ptr<Dataset> opened(const config::DatasetConfig& config) const {
    auto dataset = open(config);
    EXPECT_TRUE(dataset.ok()) << dataset.status().to_string();
    return dataset.ok() ? *std::move(dataset) : nullptr;
  }
  // Expects an error with this code and all of these words.
  void expect_error(const config::DatasetConfig& config, StatusCode code,
                    const std::vector<std::string>& words) const {
    const auto dataset = open(config);
    ASSERT_FALSE(dataset.ok());
    EXPECT_EQ(dataset.status().code(), code) << dataset.status().to_string();
    for (const std::string& word : words)
      EXPECT_THAT(dataset.status().message(), ::testing::HasSubstr(word));
  }

  const test::TemporaryDirectory directory_;
  const std::filesystem::path root_{directory_.path()};
};

}  // namespace stoker::data::testing
