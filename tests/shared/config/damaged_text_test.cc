// Whatever the text: a Config or a message, never a crash. Run under the sanitizers.
#include "shared/base/file.h"
#include "tests/shared/config/config_text.h"
#include "tests/shared/config/random_config.h"

namespace stoker::config::test {
namespace {

std::string manual() {
  auto text = read_file(std::string(STOKER_SOURCE_DIR) + "/config/stoker.yaml", 1 << 20);
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? *text : std::string();
}

// The manual without its comments, in which nearly every byte means something.
std::string bare_manual() { return to_yaml(good(manual())); }

// Whatever it comes to must be told, and must hold together.
void expect_told(const std::string& text, const Flags& flags = {}) {
  const auto config = parsed(text, flags);
  if (config.ok()) {
    const auto again = parsed(to_yaml(*config));
    ASSERT_TRUE(again.ok()) << again.status().message() << "\nof:\n" << text;
    ASSERT_EQ(*again, *config) << text;
  } else {
    ASSERT_EQ(config.status().code(), Code::kInvalidArgument);
    ASSERT_FALSE(config.status().message().empty());
    ASSERT_LT(config.status().message().size(), 64u << 10);
  }
}

TEST(DamagedText, CutAnywhere) {
  const std::string bare = bare_manual();
  for (size_t size = 0; size < bare.size(); ++size) expect_told(bare.substr(0, size));
  const std::string whole = manual();
  for (size_t size = 0; size < whole.size(); size += 97) expect_told(whole.substr(0, size));
}

TEST(DamagedText, OneByteIsAnother) {
  const std::string bare = bare_manual();
  std::mt19937_64 random(3);
  for (size_t at = 0; at < bare.size(); ++at) {
    std::string text = bare;
    text[at] = static_cast<char>(random());
    expect_told(text);
    text[at] = "{}[]:,#&*!|>'\"%@`-? \t\n~"[random() % 23];
    expect_told(text);
  }
}

TEST(DamagedText, OneBitIsFlipped) {
  const std::string whole = manual();
  std::mt19937_64 random(4);
  for (int i = 0; i < 400; ++i) {
    std::string text = whole;
    text[random() % text.size()] ^= static_cast<char>(1 << random() % 8);
    expect_told(text);
  }
}

TEST(DamagedText, LinesAreMissingTwiceOrMoved) {
  std::vector<std::string> lines;
  std::istringstream stream(bare_manual());
  for (std::string line; std::getline(stream, line);) lines.push_back(line + '\n');
  std::mt19937_64 random(5);
  for (int i = 0; i < 1000; ++i) {
    std::vector<std::string> changed = lines;
    const size_t from = random() % lines.size();
    const size_t to = random() % lines.size();
    const auto at = [&](size_t index) {
      return changed.begin() + static_cast<std::ptrdiff_t>(index);
    };
    switch (random() % 3) {
      case 0:
        changed.erase(at(from));
        break;
      case 1:
        changed.insert(at(to), lines[from]);
        break;
      default:
        std::swap(changed[from], changed[to]);
        break;
    }
    std::string text;
    for (const std::string& line : changed) text += line;
    expect_told(text);
  }
}

TEST(DamagedText, NoiseMadeOfYamlsOwnCharacters) {
  constexpr std::string_view kParts[] = {
      "{", "}", "[",  "]",    ":", ": ",  ",",   "\n", "\n  ",  "- ", "? ", "& ", "*", "!", "|",
      ">", "'", "\"", "data", "%", "---", "...", "\t", "train", "#",  " #", "\\", "~", "5", "kind"};
  std::mt19937_64 random(6);
  for (int i = 0; i < 5000; ++i) {
    std::string text;
    for (uint64_t parts = random() % 40; parts > 0; --parts)
      text += kParts[random() % std::size(kParts)];
    expect_told(text);
    expect_told(kData, {"train=" + text});
    expect_told(kData, {text});
  }
}

TEST(DamagedText, NoiseOfAnyBytes) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 64, '\0');
    for (char& c : text) c = static_cast<char>(random());
    expect_told(text);
  }
}

}  // namespace
}  // namespace stoker::config::test
