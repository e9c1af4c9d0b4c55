// What tests of the configuration say: a text that holds what every one needs, and what is wrong with it.
#pragma once

#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/config/load_config.h"

namespace stoker::config::test {

using Flags = std::vector<std::string>;

// Line 1 of every text made with it; what a test writes begins in line 2.
inline const std::string kData = "data: {train: {kind: text, path: corpus.txt}}\n";
// The same with pictures: for models and tasks that read no text.
inline const std::string kPictures =
    "data: {train: {kind: cifar, path: pictures, classes: 10}}\n"
    "task: {kind: classification}\n";

inline Result<Config> parsed(const std::string& text, const Flags& flags = {}) {
  return parse_config(text, "my.yaml", flags);
}

// The Config of a text that must be good.
inline Config good(const std::string& text, const Flags& flags = {}) {
  const auto config = parsed(text, flags);
  EXPECT_TRUE(config.ok()) << config.status().message() << "\nin:\n" << text;
  return config.ok() ? *config : Config{};
}

// The lines of what is wrong with a text; empty where nothing is.
inline std::vector<std::string> mistakes(const std::string& text, const Flags& flags = {}) {
  const auto config = parsed(text, flags);
  if (config.ok()) return {};
  EXPECT_EQ(config.status().code(), Code::kInvalidArgument);
  std::vector<std::string> lines;
  std::istringstream stream(config.status().message());
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace stoker::config::test
