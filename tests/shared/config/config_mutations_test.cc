// Configurations with one mistake: each has one error, with its location and what to do.
#include <algorithm>
#include <filesystem>
#include <random>
#include <regex>

#include "shared/base/file.h"
#include "shared/config/key_synonyms.h"
#include "tests/shared/config/config_text.h"
#include "tests/support/test_seed.h"

namespace stoker::config::test {
namespace {

enum class Mistake { kDelete, kMisspell, kRename, kNonsense, kRetype, kDuplicate };
constexpr std::array kMistakes{Mistake::kDelete,   Mistake::kMisspell, Mistake::kRename,
                               Mistake::kNonsense, Mistake::kRetype,   Mistake::kDuplicate};

// A key at the start of a line, with the lines of its value.
struct MutableKey {
  size_t line = 0;  // from 0
  size_t end = 0;   // the line after the value
  std::string indent, parent, key;
};

using Lines = std::vector<std::string>;

Lines lines_of(const std::string& text) {
  Lines lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}
std::string text_from(const Lines& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

bool is_blank(const std::string& line) {
  const size_t at = line.find_first_not_of(' ');
  return at == line.npos || line[at] == '#';
}

// The keys of mappings in block style, without those in lists and of user-defined names.
std::vector<MutableKey> keys_in(const Lines& lines) {
  static const std::regex kKey("^( *)([a-z_0-9]+):( .*)?$");
  std::vector<MutableKey> keys, parents;
  size_t list_indent = std::string::npos;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (is_blank(lines[i])) continue;
    const size_t indent = lines[i].find_first_not_of(' ');
    if (lines[i][indent] == '-') list_indent = std::min(list_indent, indent);
    if (indent < list_indent || (indent == list_indent && lines[i][indent] != '-'))
      list_indent = std::string::npos;
    std::smatch match;
    if (list_indent != std::string::npos || !std::regex_match(lines[i], match, kKey)) continue;
    while (!parents.empty() && parents.back().indent.size() >= indent) parents.pop_back();
    MutableKey key{.line = i, .end = i + 1, .indent = match[1], .parent = {}, .key = match[2]};
    for (const MutableKey& each : parents) key.parent += each.key + '.';
    for (size_t at = i + 1; at < lines.size(); ++at) {
      if (is_blank(lines[at])) continue;
      if (lines[at].find_first_not_of(' ') <= indent && lines[at][indent] != '-') break;
      key.end = at + 1;
    }
    parents.push_back(key);
    if (key.parent != "data." && key.parent != "model.init." && !key.parent.ends_with("mixture."))
      keys.push_back(key);
  }
  return keys;
}

std::string pick(const std::vector<std::string>& words, std::mt19937_64& random) {
  return words[random() % words.size()];
}

// Two neighbors that differ swapped, or a character appended. The first one remains, so that "decoder"
// does not become as close to "encoder".
std::string misspelt(std::string word, std::mt19937_64& random) {
  const size_t at = word.size() < 5 ? 0 : 1 + random() % (word.size() - 2);
  if (at > 0 && word[at] != word[at + 1])
    std::swap(word[at], word[at + 1]);
  else
    word += "z";
  return word;
}

// The names that the key has elsewhere.
std::vector<std::string> synonyms_of(const MutableKey& key) {
  std::string full = key.parent + key.key;
  if (full.starts_with("data.")) full = "data.NAME." + full.substr(full.find('.', 5) + 1);
  std::vector<std::string> names;
  for (const KeySynonym& synonym : key_synonyms())
    if (std::ranges::count(synonym.all_keys(), full) > 0)
      std::ranges::copy(synonym.all_names(), std::back_inserter(names));
  std::erase(names, key.key);
  return names;
}

// Makes the mistake in `lines` and returns the line (from 1) to which the error belongs; 0: any.
size_t make_mistake(Mistake mistake, const MutableKey& key, Lines& lines, std::mt19937_64& random) {
  const auto at = [&lines](size_t line) { return lines.begin() + static_cast<ptrdiff_t>(line); };
  const std::string rest = lines[key.line].substr(key.indent.size() + key.key.size());
  switch (mistake) {
    case Mistake::kDelete:
      // Comments keep the numbers of the other lines.
      std::fill(at(key.line), at(key.end), "#");
      return 0;
    case Mistake::kRename:
      if (const auto names = synonyms_of(key); !names.empty()) {
        lines[key.line] = key.indent + pick(names, random) + rest;
        return key.line + 1;
      }
      [[fallthrough]];
    case Mistake::kMisspell:
      lines[key.line] = key.indent + misspelt(key.key, random) + rest;
      return key.line + 1;
    case Mistake::kNonsense:
      lines[key.line] = key.indent + "qqq_zzz_www" + rest;
      return key.line + 1;
    case Mistake::kRetype:
      std::fill(at(key.line), at(key.end), "#");
      lines[key.line] =
          key.indent + key.key + ": " +
          pick({"[[1]]", "{zz: 1}", "[{a: 1}]", "-7", "\"7\"", "null", "maybe", "1e400", "[]"},
               random);
      return 0;
    case Mistake::kDuplicate: {
      const Lines copy(at(key.line), at(key.end));
      lines.insert(at(key.end), copy.begin(), copy.end());
      return key.end + 1;
    }
  }
  return 0;
}

bool has_certain_error(Mistake mistake) {
  return mistake != Mistake::kDelete && mistake != Mistake::kRetype;
}

void expect_good_error(const std::string& error, size_t line, bool needs_location) {
  static const std::regex kLocation("^my\\.yaml:([0-9]+):[0-9]+: .*");
  static const std::regex kRemedy(
      ".*(; |must |is required|requires |set |remove|did you mean|cannot be combined).*");
  std::smatch match;
  if (std::regex_match(error, match, kLocation)) {
    if (line > 0) {
      EXPECT_EQ(match[1], std::to_string(line)) << error;
    }
  } else {
    EXPECT_FALSE(needs_location) << error;
    EXPECT_TRUE(error.starts_with("my.yaml: ")) << error;
  }
  EXPECT_TRUE(std::regex_match(error, kRemedy)) << error;
  EXPECT_EQ(error.find("internal error"), error.npos) << error;
}

// The manual and the examples, without comments.
std::vector<std::string> sources() {
  std::vector<std::string> texts;
  const std::string folder = std::string(STOKER_SOURCE_DIR) + "/config";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".yaml") continue;
    auto text = read_file(entry.path(), 1 << 20);
    EXPECT_TRUE(text.ok());
    if (!text.ok()) continue;
    Lines lines;
    for (const std::string& line : lines_of(*text))
      if (!is_blank(line)) lines.push_back(line);
    texts.push_back(text_from(lines));
  }
  std::ranges::sort(texts);
  EXPECT_GE(texts.size(), 9u);
  return texts;
}

// With every key, in block style.
std::vector<std::string> resolved_sources() {
  std::vector<std::string> texts;
  for (const std::string& text : sources()) texts.push_back(to_yaml(valid_config(text)));
  return texts;
}

size_t expect_one_error(const std::string& source, const MutableKey& key, Mistake mistake,
                        std::mt19937_64& random) {
  Lines lines = lines_of(source);
  const size_t line = make_mistake(mistake, key, lines, random);
  const std::vector<std::string> errors = errors_in(parse_config(text_from(lines), "my.yaml", {}));
  const auto shown = [&] {
    std::string changed;
    for (size_t i = key.line; i < std::min(key.end + 1, lines.size()); ++i)
      changed += lines[i] + '\n';
    return "after " + key.parent + key.key + ", line " + std::to_string(key.line + 1) +
           ", became\n" + changed;
  };
  // Two of the other settings can require a deleted one.
  const size_t most = mistake == Mistake::kDelete ? 2 : 1;
  EXPECT_LE(errors.size(), most) << testing::PrintToString(errors) << shown();
  if (has_certain_error(mistake)) {
    EXPECT_EQ(errors.size(), 1u) << shown();
  }
  for (const std::string& error : errors) {
    expect_good_error(error, line, mistake != Mistake::kDelete);
    if (mistake == Mistake::kMisspell || mistake == Mistake::kRename) {
      EXPECT_TRUE(error.find(key.key + "'") != error.npos) << error << '\n' << shown();
    }
  }
  return errors.size();
}

TEST(ConfigMutationsTest, ReportsOneErrorForOneMistake) {
  std::mt19937_64 random(stoker::test::test_seed());
  size_t errors = 0;
  for (const std::string& source : sources())
    for (const MutableKey& key : keys_in(lines_of(source)))
      for (const Mistake mistake : kMistakes)
        errors += expect_one_error(source, key, mistake, random);
  EXPECT_GT(errors, 1000u);
}

TEST(ConfigMutationsTest, ReportsOneErrorForOneMistakeInResolvedConfiguration) {
  std::mt19937_64 random(stoker::test::test_seed());
  size_t errors = 0;
  for (const std::string& source : resolved_sources()) {
    const std::vector<MutableKey> keys = keys_in(lines_of(source));
    ASSERT_GT(keys.size(), 100u);
    for (int i = 0; i < 60; ++i)
      errors += expect_one_error(source, keys[random() % keys.size()],
                                 kMistakes[random() % kMistakes.size()], random);
  }
  EXPECT_GT(errors, 100u);
}

// In different sections, so that none is a consequence of the other.
TEST(ConfigMutationsTest, ReportsBothOfTwoUnknownKeys) {
  std::mt19937_64 random(stoker::test::test_seed());
  const auto section_of = [](const MutableKey& key) {
    return key.parent.substr(0, key.parent.find('.'));
  };
  size_t count = 0;
  for (const std::string& source : resolved_sources()) {
    const std::vector<MutableKey> keys = keys_in(lines_of(source));
    for (int i = 0; i < 30; ++i) {
      const MutableKey &a = keys[random() % keys.size()], &b = keys[random() % keys.size()];
      if (a.parent.empty() || b.parent.empty() || section_of(a) == section_of(b)) continue;
      ++count;
      Lines lines = lines_of(source);
      const size_t first = make_mistake(Mistake::kNonsense, a, lines, random);
      const size_t second = make_mistake(Mistake::kMisspell, b, lines, random);
      const auto errors = errors_in(parse_config(text_from(lines), "my.yaml", {}));
      EXPECT_EQ(errors.size(), 2u) << testing::PrintToString(errors);
      for (const std::string& error : errors) expect_good_error(error, 0, true);
      if (errors.size() == 2) expect_good_error(errors[0], std::min(first, second), true);
    }
  }
  EXPECT_GT(count, 100u);
}

}  // namespace
}  // namespace stoker::config::test
