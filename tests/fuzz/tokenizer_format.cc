#include <string>
#include <vector>

#include "shared/tokenizer/tokenizer.h"
#include "tests/fuzz/file_under_test.h"
#include "tests/fuzz/format.h"
#include "tests/support/tokenizer_files.h"

namespace stoker::fuzz {
namespace {

// Encodes the text in parts of this size.
std::vector<int32_t> encode_in_parts(tokenizer::TextEncoder& encoder, std::string_view text,
                                     size_t part_bytes) {
  std::vector<int32_t> ids;
  bool begins = true;
  for (size_t size = part_bytes; !text.empty();) {
    const auto encoded = encoder.encode_part(
        text.substr(0, size), {.begins_section = begins, .ends_text = size >= text.size()}, ids);
    if (!encoded.ok()) return ids;
    check_invariant(encoded->bytes <= text.size(), "a part must not have more bytes than the text");
    text.remove_prefix(encoded->bytes);
    begins = encoded->begins_section;
    size = encoded->bytes == 0 ? 2 * size : part_bytes;
  }
  return ids;
}

// The sums of its scores are rounded, differently in parts.
bool is_sentence_piece(std::string_view file) { return file.starts_with('\n'); }

// A text of less than 64 KiB, and a tokenizer. Tokens must be in the vocabulary, and be the same in
// parts.
bool run(std::string_view input) {
  const auto parts = split_input(input, 2);
  const auto tokenizer = tokenizer::Tokenizer::parse(parts[1], "tokenizer");
  if (!check_status(tokenizer.status())) return false;
  tokenizer::TextEncoder encoder(*tokenizer);
  std::vector<int32_t> ids;
  if (!check_status(encoder.encode(parts[0], ids))) return true;
  for (const int32_t id : ids)
    check_invariant(id >= 0 && static_cast<uint64_t>(id) < (*tokenizer)->size(),
                    "a token must be in the vocabulary");
  if (reads_once()) return true;
  const std::vector<int32_t> in_parts = encode_in_parts(encoder, parts[0], 16);
  check_invariant(is_sentence_piece(parts[1]) || in_parts == ids,
                  "a text must have the same tokens in parts");
  (void)(*tokenizer)->decode(ids);
  return true;
}

std::vector<std::string> seeds() {
  const std::string text =
      "to be, or not to be's \n\n 12345 caf\u00e9 e\u0301 \xff\xe2\x82 <|endoftext|> be";
  auto file = test::small_tokenizer();
  std::vector<std::string> files{test::to_json(file)};
  file.normalizer = R"({"type": "Sequence", "normalizers": [{"type": "NFC"}]})";
  file.pre_tokenizer = R"({"type": "ByteLevel"})";
  files.push_back(test::to_json(file));
  file.pre_tokenizer =
      R"({"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {"type": "Split", "behavior": )"
      R"("Removed", "invert": true, "pattern": {"Regex": "(?i:'s)|\\s+(?!\\S)|[^\\r\\n\\p{L}]?\\p{L}+|)"
      R"(\\p{N}{1,3}|\\s+|."}}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})";
  file.pre_tokenizer.replace(file.pre_tokenizer.find("|.\""), 3, "|-\"");
  file.model_fields = ", \"ignore_merges\": true";
  files.push_back(test::to_json(file));
  auto words = test::small_word_piece();
  words.words.insert(words.words.end(), {"not", "12", "##34", "cafe", "'"});
  files.push_back(test::to_json(words));
  words.normalizer = R"({"type": "BertNormalizer", "clean_text": false, "lowercase": false,
                         "handle_chinese_chars": false, "strip_accents": true})";
  words.post_processor = R"({"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]})";
  files.push_back(test::to_json(words));
  // SentencePiece: <unk>, "▁", a, <s> of type CONTROL; with a table that replaces A by a, and BPE.
  const std::string pieces = std::string("\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\x02", 16) +
                             std::string("\x0a\x0a\x0a\x03\xe2\x96\x81\x15\0\0\x80\xbf", 12) +
                             std::string(
                                 "\x0a\x08\x0a\x01"
                                 "a\x15\0\0\0\xc0",
                                 10) +
                             std::string("\x0a\x0c\x0a\x03<s>\x15\0\0\0\0\x18\x03", 14);
  files.push_back(pieces);
  files.push_back(pieces + std::string("\x12\x02\x18\x02\x1a\x0e\x12\x0a\x04\0\0\0\0\x01\0\0"
                                       "a\0\x20\0",
                                       20));
  std::vector<std::string> inputs;
  for (const std::string& each : files) inputs.push_back(join_input({text, each}));
  return inputs;
}

}  // namespace

const Format& tokenizer_format() {
  static constexpr Format kFormat{.name = "tokenizer", .run = run, .seeds = seeds};
  return kFormat;
}

}  // namespace stoker::fuzz
