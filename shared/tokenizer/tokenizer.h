// Tokenizer: converts text to token ids and back, as a file of data.NAME.tokenizer describes it.
//
// Kinds of files, recognized by their content:
//   tokenizer.json   of Hugging Face's tokenizers: byte-level BPE (GPT-2, Llama 3, Qwen2) and
//                    WordPiece (BERT). The ids are those of Tokenizer.encode(text,
//                    add_special_tokens=False). What changes the ids and is not supported is an
//                    error that names the field.
//   *.tiktoken       the ranks of r50k_base, p50k_base, cl100k_base and o200k_base; the ids are
//                    those of Encoding.encode_ordinary().
//   *.model          of SentencePiece, Unigram or BPE; the ids are those of
//                    SentencePieceProcessor.encode().
//
// Bytes that are not UTF-8 are encoded as U+FFFD, one for each maximal part of a character, like
// Python's bytes.decode(errors="replace"); with SentencePiece, as there, one for each byte.
//
// Threads: Tokenizer is immutable; any. A TextEncoder belongs to one thread at a time.
// Errors:  read(): those of reading the file; kCorrupt (with the field), kMismatch (a known kind
//          that is not supported). encode(): kCorrupt, kOutOfMemory (split_pattern.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/tokenizer/byte_pair_encoding.h"

namespace stoker::tokenizer {

struct TokenizerModel;  // tokenizer_model.h

inline constexpr uint64_t kMaxFileBytes = uint64_t{64} << 20;  // Gemma 3 has 33 MiB

// The tokens that a post-processor adds before and after a text: [CLS] and [SEP].
struct TextTemplate {
  std::vector<int32_t> before, after;

  size_t size() const { return before.size() + after.size(); }
};

class Tokenizer {
 public:
  static Result<std::shared_ptr<const Tokenizer>> read(const std::string& path);
  // `name` appears in the messages.
  static Result<std::shared_ptr<const Tokenizer>> parse(std::string_view file,
                                                        const std::string& name);
  explicit Tokenizer(TokenizerModel model, std::string digest);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Size of the vocabulary; the ids are below it.
  uint64_t size() const;
  // Hex SHA-256 of the file.
  const std::string& digest() const { return digest_; }
  // The token that ends a text: the first of <|endoftext|>, <|end_of_text|>, <eos>, </s> that the
  // file adds to its vocabulary, or that is a control symbol of SentencePiece.
  std::optional<int32_t> end_token() const;
  // Only of WordPiece; no tokens for others. encode() does not add them.
  const TextTemplate& text_template() const;
  // The bytes of a token. Ids outside of the vocabulary have none.
  std::string_view bytes_of(int64_t id) const;
  std::string decode(std::span<const int32_t> ids) const;
  // Whether the tokens of a normalized() text have its bytes.
  bool is_lossless() const;
  // The text as it is encoded: in NFC, or unchanged. kCorrupt: not UTF-8.
  Result<std::string> normalized(std::string_view text) const;

 private:
  friend class TextEncoder;

  const std::unique_ptr<const TokenizerModel> model_;
  const std::string digest_;
};

// Whether the file is a tokenizer.json, for readers of other files of data.NAME.tokenizer.
bool is_tokenizer_json(std::string_view file);

class TextEncoder {
 public:
  explicit TextEncoder(std::shared_ptr<const Tokenizer> tokenizer);

  const Tokenizer& tokenizer() const { return *tokenizer_; }

  // Appends the tokens of a text.
  Status encode(std::string_view text, std::vector<int32_t>& ids);

  // A part of a text, for texts that are encoded in parts.
  struct Part {
    bool begins_section = true;  // it starts the text or follows an added token
    bool ends_text = true;
  };
  struct Encoded {
    size_t bytes = 0;  // of the part that the tokens stand for; the next part starts there
    bool begins_section = false;  // of the next part
  };
  // Appends the tokens at the start of the part that do not depend on what follows it; all with
  // ends_text. The tokens of all parts are those of the text. No byte is encoded if the part ends
  // within its first piece.
  Result<Encoded> encode_part(std::string_view text, Part part, std::vector<int32_t>& ids);

 private:
  class PartEncoder;

  const std::shared_ptr<const Tokenizer> tokenizer_;
  BytePairEncoding::Memory memory_;
};

}  // namespace stoker::tokenizer
