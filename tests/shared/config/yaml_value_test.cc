// Texts that are YAML, or almost YAML, but no configuration; and corrupted configurations, which
// must return a Config or errors but never crash. Run with sanitizers.
#include "shared/config/yaml_value.h"

#include <random>

#include "shared/base/file.h"
#include "tests/shared/config/config_text.h"
#include "tests/support/test_seed.h"

namespace stoker::config::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using namespace std::string_literals;

TEST(YamlValueTest, ReportsDuplicateKeyWithBothLocations) {
  EXPECT_THAT(
      errors_of(kTextData + "train:\n  max_steps: 5\n  micro_batch_size: 1\n  max_steps: 6\n"),
      ElementsAre("my.yaml:5:3: train.max_steps: is given twice (first on line 3); remove one"));
  EXPECT_THAT(errors_of(kTextData + "log: {}\nlog: {}\n"),
              ElementsAre("my.yaml:3:1: log: is given twice (first on line 2); remove one"));
  EXPECT_THAT(errors_of("data: {train: {format: text, path: a}, train: {format: text, path: b}}\n"),
              ElementsAre(HasSubstr("data.train: is given twice")));
}

TEST(YamlValueTest, RejectsAnchorsAndAliases) {
  EXPECT_THAT(errors_of("data:\n  train: &t {format: text, path: a}\n  val: *t\n"),
              ElementsAre(StartsWith("my.yaml:2:10: anchors and aliases")));
  EXPECT_THAT(errors_of(kTextData + "train: {max_steps: &n 5}\n"),
              ElementsAre(StartsWith("my.yaml:2:")));
  EXPECT_THAT(errors_of("*x"), ElementsAre(HasSubstr("anchors and aliases")));
  EXPECT_THAT(errors_of(kTextData + "train: &t\n"), ElementsAre(HasSubstr("anchors and aliases")));
}

TEST(YamlValueTest, RejectsTags) {
  for (const char* const value :
       {"!!int 5", "!mine 5", "!<tag:x> 5", "!!python/object:os.system a"})
    EXPECT_THAT(
        errors_of(kTextData + "train:\n  max_steps: " + value + "\n"),
        ElementsAre(testing::AllOf(StartsWith("my.yaml:3:"), HasSubstr("tags are not supported"))))
        << value;
}

TEST(YamlValueTest, RejectsSecondDocument) {
  EXPECT_THAT(errors_of(kTextData + "---\ntrain: {max_steps: 5}\n"),
              ElementsAre(HasSubstr("a second document")));
  EXPECT_EQ(valid_config("---\n" + kTextData), valid_config(kTextData));
}

TEST(YamlValueTest, RejectsKeysThatAreNotWords) {
  EXPECT_THAT(errors_of(kTextData + "[a, b]: 5\n"), ElementsAre(HasSubstr("keys are words")));
  EXPECT_THAT(errors_of(kTextData + "{a: b}: 5\n"), ElementsAre(HasSubstr("keys are words")));
  EXPECT_THAT(errors_of(kTextData + "? [a]\n: 5\n"), ElementsAre(HasSubstr("keys are words")));
  EXPECT_THAT(errors_of(kTextData + ": 5\n"), testing::SizeIs(1));
}

TEST(YamlValueTest, ReportsInvalidYamlWithLocation) {
  EXPECT_THAT(errors_of(kTextData + "train: {max_steps: 5\n"), ElementsAre(StartsWith("my.yaml:")));
  EXPECT_THAT(errors_of(kTextData + "train:\n\tmax_steps: 5\n"),
              ElementsAre(testing::AllOf(StartsWith("my.yaml:3:"), HasSubstr("tab"))));
  EXPECT_THAT(errors_of(kTextData + "train:\n  max_steps: 5\n micro_batch_size: 3\n"),
              ElementsAre(StartsWith("my.yaml:")));
  EXPECT_THAT(errors_of(kTextData + "run: {dir: \"a}\n"), ElementsAre(StartsWith("my.yaml:")));
}

// ---- Depth and size

std::string nested(int depth, char open, const std::string& core, char close) {
  return std::string(static_cast<size_t>(depth), open) + core +
         std::string(static_cast<size_t>(depth), close);
}

TEST(YamlValueTest, RejectsNestingOver32Levels) {
  EXPECT_THAT(errors_of(kTextData + "train: " + nested(31, '[', "", ']') + "\n"),
              ElementsAre(HasSubstr("must be a mapping of settings, got a list")));
  EXPECT_THAT(errors_of(kTextData + "train: " + nested(32, '[', "", ']') + "\n"),
              ElementsAre(HasSubstr("nest deeper than 32")));
}

// Bytes that take the parser hundreds of bytes each, and keys that are compared with each other.
TEST(YamlValueTest, LimitsBracketsAndKeys) {
  ConfigErrors errors("c.yaml", {});
  parse_yaml("a: " + std::string(1001, '['), -1, "", errors);
  EXPECT_THAT(errors.status().message(),
              HasSubstr("c.yaml:1:1004: more than 1000 brackets that are not closed"));
  std::string keys;
  for (int i = 0; i < 1000; ++i) keys += "k" + std::to_string(i) + ":\n";
  ConfigErrors none("c.yaml", {});
  EXPECT_EQ(parse_yaml(keys, -1, "", none).entries.size(), 1000u);
  EXPECT_TRUE(none.empty());
  ConfigErrors many("c.yaml", {});
  parse_yaml(keys + "k:\n", -1, "", many);
  EXPECT_THAT(many.status().message(),
              HasSubstr("c.yaml:1001:1: a mapping of more than 1000 keys"));
}

TEST(YamlValueTest, StopsParsingOfDeepNestingEarly) {
  constexpr int kDeep = 500'000;  // would overflow the stack of a recursive parser
  EXPECT_THAT(errors_of(std::string(kDeep, '[')), testing::SizeIs(1));
  EXPECT_THAT(errors_of(std::string(kDeep, '{')), testing::SizeIs(1));
  std::string maps, lists;
  for (int i = 0; i < kDeep / 4; ++i) maps += "{a: ";
  for (int i = 0; i < kDeep / 4; ++i) lists += "- ";
  EXPECT_THAT(errors_of(maps), testing::SizeIs(1));
  EXPECT_THAT(errors_of(lists), testing::SizeIs(1));
  std::string questions;
  for (int i = 0; i < kDeep / 4; ++i) questions += "? ";
  EXPECT_THAT(errors_of(questions), testing::SizeIs(1));
}

TEST(YamlValueTest, RejectsTextOver1Mib) {
  std::string text = kTextData + "model: {name: gpt}\n";
  text += "# " + std::string((1 << 20) - text.size() - 2, 'x');
  EXPECT_EQ(text.size(), size_t{1} << 20);
  EXPECT_EQ(valid_config(text), valid_config(kTextData));
  EXPECT_THAT(errors_of(text + "x"), ElementsAre(HasSubstr("larger than 1 MiB")));
}

// ---- Bytes that are not text

TEST(YamlValueTest, RejectsNulByte) {
  EXPECT_THAT(errors_of(kTextData + "run: {dir: a\0b}\n"s),
              ElementsAre(testing::AllOf(StartsWith("my.yaml:2:13: "), HasSubstr("NUL"))));
  EXPECT_THAT(errors_of("\0"s), ElementsAre(HasSubstr("NUL")));
}

TEST(YamlValueTest, RejectsControlCharacters) {
  // yaml-cpp interprets 0x04 as the end of the text.
  for (const char c : {'\x01', '\x04', '\x1b', '\x7f'})
    EXPECT_THAT(errors_of(kTextData + "# " + c + "\n"),
                ElementsAre(testing::AllOf(StartsWith("my.yaml:2:3: "),
                                           HasSubstr("the control character 0x"))));
  EXPECT_THAT(errors_of(kTextData + "run: {dir: \"a\\u0007\"}\n"),
              ElementsAre(HasSubstr("must not contain a control character")));
}

TEST(YamlValueTest, RejectsInvalidUtf8) {
  const std::vector<std::string> bad = {
      "\xff",                  // never in UTF-8
      "\x80",                  // continuation byte without a lead byte
      "\xc3",                  // lead byte without a continuation byte (here: a newline)
      "\xc0\xaf",              // overlong
      "\xe0\x80\xaf",          // overlong
      "\xf0\x80\x80\xaf",      // overlong
      "\xed\xa0\x80",          // surrogate
      "\xf4\x90\x80\x80",      // above U+10FFFF
      "\xe2\x82",              // truncated
      "\xf8\x88\x80\x80\x80",  // five bytes
  };
  for (const std::string& bytes : bad)
    EXPECT_THAT(errors_of(kTextData + "# " + bytes + "\n"),
                ElementsAre(testing::AllOf(StartsWith("my.yaml:2:3: "), HasSubstr("UTF-8"))))
        << testing::PrintToString(bytes);
  EXPECT_EQ(valid_config(kTextData + "run: {dir: \"Übung/日本/😀\"}\n").run.dir, "Übung/日本/😀");
}

TEST(YamlValueTest, RejectsUtf16) {
  EXPECT_THAT(errors_of("\xff\xfe" + "d\0a\0t\0a\0"s), ElementsAre(StartsWith("my.yaml:1:1: ")));
}

// ---- Corrupted configurations

std::string manual() {
  auto text = read_file(std::string(STOKER_SOURCE_DIR) + "/config/stoker.yaml", 1 << 20);
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? *text : std::string();
}

// The manual without its comments, so that nearly every byte is significant.
std::string bare_manual() { return to_yaml(valid_config(manual())); }

// Returns a Config that survives a round trip, or errors.
void expect_config_or_errors(const std::string& text, const Flags& flags = {}) {
  const auto config = parsed(text, flags);
  if (config.ok()) {
    const auto again = parsed(to_yaml(*config));
    ASSERT_TRUE(again.ok()) << again.status().message() << "\nof:\n" << text;
    ASSERT_EQ(*again, *config) << text;
  } else {
    ASSERT_EQ(config.status().code(), StatusCode::kInvalidArgument);
    ASSERT_FALSE(config.status().message().empty());
    ASSERT_LT(config.status().message().size(), 64u << 10);
  }
}

// One byte in five of a change, others with another seed: all would take a quarter of a minute.
constexpr size_t kStride = 5;

TEST(CorruptConfigTest, SurvivesTruncation) {
  const std::string bare = bare_manual();
  for (size_t size = stoker::test::test_seed() % kStride; size < bare.size(); size += kStride)
    expect_config_or_errors(bare.substr(0, size));
  const std::string complete = manual();
  for (size_t size = 0; size < complete.size(); size += 97)
    expect_config_or_errors(complete.substr(0, size));
}

TEST(CorruptConfigTest, SurvivesReplacedByte) {
  const std::string bare = bare_manual();
  std::mt19937_64 random(stoker::test::test_seed() + 3);
  for (size_t at = stoker::test::test_seed() % kStride; at < bare.size(); at += kStride) {
    std::string text = bare;
    text[at] = static_cast<char>(random());
    expect_config_or_errors(text);
    text[at] = "{}[]:,#&*!|>'\"%@`-? \t\n~"[random() % 23];
    expect_config_or_errors(text);
  }
}

TEST(CorruptConfigTest, SurvivesFlippedBit) {
  const std::string complete = manual();
  std::mt19937_64 random(stoker::test::test_seed() + 4);
  for (int i = 0; i < 400; ++i) {
    std::string text = complete;
    text[random() % text.size()] ^= static_cast<char>(1 << random() % 8);
    expect_config_or_errors(text);
  }
}

TEST(CorruptConfigTest, SurvivesMissingRepeatedAndSwappedLines) {
  std::vector<std::string> lines;
  std::istringstream stream(bare_manual());
  for (std::string line; std::getline(stream, line);) lines.push_back(line + '\n');
  std::mt19937_64 random(stoker::test::test_seed() + 5);
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
    expect_config_or_errors(text);
  }
}

TEST(CorruptConfigTest, SurvivesRandomYamlTokens) {
  constexpr std::string_view kParts[] = {"{",    "}",  "[",    "]",  ":",   ": ",    ",",  "\n",
                                         "\n  ", "- ", "? ",   "& ", "*",   "!",     "|",  ">",
                                         "'",    "\"", "data", "%",  "---", "...",   "\t", "train",
                                         "#",    " #", "\\",   "~",  "5",   "format"};
  std::mt19937_64 random(6);
  for (int i = 0; i < 5000; ++i) {
    std::string text;
    for (uint64_t parts = random() % 40; parts > 0; --parts)
      text += kParts[random() % std::size(kParts)];
    expect_config_or_errors(text);
    expect_config_or_errors(kTextData, {"train=" + text});
    expect_config_or_errors(kTextData, {text});
  }
}

TEST(CorruptConfigTest, SurvivesRandomBytes) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 64, '\0');
    for (char& c : text) c = static_cast<char>(random());
    expect_config_or_errors(text);
  }
}

}  // namespace
}  // namespace stoker::config::test
