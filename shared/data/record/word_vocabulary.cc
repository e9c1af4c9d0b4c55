#include "shared/data/record/word_vocabulary.h"

#include <algorithm>
#include <array>

#include "shared/base/file.h"
#include "shared/base/hash.h"
#include "shared/base/utf8.h"
#include "shared/data/record/class_labels.h"
#include "shared/eval_metrics/ptb_tokenizer.h"
#include "shared/tokenizer/tokenizer.h"

namespace stoker::data::record {
namespace {

constexpr uint64_t kMaxVocabularyBytes = uint64_t{64} << 20;

bool is_special(std::string_view word) {
  constexpr std::array<std::string_view, 5> kSpecial{"<s>", "</s>", "<unk>", "<pad>", "<mask>"};
  std::string lower(word);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return std::ranges::find(kSpecial, lower) != kSpecial.end();
}

}  // namespace

Result<WordVocabulary> WordVocabulary::read(const std::string& path) {
  STOKER_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxVocabularyBytes));
  if (tokenizer::is_tokenizer_json(text))
    return Status(StatusCode::kMismatch,
                  path +
                      ": is JSON, such as a tokenizer.json; captions need a file with a word "
                      "per line");
  WordVocabulary vocabulary;
  vocabulary.words_ = {"<s>", "</s>", "<unk>"};
  const std::string_view lines(text);
  size_t number = 0;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = std::min(lines.find('\n', begin), lines.size());
    const std::string_view line = lines.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    const std::string word = valid_utf8(line.substr(0, line.find_first_of(" \t\r")));
    if (word.empty() || is_special(word)) continue;
    const auto wrong = [&](const std::string& what) {
      return Status(StatusCode::kCorrupt, path + ": line " + std::to_string(number) + ": " + what);
    };
    if (vocabulary.words_.size() == kMaxClasses)
      return wrong("more than " + std::to_string(kMaxClasses) + " words");
    const auto id = static_cast<int64_t>(vocabulary.words_.size());
    if (!vocabulary.ids_.emplace(word, id).second)
      return wrong("word " + quote_for_message(word) + " occurs twice; remove one");
    vocabulary.words_.push_back(word);
  }
  if (vocabulary.ids_.empty())
    return Status(StatusCode::kCorrupt, path + ": has no words; write one per line");
  Sha256 sum;
  for (const std::string& word : vocabulary.words_) sum.update(word + '\n');
  vocabulary.digest_ = sum.finish_hex();
  return vocabulary;
}

std::vector<int64_t> WordVocabulary::encode(std::string_view caption) const {
  std::vector<int64_t> tokens;
  for (const std::string& word : eval_metrics::ptb_words(caption)) {
    const auto found = ids_.find(word);
    tokens.push_back(found == ids_.end() ? kUnknownWord : found->second);
  }
  tokens.push_back(kCaptionEnd);
  return tokens;
}

std::string decode_caption(const std::vector<int64_t>& tokens,
                           const std::vector<std::string>& words) {
  std::string caption;
  for (const int64_t token : tokens) {
    if (token == kCaptionEnd) break;
    const auto at = static_cast<size_t>(token);
    caption += (caption.empty() ? "" : " ") +
               (token >= 0 && at < words.size() ? words[at] : std::to_string(token));
  }
  return caption;
}

}  // namespace stoker::data::record
