// ptb_words: the words of a caption, as those of pycocoevalcap's PTBTokenizer: Stanford's
// PTBTokenizer -lowerCase (3.4.1), without the punctuation that pycocoevalcap removes.
//
// Contractions are split ("isn't" is "is n't", "dog's" is "dog 's"); hyphenated words, numbers,
// abbreviations ("a.m.", "St.") and fractions are one word; brackets are "-lrb-", "-rrb-".
//
// Not Stanford's complete grammar, which is a thousand rules. Equal for the captions of
// tests/golden/captions.jsonl; differences remain in rare forms, such as telephone numbers and
// emoticons.
//
// Threads: a function of its argument.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stoker::eval_metrics {

// Bytes that are not UTF-8 become U+FFFD, which separates words.
std::vector<std::string> ptb_words(std::string_view caption);

}  // namespace stoker::eval_metrics
