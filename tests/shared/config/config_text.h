// Configuration texts for tests, and helpers that parse them.
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

// The first line of test texts; a test's own lines start at line 2.
inline const std::string kTextData = "data: {train: {format: text, path: corpus.txt}}\n";
// Two lines with an image dataset, for models and tasks that do not accept text.
inline const std::string kImageData =
    "data: {train: {format: cifar10, path: images}}\n"
    "task: {name: classification}\n";

// Of a text without a model, which is required, with that of kTextData.
inline Result<Config> parsed(const std::string& text, const Flags& flags = {}) {
  const bool is_complete =
      text.starts_with('{') || text.starts_with("model:") || text.find("\nmodel:") != text.npos;
  const bool has_data = text.find("data:") != text.npos;
  const std::string model = is_complete || !has_data ? "" : "\nmodel: {name: gpt}\n";
  return parse_config(text + (text.ends_with('\n') && !model.empty() ? model.substr(1) : model),
                      "my.yaml", flags);
}

// The Config of a valid text.
inline Config valid_config(const std::string& text, const Flags& flags = {}) {
  const auto config = parsed(text, flags);
  EXPECT_TRUE(config.ok()) << config.status().message() << "\nin:\n"
                           << text << "\nwith " << testing::PrintToString(flags);
  return config.ok() ? *config : Config{};
}

// One per line; empty if the configuration is valid.
inline std::vector<std::string> errors_in(const Result<Config>& config) {
  if (config.ok()) return {};
  EXPECT_EQ(config.status().code(), StatusCode::kInvalidArgument);
  std::vector<std::string> lines;
  std::istringstream stream(config.status().message());
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}
inline std::vector<std::string> errors_of(const std::string& text, const Flags& flags = {}) {
  return errors_in(parsed(text, flags));
}

}  // namespace stoker::config::test
